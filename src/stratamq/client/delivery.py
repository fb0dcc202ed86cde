"""What a producer gives back for a message: the promise of a result."""

import asyncio
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Generic, TypeVar, overload

from stratamq.client.batching import Batch, Chunk, Run, Single, Unit
from stratamq.client.values import SendResult
from stratamq.errors import UnavailableError


class _Place:
    """A message's place in its unit. As small as can be: there is one for each message."""

    __slots__ = ("_index", "_run", "_unit")

    _unit: Unit
    _run: Run | None
    _index: int

    @property
    def done(self) -> bool:
        return self._unit.settled

    def _outcome(self) -> SendResult:
        unit = self._unit
        unit.seen = True
        if isinstance(unit, Batch):
            assert self._run is not None
            return unit.result_of(self._run, self._index).check()
        assert isinstance(unit, Single) and unit.result is not None
        return unit.result.check()


class Delivery(_Place):
    """Of the synchronous producer. Any thread may ask."""

    __slots__ = ("_changed",)

    def __init__(
        self,
        changed: threading.Condition,
        unit: Unit,
        run: Run | None = None,
        index: int = 0,
    ) -> None:
        # Not through super(): there is one of these for every message.
        self._unit = unit
        self._run = run
        self._index = index
        self._changed = changed

    def result(self, timeout_s: float | None = None) -> SendResult:
        """Wait for the answer. Raises the message's error when it was not stored, or is perhaps
        stored (UnavailableError), or when there is no answer within `timeout_s`."""
        if not self._unit.settled:
            with self._changed:
                if not self._changed.wait_for(lambda: self._unit.settled, timeout_s):
                    raise UnavailableError(
                        f"no answer within {timeout_s} s: perhaps stored", perhaps_stored=True
                    )
        return self._outcome()


class AsyncDelivery(_Place):
    """Of the asyncio producer: `result = await delivery`."""

    __slots__ = ("_waiters",)

    def __init__(
        self,
        waiters: dict[Unit, asyncio.Future[None]],
        unit: Unit,
        run: Run | None = None,
        index: int = 0,
    ) -> None:
        self._unit = unit
        self._run = run
        self._index = index
        self._waiters = waiters

    def __await__(self) -> Generator[object, None, SendResult]:
        """Raises the message's error when it was not stored, or is perhaps stored."""
        if not self._unit.settled:
            waiter = self._waiters.get(self._unit)
            if waiter is None:
                waiter = asyncio.get_running_loop().create_future()
                self._waiters[self._unit] = waiter
            # Shielded: one awaiting task that is cancelled must not cancel the others.
            yield from asyncio.shield(waiter).__await__()
        return self._outcome()


D = TypeVar("D", Delivery, AsyncDelivery)


class Deliveries(Sequence[D], Generic[D]):
    """Of messages that were added together: made when somebody looks."""

    def __init__(self, make: Callable[[Unit, Run, int], D], chunks: Sequence[Chunk]) -> None:
        self._make = make
        self._chunks = chunks
        self._count = sum(chunk[3] for chunk in chunks)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> D: ...
    @overload
    def __getitem__(self, index: slice) -> list[D]: ...
    def __getitem__(self, index: int | slice) -> D | list[D]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._count))]
        number = index + self._count if index < 0 else index
        for batch, run, first, count in self._chunks:
            if 0 <= number < count:
                return self._make(batch, run, first + number)
            number -= count
        raise IndexError(index)
