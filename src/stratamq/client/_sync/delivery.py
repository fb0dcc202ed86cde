# Generated from _async/delivery.py by scripts/gen_sync_client.py (`make client`).
"""What a producer gives back for a message: the promise of a result."""

from dataclasses import replace

from stratamq.client import forks
from stratamq.client.checking import checked_time
from stratamq.client.deliveries import MessagePlace
from stratamq.client.primitives import Event, Guard
from stratamq.client.shard_routes import of_broker
from stratamq.client.units import BatchRun, SendingUnit
from stratamq.client.values import SendResult
from stratamq.errors import StrataError, UnavailableError


class Waiters:
    """The callers that wait until a unit is settled, under the guard of its producer."""

    def __init__(self, guard: Guard, broker: str = "") -> None:
        """`broker`: the name that results get; "": none."""
        forks.watch(self)
        self.broker = broker
        self._guard = guard
        self._events: dict[SendingUnit, Event] = {}

    def wait(self, unit: SendingUnit, timeout_s: float | None) -> bool:
        """False when the unit is not settled within `timeout_s`."""
        with self._guard:
            if unit.settled:
                return True
            settled = self.event_of(unit)
        return settled.wait(timeout_s)

    def event_of(self, unit: SendingUnit) -> Event:
        """Return the event that is set once the unit is settled, which it is not yet. The caller
        holds the guard."""
        settled = self._events.get(unit)
        if settled is None:
            settled = self._events[unit] = Event()
        return settled

    def wake(self, unit: SendingUnit) -> None:
        """Wake the callers of a settled unit. The caller holds the guard."""
        settled = self._events.pop(unit, None)
        if settled is not None:
            settled.set()


class Delivery(MessagePlace):
    """The delivery of one message, made by `Producer.send`; any thread may wait for it."""

    __slots__ = ("_waiters",)

    def __init__(
        self, waiters: Waiters, unit: SendingUnit, run: BatchRun | None = None, index: int = 0
    ) -> None:
        # Not through super(): there is one of these for every message.
        self._unit = unit
        self._run = run
        self._index = index
        self._waiters = waiters

    def _outcome(self) -> SendResult:
        broker = self._waiters.broker
        if not broker:
            return super()._outcome()
        try:
            return replace(super()._outcome(), broker=broker)
        except StrataError as error:
            raise of_broker(error, broker) from error

    def result(self, timeout_s: float | None = None) -> SendResult:
        """Wait for the answer. Raises the message's error when it was not stored, or
        UnavailableError when it may be stored, or has no answer within `timeout_s`."""
        if timeout_s is not None:
            timeout_s = checked_time("timeout_s", timeout_s)
        unit = self._unit
        if not unit.settled:
            unit.seen = True  # a flush that ends first leaves a failure to this caller
            try:
                settled = self._waiters.wait(unit, timeout_s)
            except BaseException:
                unit.seen = False
                raise
            if not settled:
                unit.seen = False
                raise UnavailableError(
                    f"no answer within {timeout_s} s: perhaps stored", perhaps_stored=True
                )
        return self._outcome()
