"""The follower's half of Follow, as a machine that waits for nothing and touches nothing.

What the log sends goes in, what the follower must do comes out:

    Opened  → Cut       drop everything from `cut_to` on, sync, record the generation
    Event   → Apply     read the frames of one range (in one segment) and apply them
            → Progress  nothing new; the log's offsets moved
    Closing → Close     everything up to `end` has been sent: make it durable and report

Whatever contradicts the order of the log raises FollowError: the follower stops, it never skips.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import StrataError, UnavailableError

Run = tuple[str, int, int, int]
"""topic, queue id, first queue offset, count."""
Queue = tuple[str, int]
"""topic, queue id."""
Wait = Callable[[Callable[[], None]], None]
"""What an engine that cannot take more waits for: hand it what to call when that may have come."""


class ReadAgainError(UnavailableError):
    """Raised by an engine that wants the log again from its `resume_point`, which went back: the
    connection is opened again."""


class FollowError(StrataError):
    """The log's answer contradicts an earlier one. The connection must be opened again."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The log's answer to a follower that connects. Offsets in bytes from the start of the log."""

    generation: int
    generation_start: int
    cut_to: int
    minimum: int
    confirmed: int
    flushed: int
    segment_bytes: int
    is_slave: bool = False
    """The log takes its messages from a master. A change of that ends the stream."""

    @property
    def reached(self) -> int:
        """Consumers may have seen all below. A log that has just started may have confirmed less
        than what it confirmed in its last generation."""
        return max(self.confirmed, self.generation_start)


@dataclass(frozen=True, slots=True)
class Event:
    """A range on frame boundaries within one segment; `lengths` None: scan it.

    `lengths` covers frames and a blank at the end, `runs` the frames only.
    """

    generation: int
    start: int
    end: int
    confirmed: int
    flushed: int
    minimum: int
    lengths: NDArray[np.uint32] | None = None
    runs: list[Run] | None = None


@dataclass(frozen=True, slots=True)
class Closing:
    end: int


@dataclass(frozen=True, slots=True)
class Report:
    """What the follower reports to the log: at first, and each second in which it has changed.

    `durable_store_timestamp_ms` is the store time of the newest message of which everything this
    follower builds is on disk; `released`: it has finished reading below.
    """

    applied: int
    durable: int
    durable_store_timestamp_ms: int
    released: int
    unhurried: bool = False
    """No caller waits for what is made of the log: the rest may come later, together."""
    by_queue: bool = False
    """What is in no queue that callers wait for may come later. These are the queues of all `began`
    of the connection, without those of `ended`."""
    began: tuple[Queue, ...] = ()
    ended: tuple[Queue, ...] = ()
    leaving: bool = False
    """The follower's service stops: what it has deferred is written, and nothing more comes."""


@dataclass(frozen=True, slots=True)
class Cut:
    opened: Opened


@dataclass(frozen=True, slots=True)
class Apply:
    event: Event


@dataclass(frozen=True, slots=True)
class Progress:
    event: Event


@dataclass(frozen=True, slots=True)
class Close:
    end: int


class Follower:
    """One connection's view; every connection needs a new one. `replicable`: its events go on to
    what slaves may get, beyond what is confirmed."""

    def __init__(self, *, replicable: bool = False) -> None:
        self._replicable = replicable
        self._generation: int | None = None
        self._expected = 0
        self._segment_bytes = 0
        self._closed = False

    def receive(self, message: Opened | Event | Closing) -> Cut | Apply | Progress | Close:
        if self._closed:
            raise FollowError("the log went on after it had closed")
        if isinstance(message, Opened):
            return self._opened(message)
        if self._generation is None:
            raise FollowError("the log spoke before it answered the opening")
        if isinstance(message, Closing):
            if message.end != self._expected:
                raise FollowError(f"the log closes at {message.end}, sent up to {self._expected}")
            self._closed = True
            return Close(message.end)
        return self._event(message)

    def _opened(self, opened: Opened) -> Cut:
        if self._generation is not None:
            raise FollowError("the log answered the opening twice")
        if opened.cut_to < 0 or opened.segment_bytes <= 0:
            raise FollowError(f"the log's answer makes no sense: {opened}")
        self._generation = opened.generation
        self._expected = opened.cut_to
        self._segment_bytes = opened.segment_bytes
        return Cut(opened)

    def _event(self, event: Event) -> Apply | Progress:
        if event.generation != self._generation:
            raise FollowError("the generation changed within one stream")
        if event.start != self._expected:
            raise FollowError(f"an event starts at {event.start}, expected {self._expected}")
        if event.end < event.start or (event.end > event.confirmed and not self._replicable):
            raise FollowError(f"an event ends at {event.end}, outside what is confirmed")
        if event.end == event.start:
            return Progress(event)
        last = event.end - 1
        if event.start // self._segment_bytes != last // self._segment_bytes:
            raise FollowError(f"an event crosses a segment: {event.start} to {event.end}")
        if event.lengths is not None and int(event.lengths.sum(dtype=np.int64)) != (
            event.end - event.start
        ):
            raise FollowError("an event's lengths do not add up to its range")
        self._expected = event.end
        return Apply(event)
