"""The range of one queue that a reader still has to read."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Range:
    """`end` None: everything, including messages that are stored later."""

    topic: str
    queue_id: int
    offset: int
    """Behind the message that was given last."""
    end: int | None
    begun: bool = field(default=False, compare=False)
    """Something was given, or passed over."""
    taken: int | None = field(default=None, compare=False)
    """Behind the last message that counts as taken."""
    given: int = field(default=0, compare=False)
    """Behind the last message that was given; 0: none was."""
    log_end: int = field(default=0, compare=False)
    """How far consumers could see the log when `end` was learnt; 0: not known."""
    paused: bool = field(default=False, compare=False)
    generation: int = field(default=0, compare=False)
    """The log's generation at the last answer; 0: not known. If the log loses messages that this
    reader was given, the reader goes on with those that took their place."""

    @property
    def ended(self) -> bool:
        return self.end is not None and self.offset >= self.end
