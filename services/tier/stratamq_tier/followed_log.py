"""Where the log is: what it has flushed, what consumers may see, and whose it is.

Driven by `stratamq.follow.driver`. The log's bytes are read elsewhere (`log_reading`), so that a
storage that is away never holds up the log's stream.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from stratamq.follow.protocol import Event, Opened, Report, Wait


@dataclass(frozen=True, slots=True)
class FollowedState:
    """The log at the last event. Offsets are in bytes; `generation` is 0 before the first one."""

    generation: int = 0
    is_slave: bool = True
    segment_bytes: int = 0
    minimum: int = 0
    confirmed: int = 0
    flushed: int = 0

    @property
    def readable(self) -> int:
        """Up to here its messages go into the tier: a log that loses its power keeps them."""
        return min(self.confirmed, self.flushed)


class FollowedLog:
    """Belongs to the event loop. `changed` is called after each change of `state`."""

    name = "tier"

    def __init__(self, changed: Callable[[], None]) -> None:
        self.state = FollowedState()
        self.stopped_reason = ""
        self.read_to = 0
        """Nothing below is read any more."""
        self.committed = 0
        """Everything below that belongs in the tier is there."""
        self.durable = 0
        """What the tier's progress says of that: the log may delete it."""
        self._changed = changed

    def resume_point(self) -> tuple[int, int]:
        return self.state.generation, self.state.confirmed

    def opened(self, opened: Opened) -> None:
        # What this log has lost, and has otherwise now, is not in the tier.
        self.committed = min(self.committed, opened.cut_to)
        self.durable = min(self.durable, opened.cut_to)
        self.read_to = min(self.read_to, opened.cut_to)
        self.state = FollowedState(
            opened.generation,
            opened.is_slave,
            opened.segment_bytes,
            opened.minimum,
            opened.confirmed,
            opened.flushed,
        )
        self._changed()

    def apply(self, event: Event) -> Iterator[Wait | None]:
        before = self.state
        self.state = FollowedState(
            event.generation,
            before.is_slave,
            before.segment_bytes,
            event.minimum,
            event.confirmed,
            event.flushed,
        )
        self._changed()
        return iter(())

    def report(self) -> Report:
        return Report(self.read_to, self.durable, 0, self.read_to)

    def close_at(self, end: int, done: Callable[[], None]) -> None:
        """What is committed is durable in the storage; the rest is read again."""
        done()

    def stopped(self, error: BaseException) -> None:
        self.stopped_reason = str(error)
        self._changed()
