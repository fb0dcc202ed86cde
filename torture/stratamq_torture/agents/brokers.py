"""Brokers of a cluster as their agents see them: roles, terms, promises of the others, messages,
and the lease and ability of each log. What a promotion keeps is shown by `torture brokers`.

Once a second each master that takes messages appends one, and ships what it has flushed.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import cast

from stratamq_agent.decision import OtherMember, Own
from stratamq_commitlog.config import CommitLogConfig
from stratamq_commitlog.log_state import LogOffsets, RoleAndHistory, StateCell
from stratamq_commitlog.replica.ability import Ability
from stratamq_commitlog.replica.acknowledgement import Replicas
from stratamq_commitlog.roles import RoleState
from stratamq_commitlog.write.write_gate import Lease, WriteGate

from stratamq.errors import NotWritableError, UnavailableError
from stratamq.files.port import Clock
from stratamq.formats.generation_number import SLOTS
from stratamq.formats.log_state import ReplicaState, Role
from stratamq_torture.trial import Violation

BOOT = "simulated"
LOOK_S = 1.0
STALL_S = 5.0
LATE_S = (0.5, 5.0, 40.0)
_CONFIG = CommitLogConfig(root=Path("simulated"))


class Cluster:
    """`required`: k, acknowledgements of slaves; `sync`: a master waits for them. `changed` is
    called whenever a broker that did not respond before may respond now."""

    def __init__(self, required: int, *, sync: bool, chance: random.Random) -> None:
        self.members: dict[str, SimulatedBroker] = {}
        self.required = required
        self.sync = sync
        self.cut_off: set[str] = set()
        """Members that reach no other."""
        self.changed: Callable[[], None] = lambda: None
        self.acknowledged: list[int] = []
        self.handed_over = 0
        self._chance = chance
        self._sent = 0

    def reach(self, one: str, other: str) -> bool:
        if one == other:
            return True
        apart = one in self.cut_off or other in self.cut_off
        return not apart and self.members[one].alive and self.members[other].alive

    def answering(self) -> list[str]:
        """Masters that would answer PUT_OK now."""
        return [one.member for one in self.members.values() if one.answers]

    def slaves(self, master: "SimulatedBroker") -> list["SimulatedBroker"]:
        """Those that follow it."""
        return [
            one
            for one in self.members.values()
            if not one.is_master
            and one.term == master.term
            and self.reach(master.member, one.member)
        ]

    def second(self, now_s: float) -> None:
        """Members that learn of a higher term follow it; masters take a message."""
        for one in self.members.values():
            for other in self.members.values():
                if self.reach(one.member, other.member) and other.term > one.term:
                    one.follow(other.term)
            one.told = bool(one.ended)
        for one in self.members.values():
            if one.alive and one.is_master:
                self._take(one, now_s)

    def _take(self, master: "SimulatedBroker", now_s: float) -> None:
        if not (master.refuses or master.gate.disk_fault):
            self._sent += 1
            master.log.append(self._sent)
        master.flush(now_s)
        slaves = self.slaves(master)
        for slave in slaves:
            if not slave.gate.disk_fault and self._chance.random() < 0.8:
                slave.generation, slave.log = master.generation, master.log[: master.flushed]
        replicas = [ReplicaState(one.member, len(one.log), connected=True) for one in slaves]
        master.replicas.report(replicas)
        if master.refuses:
            return
        reached = master.replicas.replicated(len(master.log)) if self.sync else master.flushed
        if reached is not None:
            end = min(master.flushed, reached)
            self.acknowledged += master.log[master.confirmed : end]
            master.confirmed = max(master.confirmed, end)
        master.look()


class Impatient(Ability):
    """One for which it is no progress that something was confirmed."""

    def look(self, now_ns: int) -> tuple[int, str]:
        self._confirmed = self._offsets.confirmed
        return super().look(now_ns)


class SimulatedBroker:
    """One member's. `lease`: a master of a cluster that waits for no slave needs one."""

    def __init__(
        self,
        member: str,
        slot: int,
        cluster: Cluster,
        clock: Clock,
        *,
        lease: bool,
        ends: bool,
        judge: type[Ability] = Ability,
    ) -> None:
        """`ends`: it ends its lead when it is told to."""
        self.member = member
        self.term = self.generation = 0
        self.alive = True
        self.told = False
        """Its replication service knows whether its lead ended."""
        self.log: list[int] = []
        self.flushed = self.confirmed = 0
        self.flush_pause_s: Callable[[], float] = lambda: 0.0
        """How long the next flush takes."""
        self.replicas = Replicas(cluster.required, 1 << 40)
        self.lease = Lease(clock, BOOT, required=lease)
        self._states = StateCell(RoleAndHistory(RoleState(Role.SLAVE)))
        self.gate = WriteGate(_CONFIG, self._states, self.lease, lambda: 0)
        self._offsets = LogOffsets(0, 0, 0, 0, 0)
        self._ability = judge(
            self._offsets, self._states, self.gate, self.replicas, lambda: False, lambda: None
        )
        self._clock = clock
        self._slot = slot
        self._ends = ends
        self._said = ""
        self._flush_due_s = 0.0
        self._flushing = 0
        self._cluster = cluster
        cluster.members[member] = self
        if slot == 0:
            self._become(master=True)

    @property
    def is_master(self) -> bool:
        return not self._states.now.is_slave

    @property
    def refuses(self) -> str:
        """Why a master answers nothing, by its agent."""
        return self.gate.lease_fault

    @property
    def ended(self) -> str:
        return self.lease.ended or self._said

    @property
    def answers(self) -> bool:
        if not (self.alive and self.is_master) or self.refuses or self.gate.disk_fault:
            return False
        enough = len(self._cluster.slaves(self)) >= self._cluster.required
        return enough or not self._cluster.sync

    def flush(self, now_s: float) -> None:
        """One that was begun is done when its time is over."""
        if self.gate.stopped_reason == "" and self.hangs:
            self.gate.stalled = "simulated: a flush hangs"
        elif now_s >= self._flush_due_s:
            self.gate.stalled = ""
            pause_s = self.flush_pause_s()
            # One that takes time flushes what is there when it begins.
            self.flushed = min(self._flushing, len(self.log)) if pause_s else len(self.log)
            self._flushing = len(self.log)
            self._flush_due_s = now_s + pause_s
        elif self._flush_due_s - now_s > STALL_S:
            self.gate.stalled = "simulated: a flush is slow"

    hangs = False
    """Its flushes do not end."""

    def mend(self) -> None:
        self.alive, self.hangs = True, False
        self.gate.disk_full, self.gate.stalled = False, ""

    def kill(self) -> None:
        """What was granted, and whether its lead ended, is in memory."""
        self.alive = False
        self.lease.end()
        self._said = ""

    def look(self) -> tuple[int, str]:
        """How long it could acknowledge nothing, in ms, and why."""
        self._offsets.appended, self._offsets.confirmed = len(self.log), self.confirmed
        return self._ability.look(self._clock.monotonic_ns())

    def follow(self, term: int) -> None:
        """One whose flushes hang cannot write that it does."""
        if self.hangs:
            return
        self.term = term
        if self.is_master:
            self._become(master=False)

    def standing(self) -> Own:
        cluster = self._cluster
        others = [one for one in cluster.members.values() if one is not self]
        ms, unable = self.look()
        return Own(
            self.member,
            self.is_master,
            "",
            self.term,
            (self.generation, len(self.log)),
            True,
            False,
            tuple(self._view(one) for one in others),
            frozenset(one.member for one in cluster.slaves(self) if self.is_master),
            frozenset(f"{member}={member}:1" for member in cluster.members),
            self.is_master and not self.refuses,
            unable,
            ms * 1_000_000,
            self.confirmed,
            len(cluster.members) - cluster.required,
            cluster.required if cluster.sync else 0,
            self.ended if self.is_master else "",
            self.told,
        )

    def promote(self, succeeds: str = "") -> int:
        cluster = self._cluster
        reached = [
            one for one in cluster.members.values() if cluster.reach(self.member, one.member)
        ]
        if self.is_master or any(one.is_master and not one.held for one in reached):
            raise NotWritableError("simulated: a master answers", "role")
        counted = [one for one in reached if one.member != succeeds]
        if len(counted) < len(cluster.members) - cluster.required:
            raise NotWritableError("simulated: too few promise", "role")
        if any((one.generation, len(one.log)) > self.reach for one in counted):
            raise NotWritableError("simulated: another has more", "role")
        highest = max(one.term for one in reached)
        term = highest - highest % SLOTS + self._slot
        term += SLOTS if term <= highest else 0
        self._require_all(succeeds)
        for one in reached:
            one.follow(term)
        self.term = self.generation = term
        self.flushed = self.confirmed = len(self.log)
        self._become(master=True)
        cluster.changed()
        return term

    def _require_all(self, succeeds: str) -> None:
        """Nothing is lost that SYNC_MASTERs answered PUT_OK, nor that one confirmed which has ended
        its lead for this one."""
        cluster, lost = self._cluster, 0
        if cluster.sync:
            lost = len(set(cluster.acknowledged).difference(self.log))
        elif succeeds:
            before = cluster.members[succeeds]
            ours = self.log if before.generation == self.generation else []
            lost = before.confirmed - len(ours) if before.ended else 0
        if lost > 0:
            raise Violation("lost", f"{lost} acknowledged messages are not at {self.member}")
        cluster.handed_over += bool(succeeds)

    @property
    def reach(self) -> tuple[int, int]:
        return self.generation, len(self.log)

    @property
    def held(self) -> bool:
        """What its replication service tells others."""
        return bool(self.refuses or self._said)

    def demote(self) -> None:
        cluster = self._cluster
        if not any(one.log == self.log for one in cluster.slaves(self)):
            raise NotWritableError("simulated: no slave has everything", "demote")
        self._become(master=False)

    def grant(self, term: int, until_ns: int) -> None:
        self._require_master(term)
        self.lease.grant(BOOT, until_ns)
        self._said = ""
        self._cluster.changed()

    def end_lead(self, term: int, until_ns: int, reason: str) -> None:
        self._require_master(term)
        if self._ends:
            self.lease.end_lead(BOOT, until_ns, reason)
        else:
            self._said = reason

    def _require_master(self, term: int) -> None:
        if not self.is_master or term != self.term:
            raise NotWritableError("simulated: not a master of this term", "term")

    def _become(self, *, master: bool) -> None:
        role = Role.SLAVE
        if master:
            role = Role.SYNC_MASTER if self._cluster.sync else Role.ASYNC_MASTER
        self._states.begin(RoleAndHistory(RoleState(role)))
        self.lease.end()
        self._said = ""

    def _view(self, other: "SimulatedBroker") -> OtherMember:
        answers = self._cluster.reach(self.member, other.member)
        reach = other.generation, len(other.log)
        return OtherMember(
            other.member, answers, other.is_master, other.term, reach, True, other.held
        )


