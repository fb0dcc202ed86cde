"""A storage as the network and its servers make it: calls fail, answers are lost, processes die.

    backend = SimulatedBackend(seed=7, positions=False, odds=Odds(lost=0.1))
    storage = backend.storage()          # one process; another call is another one
    backend.crash_at(backend.calls + 3, When.INSIDE)
    ...                                  # the third call raises SimulatedCrash
    storage = backend.storage()          # the next process finds what was done

Over `MemoryStorage`, a function of the seed and the calls. Not thread-safe. Calls of a `Together`
are done in any order.

    FAIL      not done, StorageUnavailableError
    BUSY      not done, BusyError
    LOST      done, StorageUnavailableError
    LATE      a create, swap or delete is done after some further calls; StorageUnavailableError
    PARTIAL   any part of a write at a position is done, StorageUnavailableError
    SLOW      done after a pause
    STALE     a listing lacks an object made of late, or still has a deleted one
"""

import enum
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from stratamq.errors import BusyError, StrataError
from stratamq.files.simulated_faults import SimulatedCrash
from stratamq.tier.driver.calls import (
    Create,
    Delete,
    List,
    Listed,
    StorageCall,
    StorageUnavailableError,
    Swap,
    Together,
    WriteAt,
)
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.storage import attempt, joined

T = TypeVar("T")

_REMEMBERED = 8
"""Changes of late that a stale listing may not have seen."""
_LATEST = 6
"""Calls after which a late one is done, at most."""
_LONGEST_PAUSE_MS = 60_000


class StorageFault(enum.Enum):
    """What becomes of one call."""

    FAIL = "fail"
    BUSY = "busy"
    LOST = "lost"
    LATE = "late"
    PARTIAL = "partial"
    SLOW = "slow"
    STALE = "stale"


class When(enum.Enum):
    """Where in a call its process dies. Inside, a whole object is there or not, and of a write at a
    position any part."""

    BEFORE = "before"
    INSIDE = "inside"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Odds:
    """The chance of each fault, for each call that it can befall."""

    fail: float = 0.0
    busy: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    partial: float = 0.0
    slow: float = 0.0
    stale: float = 0.0


