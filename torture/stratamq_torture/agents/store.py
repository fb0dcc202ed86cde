"""An election store whose answers are lost, late or doubled."""

import asyncio
import random
from dataclasses import dataclass

from stratamq.election.store import ABSENT, Snapshot
from stratamq.errors import UnavailableError
from stratamq.formats.election_state import ElectionState

LATE_S = (0.5, 5.0, 40.0)


@dataclass(frozen=True, slots=True)
class Odds:
    """The odds of one call. `late`: it takes effect long after its caller has given up; `doubled`:
    it arrives a second time, later."""

    fail: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    doubled: float = 0.0
    slow: float = 0.0


class SimulatedStore:
    """One for all agents of a trial."""

    def __init__(self, chance: random.Random, odds: Odds, timeout_s: float) -> None:
        self.state: ElectionState | None = None
        self.revision = 0
        self.away = False
        self.incarnation = 0
        """Another one after each copy that was put back: calls of an older one are lost."""
        self.changed_leader = 0
        self.odds = odds
        self._chance = chance
        self._timeout_s = timeout_s
        self._later: set[asyncio.Task[None]] = set()
        self._written: list[tuple[float, ElectionState, int]] = []
        """When each value was written."""

    async def read(self) -> Snapshot:
        incarnation = self.incarnation
        await self._travel()
        found = Snapshot(self.state, str(self.revision) if self.revision else ABSENT)
        await self._travel()
        self._reached(incarnation)
        return found

    async def swap(self, state: ElectionState, revision: str) -> str | None:
        incarnation = self.incarnation
        await self._travel()
        self._reached(incarnation)
        chance, odds = self._chance, self.odds
        if chance.random() < odds.late:
            self._do_later(state, revision)
            await asyncio.sleep(self._timeout_s)
            raise UnavailableError("simulated: late")
        done = self._swap(state, revision)
        if chance.random() < odds.doubled:
            self._do_later(state, revision)
        if chance.random() < odds.lost:
            await asyncio.sleep(self._timeout_s)
            raise UnavailableError("simulated: the answer is lost")
        await self._travel()
        return done

    def _reached(self, incarnation: int) -> None:
        if incarnation != self.incarnation:
            raise UnavailableError("simulated: the connection ended with the store")

    def put_back(self, age_s: float) -> bool:
        """To a copy of what it had at least `age_s` ago: a new server with the old revisions,
        and none of the calls that were on their way to it. False: there is no such copy."""
        before = asyncio.get_running_loop().time() - age_s
        copies = [number for number, one in enumerate(self._written) if one[0] < before]
        leader = self.state.leader if self.state is not None else ""
        others = [number for number in copies if self._written[number][1].leader != leader]
        if not copies:
            return False
        number = self._chance.choice(others or copies)
        _, self.state, self.revision = self._written[number]
        del self._written[number + 1 :]
        self._restarted()
        return True

    def empty(self) -> None:
        self.state, self.revision = None, 0
        self._written.clear()
        self._restarted()

    def _restarted(self) -> None:
        for task in self._later:
            task.cancel()
        self.incarnation += 1

    async def close(self) -> None:
        for task in self._later:
            task.cancel()

    def _swap(self, state: ElectionState, revision: str) -> str | None:
        if (str(self.revision) if self.revision else ABSENT) != revision:
            return None
        before = self.state.leader if self.state is not None else ""
        self.changed_leader += state.leader != before
        self.state, self.revision = state, self.revision + 1
        self._written.append((asyncio.get_running_loop().time(), state, self.revision))
        return str(self.revision)

    def _do_later(self, state: ElectionState, revision: str) -> None:
        async def later() -> None:
            await asyncio.sleep(self._chance.choice(LATE_S))
            self._swap(state, revision)

        task = asyncio.ensure_future(later())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _travel(self) -> None:
        """Half of a call's way."""
        slow = self._chance.random() < self.odds.slow
        await asyncio.sleep(self._chance.uniform(0.1, self._timeout_s / 2) if slow else 0.002)
        if self.away or self._chance.random() < self.odds.fail:
            await asyncio.sleep(self._chance.choice((0.0, self._timeout_s / 2)))
            raise UnavailableError("simulated: the store does not answer")
