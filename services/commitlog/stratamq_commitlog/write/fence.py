"""Whether what a service of the broker has decided may still be stored.

A service decides what it appends from the log that it has followed, as that log was in one
generation. What it sends may arrive late: the broker may have been demoted meanwhile, or promoted
again, and another start of the service may have decided the same. A check before sending cannot see
that. Each batch of a service therefore names its fence, and the appender looks at it when it gives
the batch its place: nothing comes between that look and the bytes.

    open ──► a batch of the stream was refused        a batch relies on those before it
         ──► the writer has opened another stream     that one decides from now on
         ──► the log is in another generation         it was demoted or started again
                └──► ended: everything that follows on the stream is refused, nothing of it stored
"""

from dataclasses import dataclass

from stratamq.errors import NotWritableError
from stratamq_commitlog.log_state import StateCell


@dataclass(slots=True)
class Fence:
    """One append stream of a service of the broker."""

    states: StateCell
    generation: int
    """In which the service has decided."""
    ended: str = ""
    """Why the stream takes nothing more; "": it does."""

    def end(self, reason: str) -> None:
        """Take nothing more."""
        self.ended = self.ended or reason

    def obstacle(self) -> NotWritableError | None:
        """Why nothing of the stream is stored; None: it is."""
        state = self.states.now
        if not self.ended and (state.is_slave or state.generation != self.generation):
            self.end(
                f"decided in generation {self.generation}, and the log is in {state.generation} as "
                f"{state.role.name}: follow the log again, and decide again"
            )
        return NotWritableError(self.ended, "fenced") if self.ended else None
