"""Keeps the broker's role right: asks the other members, holds writes, steps down, finds a new
master.

    every second, or when something was heard   ask ──► peer_policy.decide ──► the log

What an operator asks for is `operator_commands`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace

from stratamq.errors import StrataError, UnavailableError
from stratamq.files.port import Clock
from stratamq.follow.own_log import OwnLog
from stratamq.formats.log_state import LogState, Role
from stratamq.formats.replication_peers import PeerStatus
from stratamq_ha.cluster import Cluster
from stratamq_ha.config import HaConfig
from stratamq_ha.master_agreement import Obstacle
from stratamq_ha.own_log import OwnLogView
from stratamq_ha.peer_decisions import (
    Adopt,
    Decision,
    Follow,
    Forgot,
    FoundCluster,
    OpenTerm,
    PeerAnswer,
    PromiseTerm,
    RefuseMessages,
    Serve,
    Stay,
)
from stratamq_ha.peer_policy import Joining, decide, of_slaves_term
from stratamq_ha.peers import reached_at
from stratamq_ha.slave import Slave
from stratamq_ha.tail_recovery import holder, recover_tail, silent

log = logging.getLogger(__name__)

LOOK_S = 1.0
SOON_S = 0.2
"""While this broker takes no messages, or is rejoining, and must ask the others."""
SILENT_S = 5.0
"""A log that has not answered for so long is gone: others hear no more what it was."""


class RoleKeeper:
    """`run` until it is cancelled."""

    def __init__(
        self,
        config: HaConfig,
        cluster: Cluster,
        own: OwnLog,
        view: OwnLogView,
        slave: Slave,
        clock: Clock,
    ) -> None:
        self.problem = ""
        """What only an operator can put right; "" if nothing."""
        self._config = config
        self._cluster = cluster
        self._own = own
        self._view = view
        self._slave = slave
        self._clock = clock
        self._joining = Joining()
        self._soon = False
        self._heard: dict[int, PeerAnswer] = {}
        """Who asked us since the last look, by instance."""
        self._term_heard: tuple[int, str] | None = None
        self._silent_since_ns: int | None = None
        """The log does not answer; None: it did when it was asked last."""

    async def run(self) -> None:
        while True:
            try:
                async with self._cluster.one_at_a_time:
                    await self._look()
                self._silent_since_ns = None
            except StrataError as error:
                self._note_silence(error)
                log.debug("the log does not answer", extra={"error": str(error)})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SOON_S if self._soon else LOOK_S):
                    await self._cluster.changed.wait()
            self._cluster.changed.clear()

    def wake(self) -> None:
        """Something has changed: look now."""
        self._cluster.changed.set()

    def _note_silence(self, error: StrataError) -> None:
        if not isinstance(error, UnavailableError):
            self._silent_since_ns = None
        elif self._silent_since_ns is None:
            self._silent_since_ns = self._clock.monotonic_ns()

    @property
    def _log_is_gone(self) -> bool:
        since_ns = self._silent_since_ns
        return since_ns is not None and self._clock.monotonic_ns() - since_ns >= SILENT_S * 1e9

    # --- what is heard from outside ---

    def status_for(self, theirs: PeerStatus, source: str) -> PeerStatus | None:
        """The answer to another broker's peer status; None while this broker's own is not known."""
        facts = self._view.facts
        if facts is None or facts.role is None or self._log_is_gone:
            return None
        ours = self._cluster.peer_status(facts)
        self._cluster.learn(theirs, ours.name)
        if theirs.name == ours.name and (
            theirs.term > ours.term or _has_later_members(theirs, ours)
        ):
            self._heard[theirs.instance] = PeerAnswer(
                self._address_of(theirs, ours, source), theirs
            )
            self.wake()
        promised = theirs.name == ours.name and theirs.is_master and theirs.term == ours.term
        if promised and not ours.is_master and not self._slave.state.connected:
            self._slave.retry()  # it was refused there until now: the promotion is done
        return replace(ours, held=True) if facts.lease_over else ours

    def _address_of(self, theirs: PeerStatus, ours: PeerStatus, source: str) -> str:
        """Where a broker that asks takes slaves."""
        member = ours.members.find(theirs.member) if ours.members is not None else None
        return member.address if member is not None else reached_at(theirs, source)

    def slave_refused(self, found: Obstacle, source: str) -> None:
        """A slave is not served, because of what it has."""
        facts = self._view.facts
        assert facts is not None
        if found.term is not None:
            self._term_heard = found.term, source
            self.wake()
        if found.is_longer:
            self._cluster.found_longer(facts, found.sentence)
            self.wake()

    async def _look(self) -> None:
        facts = await self._cluster.facts()
        facts = await self._cluster.keep_members(facts)
        own = self._cluster.peer_status(facts)
        answers = await self._cluster.ask(own, master_too=self._slave.state.connected)
        # What others have was shipped before they answered: compare with what is here now.
        facts = await self._cluster.facts()
        own = self._cluster.peer_status(facts)
        heard, self._heard = list(self._heard.values()), {}
        term_heard, self._term_heard = self._term_heard, None
        decision = decide(
            own,
            [*answers, *heard],
            forced=self._config.force_master,
            connected=self._slave.state.connected,
            recovers_tail=facts.taking_back,
            longer=self._cluster.longer(facts),
        )
        if term_heard is not None and term_heard[0] <= own.term:
            term_heard = None  # a promotion since then has gone beyond it
        if isinstance(decision, Stay) and term_heard is not None and own.is_master:
            decision = of_slaves_term(own, *term_heard)
        self.problem = self._problem(decision, facts)
        self._soon = facts.rejoining or bool(facts.held_reason)
        await self._do(decision, facts, own, answers)
        # After anything else the log no longer has what the answers were compared with.
        if isinstance(decision, Stay) and self._joining.has_joined(own, answers, facts.safe_offset):
            await self._own.set_joined(True, facts.generation)
            log.info("this broker counts as a member", extra={"member": own.member})
            self._slave.drop()
            await self._cluster.facts()
        if not isinstance(decision, Stay):
            await self._cluster.facts()

    async def _do(
        self, decision: Decision, facts: LogState, own: PeerStatus, answers: Sequence[PeerAnswer]
    ) -> None:
        if isinstance(decision, RefuseMessages):
            if facts.held_reason != decision.reason:
                log.warning("no messages are taken", extra={"reason": decision.reason})
                await self._own.hold(decision.reason, has_peers=facts.has_peers)
        elif isinstance(decision, Serve) and facts.taking_back:
            await self._recover_tail(facts, own, answers)
        elif isinstance(decision, Serve):
            await self._own.hold("", has_peers=facts.has_peers)
            log.info("messages are taken", extra={"members": len(self._config.members)})
        elif isinstance(decision, Follow):
            await self._follow(own, decision)
        elif isinstance(decision, PromiseTerm):
            await self._promise(decision)
        elif isinstance(decision, Adopt):
            log.warning("the members changed", extra={"version": decision.members.version})
            await self._own.put_members(decision.members, own.member)
            # The master has it connected as what it was by the older list.
            self._slave.drop()
            self.wake()
        elif isinstance(decision, FoundCluster):
            log.info("this broker founds its cluster", extra={"member": own.member})
            await self._own.set_joined(True, facts.generation)
            self.wake()
        elif isinstance(decision, Forgot):
            log.warning("rejoining: not counted in the quorum", extra={"reason": decision.reason})
            await self._own.set_joined(False, facts.generation)
            self._slave.drop()
            self.wake()
        elif isinstance(decision, OpenTerm):
            assert facts.role is not None
            await self._own.set_role(
                facts.role, term=decision.term, reason="it is the first master"
            )
            self.wake()

    def _problem(self, decision: Decision, facts: LogState) -> str:
        """What only an operator can put right, while nothing else is done."""
        if not isinstance(decision, Stay):
            return ""
        if decision.problem:
            return decision.problem
        configured = self._cluster.configured(facts)
        if facts.members is not None and configured is None:
            return (
                f"ha.members is empty, and members of version {facts.members.version} are in force"
            )
        if configured is not None and facts.members is not None:
            if not configured.same_names(facts.members):
                return (
                    "ha.members names others than the members in force: `stratamq replica admit` "
                    "and `remove` at the master change those"
                )
            wanted = min(facts.required_replicas, max(0, facts.members.count - 1))
            if wanted != facts.members.required:
                return (
                    f"commitlog.required_replicas is {facts.required_replicas}, and "
                    f"{facts.members.required} acknowledgements are in force"
                )
        return ""

    async def _follow(self, own: PeerStatus, decision: Follow) -> None:
        if not own.is_master:
            log.warning("another master is followed", extra={"reason": decision.reason})
            self._slave.follow(decision.address)
            return
        log.warning("this broker steps down", extra={"reason": decision.reason})
        await self._own.set_role(
            Role.SLAVE, term=decision.term, master=decision.address, reason=decision.reason
        )
        self._slave.retry()

    async def _promise(self, promise: PromiseTerm) -> None:
        log.warning("a promotion is under way", extra={"reason": promise.reason})
        self._slave.drop()
        await self._own.set_role(
            Role.SLAVE,
            term=promise.term,
            master=promise.address,
            reason=promise.reason,
            candidate=promise.candidate,
        )
        self._slave.retry()

    async def _recover_tail(
        self, facts: LogState, own: PeerStatus, answers: Sequence[PeerAnswer]
    ) -> None:
        unheard = [] if self._config.force_master else silent(answers)
        if unheard:
            reason = (
                "this master lost what it had not flushed, and recovers it from its slaves "
                f"before it takes messages: {', '.join(unheard)} must answer, too; `stratamq "
                "replica promote --force` continues with what is here"
            )
            if facts.held_reason != reason:
                log.warning("no messages are taken", extra={"reason": reason})
                await self._own.hold(reason, has_peers=facts.has_peers)
            return
        address = holder(own, answers)
        if address:
            await recover_tail(self._own, facts, address, self._now_ms)
            self.wake()
            return
        assert facts.role is not None
        await self._own.set_role(facts.role, resumes=True)
        log.info("messages are taken: no slave has more than this log")

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // 1_000_000


def _has_later_members(theirs: PeerStatus, ours: PeerStatus) -> bool:
    """Members of a later version."""
    return (
        ours.members is not None
        and theirs.members is not None
        and theirs.members.version > ours.members.version
    )
