"""Keeps the broker's role right: asks its peers, holds writes, steps down, finds a new master; and
does what an operator asks for.

    every second, or when something was heard   ask ──► peer_policy.decide ──► the log
    Promote                                     ask ──► promotion.assess ──► peers promise the term
                                                    ──► assess again ──► the log
    Demote                                      hold ──► slaves catch up ──► the log

The log's own state decides: the role is whatever the log last said it is.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stratamq.client.replication import LogFacts, OwnLog
from stratamq.client.values import Role
from stratamq.errors import InvalidRequestError, NotWritableError, StrataError, UnavailableError
from stratamq.files.port import Clock
from stratamq.formats.generation_number import last_term
from stratamq.formats.replication_fields import Generations
from stratamq.formats.replication_peers import Standing, StandingRole
from stratamq_ha.config import HaConfig
from stratamq_ha.master import Master
from stratamq_ha.own_log import OwnLogView
from stratamq_ha.peer_policy import (
    Answer,
    Follow,
    Promise,
    Serve,
    Stay,
    Wait,
    decide,
    related,
    usable,
)
from stratamq_ha.peers import ask_all, reached_at
from stratamq_ha.promotion import assess, next_term
from stratamq_ha.slave import Slave
from stratamq_ha.slaves import SlaveState
from stratamq_ha.taking_back import holder, silent, take_back

log = logging.getLogger(__name__)

LOOK_S = 1.0
PATIENCE, PAUSE_S = 15, 0.2
"""How long an operator's word waits for the log."""
ASKING = "its peers (ha.peers) are being asked whether one of them was promoted"


@dataclass(frozen=True, slots=True)
class Promoted:
    role: Role
    term: int
    generation: int
    start: int
    missing: list[str]