class Reached:
    """An agent's way to its broker and to the store: a paused agent's calls wait, and so do their
    answers; a killed one's never end."""

    def __init__(self, broker: SimulatedBroker, chance: random.Random) -> None:
        self.running = asyncio.Event()
        self.running.set()
        self.pauses_s: tuple[float, ...] = (0.001, 0.001, 0.5)
        self._broker = broker
        self._chance = chance
        self._later: set[asyncio.Task[None]] = set()

    async def standing(self) -> Own:
        return cast(Own, await self._call(self._broker.standing))

    async def promote(self, succeeds: str) -> int:
        return cast(int, await self._call(lambda: self._broker.promote(succeeds)))

    async def demote(self) -> None:
        await self._call(self._broker.demote)

    async def grant(self, term: int, until_ns: int) -> None:
        if self._chance.random() < 0.05:
            self._do_later(term, until_ns)
        await self._call(lambda: self._broker.grant(term, until_ns))

    async def end_lead(self, term: int, until_ns: int, reason: str) -> None:
        await self._call(lambda: self._broker.end_lead(term, until_ns, reason))

    def _do_later(self, term: int, until_ns: int) -> None:
        """It arrives a second time."""

        async def later() -> None:
            await asyncio.sleep(self._chance.choice(LATE_S))
            if self._broker.alive and self._broker.is_master and term == self._broker.term:
                with contextlib.suppress(NotWritableError):
                    self._broker.grant(term, until_ns)

        task = asyncio.ensure_future(later())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _call(self, work: Callable[[], object]) -> object:
        await self.running.wait()
        await asyncio.sleep(self._chance.choice(self.pauses_s))
        if not self._broker.alive:
            raise UnavailableError("simulated: the broker does not answer")
        done = work()
        await self.running.wait()
        return done
