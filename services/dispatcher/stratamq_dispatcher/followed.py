"""Where the engine is in the log, and up to where it must come before it serves."""

from dataclasses import dataclass

from stratamq.follow.protocol import Event, Opened
from stratamq_dispatcher.passes import Pass


@dataclass(slots=True)
class Followed:
    """Of the engine's thread. The engine changes it, and the saver ends a pass. Offsets in bytes of
    the log."""

    generation: int = 0
    applied: int = 0
    """The units of all messages below are in the queues."""
    confirmed: int = 0
    flushed: int = 0
    minimum: int = 0
    """The log holds no message below."""
    segment_bytes: int = 0
    is_slave: bool = False
    opened: bool = False
    """The log has answered since the start."""
    serving: bool = False
    """The queues are where consumers may have seen them."""
    target: int = -1
    """Where the queues must be to serve; -1 until the log has answered."""
    kind: Pass | None = None
    """The pass that is not over yet."""
    number: int = 0
    """Of the newest pass."""

    def begin(self, kind: Pass, target: int) -> None:
        self.kind, self.target = kind, target
        self.number += 1

    def end_pass(self) -> None:
        """The queues are where the pass was to bring them, and the files with them."""
        self.kind = None

    def learn(self, news: Opened | Event) -> None:
        """How far the log is."""
        self.confirmed, self.flushed = news.confirmed, news.flushed

    @property
    def at_target(self) -> bool:
        return 0 <= self.target <= self.applied
