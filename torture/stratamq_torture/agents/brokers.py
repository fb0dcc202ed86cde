"""Brokers of a cluster as their agents see them: roles, terms, promises of the others, and the
log's own lease. What a promotion keeps is `torture brokers`' and `torture protocol`'s."""

import asyncio
import random
from collections.abc import Callable
from typing import cast

from stratamq_agent.decision import Own, Peer
from stratamq_commitlog.write.lease import Lease

from stratamq.errors import NotWritableError, UnavailableError
from stratamq.files.port import Clock
from stratamq.formats.generation_number import SLOTS

BOOT = "simulated"
LOOK_S = 1.0


class Cluster:
    """`required`: k, acknowledgements of slaves. `changed` is called whenever somebody may answer
    who did not before."""

    def __init__(self, required: int) -> None:
        self.members: dict[str, SimulatedBroker] = {}
        self.required = required
        self.cut_off: set[str] = set()
        """Members that reach no other."""
        self.changed: Callable[[], None] = lambda: None

    def reach(self, one: str, other: str) -> bool:
        if one == other:
            return True
        apart = one in self.cut_off or other in self.cut_off
        return not apart and self.members[one].alive and self.members[other].alive

    def answering(self) -> list[str]:
        """Masters that would answer PUT_OK now."""
        return [one.member for one in self.members.values() if one.answers]

    def hear(self) -> None:
        """Members that learn of a higher term follow it."""
        for one in self.members.values():
            for other in self.members.values():
                if self.reach(one.member, other.member) and other.term > one.term:
                    one.follow(other.term)


class SimulatedBroker:
    """One member's, an ASYNC_MASTER's or its slave's."""

    def __init__(
        self, member: str, slot: int, cluster: Cluster, clock: Clock, *, required: bool
    ) -> None:
        self.member = member
        self.term = 0
        self.is_master = slot == 0
        self.alive = True
        self.lease = Lease(clock, BOOT, required=required)
        self._slot = slot
        self._cluster = cluster
        cluster.members[member] = self

    @property
    def answers(self) -> bool:
        return self.alive and self.is_master and not self.lease.fault

    def follow(self, term: int) -> None:
        self.term = term
        if self.is_master:
            self.is_master = False
            self.lease.end()

    def standing(self) -> Own:
        others = [one for one in self._cluster.members.values() if one is not self]
        slaves = [
            one.member
            for one in others
            if self.is_master and not one.is_master and self._cluster.reach(self.member, one.member)
        ]
        return Own(
            self.member,
            self.is_master,
            "",
            self.term,
            (0, 100),
            True,
            False,
            tuple(self._view(one) for one in others),
            frozenset(slaves),
            frozenset(f"{member}={member}:1" for member in self._cluster.members),
            self.is_master and not self.lease.fault,
        )

    def promote(self) -> int:
        cluster = self._cluster
        reached = [
            one for one in cluster.members.values() if cluster.reach(self.member, one.member)
        ]
        if self.is_master or any(one.answers for one in reached):
            raise NotWritableError("simulated: a master answers", "role")
        if len(reached) < len(cluster.members) - cluster.required:
            raise NotWritableError("simulated: too few promise", "role")
        highest = max(one.term for one in reached)
        term = highest - highest % SLOTS + self._slot
        term += SLOTS if term <= highest else 0
        for one in reached:
            one.follow(term)
        self.is_master = True
        self.lease.end()
        cluster.changed()
        return term

    def demote(self) -> None:
        cluster = self._cluster
        others = [one for one in cluster.members.values() if one is not self]
        if not any(cluster.reach(self.member, one.member) for one in others):
            raise NotWritableError("simulated: no slave has everything", "demote")
        self.is_master = False
        self.lease.end()

    def grant(self, term: int, until_ns: int) -> None:
        if not self.is_master or term != self.term:
            raise NotWritableError("simulated: not a master of this term", "term")
        self.lease.grant(BOOT, until_ns)
        self._cluster.changed()

    def _view(self, other: "SimulatedBroker") -> Peer:
        answers = self._cluster.reach(self.member, other.member)
        held = bool(other.lease.fault)
        return Peer(other.member, answers, other.is_master, other.term, (0, 100), True, held)


class Reached:
    """An agent's way to its broker and to the store: a paused agent's calls wait, and so do their
    answers; a killed one's never end."""

    def __init__(self, broker: SimulatedBroker, chance: random.Random) -> None:
        self.running = asyncio.Event()
        self.running.set()
        self._broker = broker
        self._chance = chance

    async def standing(self) -> Own:
        return cast(Own, await self._call(self._broker.standing))

    async def promote(self) -> int:
        return cast(int, await self._call(self._broker.promote))

    async def demote(self) -> None:
        await self._call(self._broker.demote)

    async def grant(self, term: int, until_ns: int) -> None:
        await self._call(lambda: self._broker.grant(term, until_ns))

    async def _call(self, work: Callable[[], object]) -> object:
        await self.running.wait()
        await asyncio.sleep(self._chance.choice((0.001, 0.001, 0.5)))
        if not self._broker.alive:
            raise UnavailableError("simulated: the broker does not answer")
        done = work()
        await self.running.wait()
        return done