class RoleKeeper:
    """`run` until it is cancelled. `instance`: at random, for this process."""

    def __init__(
        self,
        config: HaConfig,
        own: OwnLog,
        view: OwnLogView,
        master: Master,
        slave: Slave,
        clock: Clock,
        instance: int,
    ) -> None:
        self.answers: list[Answer] = []
        """Of the configured peers, as of the last time they were asked."""
        self.problem = ""
        self._config = config
        self._own = own
        self._view = view
        self._master = master
        self._slave = slave
        self._clock = clock
        self._instance = instance
        self._heard: dict[int, Answer] = {}
        """Who asked us since the last look, by instance."""
        self._term_heard: tuple[int, str] | None = None
        self._woken = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        master.asked = self._asked
        master.opened = self._opened

    async def run(self) -> None:
        while True:
            try:
                async with self._one_at_a_time:
                    await self._look()
            except StrataError as error:
                log.debug("the log does not answer", extra={"error": str(error)})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._woken.wait()
            self._woken.clear()

    def wake(self) -> None:
        """Something has changed: look now."""
        self._woken.set()

    def standing(self, facts: LogFacts) -> Standing:
        """How this broker stands."""
        assert facts.role is not None
        history = self._view.view
        return Standing(
            instance=self._instance,
            role=StandingRole(facts.role.value),
            held=bool(facts.held),
            term=facts.term,
            minimum=facts.minimum,
            end=max(facts.appended, history.shippable),
            name=facts.broker_name,
            log_address=self._master.log_address,
            replication_address=self._master.address,
            follows=self._slave.address(facts) if facts.role is Role.SLAVE else "",
            generations=facts.generations,
        )

    # --- what is heard from outside ---

    def _asked(self, theirs: Standing, source: str) -> Standing | None:
        """A broker asks, and says how it stands itself; None while we do not know how we do."""
        facts = self._view.facts
        if facts is None or facts.role is None:
            return None
        ours = self.standing(facts)
        known = next(
            (
                a.address
                for a in self.answers
                if a.standing and a.standing.instance == theirs.instance
            ),
            "",
        )
        if theirs.term > ours.term and theirs.name == ours.name:
            self._heard[theirs.instance] = Answer(known or reached_at(theirs, source), theirs)
            self.wake()
        return ours

    def _opened(self, generations: Generations, source: str) -> str:
        """A slave opens with that history: why it is not served, "" if it may be."""
        facts = self._view.facts
        if facts is not None and facts.taking_back:
            return "this master takes back first what its slaves hold and it has lost"
        term = last_term(generations)
        if facts is None or term <= facts.term or not related(facts.generations, generations):
            return ""
        self._term_heard = (term, f"the slave {source} has followed a master of term {term}")
        self.wake()
        return f"this master is of term {facts.term}, and the slave knows of term {term}"

    # --- every second ---

    async def _look(self) -> None:
        facts = await self._facts()
        facts = await self._keep_peers(facts)
        own = self.standing(facts)
        answers = await self._ask(own, master_too=self._slave.state.connected)
        heard, self._heard = list(self._heard.values()), {}
        term_heard, self._term_heard = self._term_heard, None
        decision = decide(
            own,
            [*answers, *heard],
            forced=self._config.force_master,
            connected=self._slave.state.connected,
        )
        if isinstance(decision, Stay) and term_heard is not None and own.is_master:
            decision = Follow("", *term_heard)
        self.problem = decision.problem if isinstance(decision, Stay) else ""
        if isinstance(decision, Wait):
            if facts.held != decision.reason:
                log.warning("no messages are taken", extra={"reason": decision.reason})
                await self._own.hold(decision.reason, has_peers=facts.has_peers)
        elif isinstance(decision, Serve) and facts.taking_back:
            await self._take_back(facts, own, answers)
        elif isinstance(decision, Serve):
            await self._own.hold("", has_peers=facts.has_peers)
            log.info("messages are taken", extra={"peers": len(self._config.peers)})
        elif isinstance(decision, Follow):
            await self._follow(own, decision)
        elif isinstance(decision, Promise):
            await self._promise(decision)
        if not isinstance(decision, Stay):
            await self._facts()

    async def _follow(self, own: Standing, decision: Follow) -> None:
        if not own.is_master:
            log.warning("another master is followed", extra={"reason": decision.reason})
            self._slave.follow(decision.address)
            return
        log.warning("this broker steps down", extra={"reason": decision.reason})
        await self._own.set_role(
            Role.SLAVE, term=decision.term, master=decision.address, reason=decision.reason
        )
        self._slave.again()

    async def _promise(self, promise: Promise) -> None:
        log.warning("a promotion is under way", extra={"reason": promise.reason})
        self._slave.drop()
        await self._own.set_role(
            Role.SLAVE, term=promise.term, master=promise.address, reason=promise.reason
        )
        self._slave.again()

    async def _take_back(self, facts: LogFacts, own: Standing, answers: Sequence[Answer]) -> None:
        unheard = [] if self._config.force_master else silent(answers)
        if unheard:
            reason = (
                "this master lost what it had not flushed, and takes it back from its slaves "
                f"before it takes messages: {', '.join(unheard)} must answer, too; `stratamq "
                "replica promote --force` goes on with what is here"
            )
            if facts.held != reason:
                log.warning("no messages are taken", extra={"reason": reason})
                await self._own.hold(reason, has_peers=facts.has_peers)
            return
        address = holder(own, answers)
        if address:
            await take_back(self._own, facts, address, self._now_ms)
            self.wake()
            return
        assert facts.role is not None
        await self._own.set_role(facts.role, goes_on=True)
        log.info("messages are taken: no slave has more than this log")

    async def _keep_peers(self, facts: LogFacts) -> LogFacts:
        """The log knows whether there are peers, durably, before it goes on with any."""
        has_peers = bool(self._config.peers)
        if facts.role is Role.SLAVE or facts.has_peers is has_peers:
            return facts
        await self._own.hold(ASKING if has_peers else "", has_peers=has_peers)
        return await self._facts()

    async def _facts(self) -> LogFacts:
        facts = await self._own.facts()
        self._view.learned(facts)
        if facts.role is None:
            raise UnavailableError("the log does not say what it is")
        return facts

    async def _facts_soon(self) -> LogFacts:
        """The same, for an operator who may have started the log a moment ago."""
        for _ in range(PATIENCE):
            with contextlib.suppress(UnavailableError):
                return await self._facts()
            await asyncio.sleep(PAUSE_S)
        return await self._facts()

    async def _ask(self, own: Standing, *, master_too: bool) -> list[Answer]:
        followed = self._followed(own) if master_too else []
        addresses = list(dict.fromkeys([*self._config.peers, *followed]))
        answers = await ask_all(addresses, own)
        self.answers = [one for one in answers if one.address in self._config.peers]
        for one in answers:
            if one.standing is not None and one.address == own.follows:
                self._slave.heard_of_master(one.standing)
        return answers

    def _followed(self, own: Standing) -> list[str]:
        """The master, if it is one that answers questions."""
        ours = self._config.master_kind == "STRATAMQ"
        return [own.follows] if ours and own.follows and not own.is_master else []

    # --- what an operator asks for ---

    async def promote(self, wanted: Role | None, *, force: bool) -> Promoted:
        """NotWritableError with what speaks against it; StrataError of the log."""
        if wanted is Role.SLAVE:
            raise InvalidRequestError("a promotion makes an ASYNC_MASTER or a SYNC_MASTER")
        async with self._one_at_a_time:
            facts = await self._facts_soon()
            own = self.standing(facts)
            answers = await self._ask(own, master_too=True)
            assessment = assess(own, answers, self._slave.of_master)
            if assessment.against and not force:
                raise NotWritableError(
                    "; ".join(assessment.against) + " (--force does it all the same)", "promote"
                )
            role = wanted or self._master_role(facts)
            term = next_term(own, answers)
            self._slave.drop()
            answers = await self._promised(own, term)
            own = self.standing(await self._facts())
            assessment = assess(own, answers, self._slave.of_master, promised=term)
            if assessment.against and not force:
                self._slave.again()
                raise NotWritableError(
                    "; ".join(assessment.against) + " (--force does it all the same)", "promote"
                )
            generation, start = await self._own.set_role(
                role, term=term, reason=f"it was promoted to term {term}"
            )
            await self._keep_peers(await self._facts())
            await self._release()
        self.wake()
        return Promoted(role, term, generation, start, assessment.missing)

    async def _promised(self, own: Standing, term: int) -> list[Answer]:
        """What the peers answer once all that answer have promised the term, or did not in time."""
        candidate = replace(
            own,
            role=StandingRole.SLAVE,
            held=False,
            term=term,
            follows=own.replication_address,
        )
        for _ in range(PATIENCE):
            answers = await self._ask(candidate, master_too=False)
            ours = [
                theirs
                for _, theirs in usable(own, answers)
                if related(own.generations, theirs.generations)
            ]
            if all(theirs.term >= term for theirs in ours):
                break
            await asyncio.sleep(PAUSE_S)
        return answers

    async def _release(self) -> None:
        """A promotion is an operator's word: the log does not wait for peers any more."""
        facts = await self._facts()
        if facts.held:
            await self._own.hold("", has_peers=facts.has_peers)
            await self._facts()

    def _master_role(self, facts: LogFacts) -> Role:
        for role in (facts.role, facts.configured_role, self._slave.master_role):
            if role is not None and role is not Role.SLAVE:
                return role
        return Role.ASYNC_MASTER

    async def demote(self, master: str, *, force: bool) -> tuple[str, list[str]]:
        """Whom it follows now, and what its slaves did not have. NotWritableError if no slave has
        everything."""
        async with self._one_at_a_time:
            facts = await self._facts_soon()
            if facts.role is Role.SLAVE:
                return await self._follow_another(facts, master), []
            if not master and not self._config.peers:
                raise InvalidRequestError(
                    "say whom it shall follow (--master HOST:PORT): there are no peers (ha.peers) "
                    "to ask"
                )
            await self._own.hold("it is being demoted", has_peers=facts.has_peers)
            if not facts.held:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._config.stop_slaves_ms / 1000):
                        await self._shipped_all()
            missing = self._lagging()
            whole = [one for one in self._slaves() if one.connected and not one.lag_bytes]
            if not (whole or force or facts.held):
                await self._own.hold("", has_peers=facts.has_peers)
                raise NotWritableError(
                    "; ".join(missing) + ": what it has alone would be gone (--force does it all "
                    "the same)",
                    "demote",
                )
            await self._own.set_role(Role.SLAVE, master=master, reason="it was demoted")
            await self._facts()
            self._slave.again()
        self.wake()
        return master, missing

    async def _follow_another(self, facts: LogFacts, master: str) -> str:
        now = self._slave.address(facts)
        if not master:
            raise NotWritableError(
                f"this broker is a slave already, it follows {now or 'nobody'}", "role"
            )
        await self._own.set_role(Role.SLAVE, master=master, reason="it was told whom to follow")
        await self._facts()
        self._slave.drop()
        return master

    async def _shipped_all(self) -> None:
        """Until everything that was stored can be shipped, and every slave has it."""
        while True:
            facts = await self._facts()
            if self._view.view.shippable >= facts.appended:
                break
            await asyncio.sleep(0.02)
        await self._master.caught_up()

    def _slaves(self) -> list[SlaveState]:
        return self._master.slaves.known(self._now_ms())

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // 1_000_000

    def _lagging(self) -> list[str]:
        slaves = self._slaves()
        if not any(one.connected for one in slaves):
            return ["no slave is connected"]
        return [
            f"the slave {one.address} has not acknowledged {one.lag_bytes} bytes"
            for one in slaves
            if one.connected and one.lag_bytes
        ]
