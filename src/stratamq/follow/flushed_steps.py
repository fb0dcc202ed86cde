"""Which step of a state may be written: the newest one that the log has flushed.

steps applied     ├──────┼──────┼──────┼──────┤ newest
the log flushed   ───────────────────▶
covered           ─────────────▶ may be written
written           ──────▶ is in the files, synced
"""

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AppliedStep(Generic[T]):
    """All messages below `position` are in the state; `value` is what is to be stored about it."""

    position: int
    value: T


class FlushedSteps(Generic[T]):
    def __init__(self, position: int, value: T) -> None:
        """Start with what is in the files."""
        self.covered = self.written = AppliedStep(position, value)
        self._ahead: deque[AppliedStep[T]] = deque()
        """Steps that the log has not flushed."""

    @property
    def newest(self) -> AppliedStep[T]:
        return self._ahead[-1] if self._ahead else self.covered

    @property
    def has_changes(self) -> bool:
        """More may be written than is."""
        return self.covered is not self.written

    def applied(self, position: int, value: T) -> None:
        self._ahead.append(AppliedStep(position, value))

    def flushed(self, offset: int) -> None:
        """The log is on its disk up to `offset`."""
        while self._ahead and self._ahead[0].position <= offset:
            self.covered = self._ahead.popleft()

    def drop_above(self, offset: int) -> None:
        """Forget the steps that the log is yet to flush and that end above `offset`."""
        while self._ahead and self._ahead[-1].position > offset:
            self._ahead.pop()

    def rewind(self, offset: int, value: T) -> None:
        """The state goes on at `offset`: nothing above it is covered or written any more.

        Example: 300 is written, 500 is covered, and the log is cut to 400. The step at 400 is
        covered at once, because the log had flushed beyond it; 300 stays written.
        """
        self.drop_above(offset)
        if self.covered.position > offset:
            self.covered = AppliedStep(offset, value)
        elif self.newest.position < offset:
            self.applied(offset, value)
        if self.written.position > offset:
            self.written = self.covered
