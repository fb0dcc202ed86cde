"""What an operator asks for: who is the master, and who is a member.

promote         the steps of `promotion_steps`: asked, promised, opened
demote          hold ──► slaves catch up ──► the log
remove, admit   see `member_changes`; others receive a list of members when they ask
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from stratamq.errors import InvalidRequestError, NotWritableError
from stratamq.follow.own_log import OwnLog
from stratamq.formats.log_state import LogState, Role
from stratamq.formats.members import Members
from stratamq.formats.replication_peers import PeerStatus
from stratamq_ha.cluster import ATTEMPTS, PAUSE_S, Cluster
from stratamq_ha.config import HaConfig
from stratamq_ha.master import Master
from stratamq_ha.member_changes import (
    check_confirmed,
    check_gone,
    check_removal,
    check_whole,
    cost_of_removal,
    lacking,
    unconfirmed,
    with_member,
)
from stratamq_ha.own_log import OwnLogView
from stratamq_ha.peer_decisions import PeerAnswer
from stratamq_ha.peer_policy import usable
from stratamq_ha.promotion_steps import (
    Ask,
    Asked,
    Join,
    Pause,
    Promise,
    Promotion,
    PromotionOutcome,
    promote,
)
from stratamq_ha.slave import Slave
from stratamq_ha.slaves import SlaveState

MORE_ASKS = 3
"""While fewer than must promise answer, the others are asked so many times more."""


@dataclass(frozen=True, slots=True)
class Promoted:
    role: Role
    term: int
    generation: int
    start: int
    missing: list[str]


class OperatorCommands:
    """Each is carried out alone. StrataError of the log; NotWritableError with the reasons against
    it; InvalidRequestError for what cannot be done here."""

    def __init__(
        self,
        config: HaConfig,
        cluster: Cluster,
        own: OwnLog,
        view: OwnLogView,
        master: Master,
        slave: Slave,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._own = own
        self._view = view
        self._master = master
        self._slave = slave

    async def promote(self, wanted: Role | None, *, force: bool, succeeds: str = "") -> Promoted:
        """NotWritableError with the reasons against it; StrataError of the log. `succeeds`: see
        `promotion.assess`."""
        if wanted is Role.SLAVE:
            raise InvalidRequestError("a promotion makes an ASYNC_MASTER or a SYNC_MASTER")
        async with self._cluster.one_at_a_time:
            facts = await self._cluster.keep_members(await self._cluster.facts_soon())
            role = wanted or self._master_role(facts)
            steps = promote(
                force=force,
                succeeds=succeeds,
                asynchronous=self._cluster.master_role.value is Role.ASYNC_MASTER,
            )
            outcome, generation, start = await self._carry_out(
                steps, role, facts, patient=not force
            )
            await self._cluster.keep_members(await self._cluster.facts())
            await self._release()
        self._cluster.changed.set()
        return Promoted(role, outcome.term, generation, start, outcome.assessment.missing)

    async def _carry_out(
        self, steps: Promotion, role: Role, facts: LogState, *, patient: bool
    ) -> tuple[PromotionOutcome, int, int]:
        """The steps of a promotion: (how it went, the generation that it began, its start).
        NotWritableError with the reasons against it."""
        asked = None
        own = self._cluster.peer_status(facts)
        generation = start = 0
        try:
            while True:
                step, asked = steps.send(asked), None
                if isinstance(step, Ask):
                    answers = (
                        await self._cluster.ask(own, master_too=False)
                        if step.promises
                        else await self._ask_quorum(own, patient=patient)
                    )
                    own = self._cluster.peer_status(await self._cluster.facts())
                    asked = Asked(own, answers, self._slave.of_master)
                elif isinstance(step, Join):
                    await self._own.set_joined(True, facts.generation)
                elif isinstance(step, Promise):
                    self._slave.drop()
                    await self._own.set_role(
                        Role.SLAVE, term=step.term, reason=step.reason, candidate=step.candidate
                    )
                    own = self._cluster.peer_status(await self._cluster.facts())
                elif isinstance(step, Pause):
                    await asyncio.sleep(PAUSE_S)
                else:
                    generation, start = await self._own.set_role(
                        role, term=step.term, reason=step.reason
                    )
        except StopIteration as ended:
            outcome: PromotionOutcome = ended.value
        if outcome.refused:
            if outcome.promised:
                self._slave.retry()
            raise NotWritableError(
                "; ".join(outcome.assessment.against) + " (--force does it all the same)", "promote"
            )
        return outcome, generation, start

    async def _ask_quorum(self, own: PeerStatus, *, patient: bool) -> list[PeerAnswer]:
        """How the others stand; `patient`: asked again while too few answer, for a broker that
        starts, or changes its role, does not answer for a moment."""
        answers = await self._cluster.ask(own, master_too=True)
        for _ in range(MORE_ASKS if patient and own.members is not None else 0):
            assert own.members is not None
            if 1 + len(usable(own, answers)) >= own.members.quorum:
                break
            await asyncio.sleep(PAUSE_S)
            answers = await self._cluster.ask(own, master_too=True)
        return answers

    async def remove_member(self, name: str, *, force: bool) -> tuple[Members, list[str]]:
        """An operator declares a member dead for good. The members in force then, and what it
        costs."""
        async with self._cluster.one_at_a_time:
            own, answers = await self._asked_all()
            members = check_removal(own, name)
            if not force:
                check_gone(members, name, answers, self._slaves())
                check_whole(name, await self._missing(lambda: lacking(own, name, self._slaves())))
                if members.counts(name):
                    await self._put_members(members.leaving(name), own.member)
                members = await self._confirmed(name)
            changed = members.without(name)
            await self._put_members(changed, own.member)
        return changed, cost_of_removal(members, changed, name)

    async def _confirmed(self, name: str) -> Members:
        """The members once all that are left confirm that this one is leaving."""
        for _ in range(ATTEMPTS):
            own, answers = await self._asked_all()
            missing = unconfirmed(own, name, answers) or lacking(own, name, self._slaves())
            if not missing:
                break
            await asyncio.sleep(PAUSE_S)
        return check_confirmed(own, name, missing)

    async def admit_member(self, name: str) -> Members:
        """An operator takes a removed member in again, or adds one that is configured here."""
        async with self._cluster.one_at_a_time:
            own, answers = await self._asked_all()
            facts = await self._cluster.facts()
            configured = self._cluster.configured(facts)
            changed = with_member(own, name, answers, configured, facts.required_replicas)
            await self._put_members(changed, own.member)
        return changed

    async def _asked_all(self) -> tuple[PeerStatus, list[PeerAnswer]]:
        """How this broker stands, and what all others answer to that."""
        facts = await self._cluster.keep_members(await self._cluster.facts_soon())
        own = self._cluster.peer_status(facts)
        return own, await self._cluster.ask(own, master_too=False)

    async def _missing(self, found: Callable[[], list[str]]) -> list[str]:
        """What is found missing after a while, at the latest once nothing is."""
        for _ in range(ATTEMPTS):
            if not found():
                break
            await asyncio.sleep(PAUSE_S)
        return found()

    async def _put_members(self, changed: Members, own: str) -> None:
        await self._own.put_members(changed, own)
        await self._cluster.facts()
        self._cluster.changed.set()

    async def _release(self) -> None:
        """A promotion is an operator's decision: it ends the log's wait for its peers."""
        facts = await self._cluster.facts()
        if facts.held_reason:
            await self._own.hold("", has_peers=facts.has_peers)
            await self._cluster.facts()

    def _master_role(self, facts: LogState) -> Role:
        for role in (facts.role, facts.configured_role, self._cluster.master_role.value):
            if role is not None and role is not Role.SLAVE:
                return role
        # No master was heard of: among members one that answers no PUT_OK for what it has alone.
        return Role.ASYNC_MASTER if facts.members is None else Role.SYNC_MASTER

    async def demote(self, master: str, *, force: bool) -> tuple[str, list[str]]:
        """Return the master that is followed now, and what its slaves lacked, if it lacks anything.
        Raises NotWritableError if no slave has the whole log after `ha.stop_slaves_ms`."""
        async with self._cluster.one_at_a_time:
            facts = await self._cluster.facts_soon()
            if facts.role is Role.SLAVE:
                return await self._follow_another(facts, master), []
            if not master and facts.members is None and self._cluster.configured(facts) is None:
                raise InvalidRequestError(
                    "name the master to follow (--master HOST:PORT): there are no members "
                    "(ha.members) to ask"
                )
            members = facts.members.active if facts.members is not None else ()
            successor = next((one.name for one in members if one.address == master), "")
            await self._own.hold("it is being demoted", has_peers=facts.has_peers)
            if not facts.held_reason:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._config.stop_slaves_ms / 1000):
                        await self._shipped_all(successor, force=force)
            whole = [one for one in self._slaves() if one.connected and not one.lag_bytes]
            is_handed_over = any(one.member == successor for one in whole if successor)
            missing = [] if is_handed_over else self._lagging()
            if not (whole or force or facts.held_reason):
                await self._own.hold("", has_peers=facts.has_peers)
                raise NotWritableError(
                    "; ".join(missing) + ": what it has alone would be gone (--force does it all "
                    "the same)",
                    "demote",
                )
            await self._own.set_role(Role.SLAVE, master=master, reason="it was demoted")
            await self._cluster.facts()
            self._slave.retry()
        self._cluster.changed.set()
        return master, missing

    async def _follow_another(self, facts: LogState, master: str) -> str:
        now = self._slave.address(facts)
        if not master:
            raise NotWritableError(
                f"this broker is a slave already, it follows {now or 'no master'}", "role"
            )
        await self._own.set_role(Role.SLAVE, master=master, reason="an operator named its master")
        await self._cluster.facts()
        self._slave.drop()
        return master

    async def _shipped_all(self, successor: str, *, force: bool) -> None:
        """Until everything that was stored can be shipped, and the member that is to lead has it;
        without one: every connected slave, and one at least is connected unless `force`."""
        while True:
            facts = await self._cluster.facts()
            if self._view.view.shippable >= facts.appended_offset:
                break
            await asyncio.sleep(0.02)

        def fulfilled(connected: list[SlaveState]) -> bool:
            whole = [one for one in connected if not one.lag_bytes]
            if successor and not force:
                return any(one.member == successor for one in whole)
            return (force or bool(whole)) and len(whole) == len(connected)

        await self._master.until(fulfilled)

    def _slaves(self) -> list[SlaveState]:
        return self._master.known_slaves()

    def _lagging(self) -> list[str]:
        slaves = self._slaves()
        if not any(one.connected for one in slaves):
            return ["no slave is connected"]
        return [
            f"the slave {one.address} has not acknowledged {one.lag_bytes} bytes"
            for one in slaves
            if one.connected and one.lag_bytes
        ]
