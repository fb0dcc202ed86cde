"""What a producer gives back for a message: the promise of a result."""

import asyncio
import threading
from collections.abc import Generator

from stratamq.client.batching import Batch, Run, Single, Unit
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