class SimulatedBackend:
    """`memory` is what is really there; `trace` the calls of all processes, in order."""

    def __init__(
        self,
        seed: int,
        *,
        positions: bool,
        odds: Odds | None = None,
        pause_ms: Callable[[int], None] = lambda milliseconds: None,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self.memory = MemoryStorage(positions, now_ms)
        self.odds = odds or Odds()
        self.trace: list[StorageCall[Any]] = []
        self._random = random.Random(seed)
        self._pause_ms = pause_ms
        self._planned: dict[int, StorageFault | When] = {}
        self._late: list[tuple[int, StorageCall[Any]]] = []
        self._made: deque[str] = deque(maxlen=_REMEMBERED)
        self._gone: deque[Listed] = deque(maxlen=_REMEMBERED)

    @property
    def calls(self) -> int:
        """Calls of all processes so far."""
        return len(self.trace)

    def storage(self) -> "SimulatedStorage":
        """A new process."""
        return SimulatedStorage(self)

    def fault_at(self, call: int, fault: StorageFault) -> None:
        """Plan the fault of the call that makes `calls` equal to `call`, if it can befall it."""
        self._planned[call] = fault

    def crash_at(self, call: int, when: When) -> None:
        """Let the process die that makes `calls` equal to `call`."""
        self._planned[call] = when

    def order_of(self, calls: int) -> list[int]:
        """The order in which so many calls that are made together are done."""
        return self._random.sample(range(calls), calls)

    def settle(self) -> None:
        """No further faults; what is late is done now."""
        self.odds = Odds()
        self._planned.clear()
        for _, call in self._late:
            self._perform_unanswered(call)
        self._late.clear()

    def perform(self, call: StorageCall[T]) -> T:
        """One call of some process; SimulatedCrash ends it."""
        self.trace.append(call)
        self._do_late()
        planned = self._planned.pop(self.calls, None)
        if isinstance(planned, When):
            raise self._die(call, planned)
        fault = planned if planned is not None and _befalls(planned, call) else self._draw(call)
        match fault:
            case None:
                return self._do(call)
            case StorageFault.SLOW:
                self._pause_ms(self._random.randint(1, _LONGEST_PAUSE_MS))
                return self._do(call)
            case StorageFault.STALE:
                return cast(T, self._stale(cast(List, call)))
            case StorageFault.BUSY:
                raise BusyError("the simulated storage is busy", self._random.randint(1, 1000))
            case StorageFault.LOST:
                self._perform_unanswered(call)
            case StorageFault.LATE:
                self._late.append((self.calls + self._random.randint(1, _LATEST), call))
            case StorageFault.PARTIAL:
                self._tear(cast(WriteAt, call))
        raise StorageUnavailableError(f"simulated: {fault.value}")

    def _draw(self, call: StorageCall[Any]) -> StorageFault | None:
        chances = [(fault, getattr(self.odds, fault.value)) for fault in StorageFault]
        drawn = self._random.random()
        for fault, chance in chances:
            if not chance or not _befalls(fault, call):
                continue
            if drawn < chance:
                return fault
            drawn -= chance
        return None

    def _die(self, call: StorageCall[Any], when: When) -> SimulatedCrash:
        if when is When.AFTER:
            self._perform_unanswered(call)
        elif when is When.INSIDE:
            if isinstance(call, WriteAt):
                self._tear(call)
            elif self._random.random() < 0.5:
                self._perform_unanswered(call)
        return SimulatedCrash(f"{when.value} call {self.calls}: {call!r}")

    def _do(self, call: StorageCall[T]) -> T:
        before = self._entry(call.path) if isinstance(call, Delete) else None
        result = self.memory.perform(call)
        if isinstance(call, Create | Swap | WriteAt):
            self._made.append(call.path)
        elif before is not None:
            self._gone.append(before)
        return result

    def _perform_unanswered(self, call: StorageCall[Any]) -> None:
        """Its refusal is as little heard as its result."""
        try:
            self._do(call)
        except StrataError:
            return

    def _do_late(self) -> None:
        due = [call for number, call in self._late if number <= self.calls]
        self._late = [(number, call) for number, call in self._late if number > self.calls]
        for call in due:
            self._perform_unanswered(call)

    def _tear(self, call: WriteAt) -> None:
        """Any prefix, and sometimes a part of it that never reached the disk."""
        data = bytearray(call.data[: self._random.randint(0, len(call.data))])
        if data and self._random.random() < 0.25:
            there = self.memory.objects.get(call.path, b"")[call.position :]
            first, end = sorted(self._random.randint(0, len(data)) for _ in range(2))
            data[first:end] = (there[first:end] + bytes(end - first))[: end - first]
        self._perform_unanswered(replace(call, data=bytes(data)))

    def _stale(self, call: List) -> list[Listed]:
        missing = self._random.choice([*self._made, None])
        left = self._random.choice([*self._gone, None])
        more = List(call.folder, call.after, call.limit + 1)
        found = [listed for listed in self.memory.perform(more) if listed.path != missing]
        prefix = f"{call.folder}/" if call.folder else ""
        if (
            left is not None
            and left.path.startswith(prefix)
            and left.path > call.after
            and all(listed.path != left.path for listed in found)
        ):
            found.append(left)
        return sorted(found, key=lambda listed: listed.path)[: call.limit]

    def _entry(self, path: str) -> Listed | None:
        content = self.memory.objects.get(path)
        return None if content is None else Listed(path, len(content), 0)


class SimulatedStorage:
    """`Storage` of one process. After its crash every call raises SimulatedCrash."""

    def __init__(self, backend: SimulatedBackend) -> None:
        self.backend = backend
        self.dead = False

    @property
    def positions(self) -> bool:
        return self.backend.memory.positions

    def perform(self, call: StorageCall[T]) -> T:
        if isinstance(call, Together):
            return cast(T, self._together(call))
        if self.dead:
            raise SimulatedCrash("this process is dead")
        try:
            return self.backend.perform(call)
        except SimulatedCrash:
            self.dead = True
            raise

    def close(self) -> None:
        """The backend stays."""

    def _together(self, together: Together[Any]) -> list[Any]:
        """In any order, as threads do them: a crash may find any of them done."""
        outcomes = {
            number: attempt(self, together.calls[number])
            for number in self.backend.order_of(len(together.calls))
        }
        outcome = joined([outcomes[number] for number in range(len(outcomes))])
        if outcome.error is not None:
            raise outcome.error
        return cast(list[Any], outcome.value)


def _befalls(fault: StorageFault, call: StorageCall[Any]) -> bool:
    match fault:
        case StorageFault.LATE:
            return isinstance(call, Create | Swap | Delete)
        case StorageFault.PARTIAL:
            return isinstance(call, WriteAt)
        case StorageFault.STALE:
            return isinstance(call, List)
    return True
