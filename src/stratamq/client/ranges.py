"""What a reader has still to read of one queue."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Range:
    """What is still to be read of one queue. `end` None: everything, as it comes."""

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
    """Of the log at the last answer; 0: not known. A log that was replaced meanwhile, by one that
    lacks what was given, continues with what took its place."""

    @property
    def ended(self) -> bool:
        return self.end is not None and self.offset >= self.end
