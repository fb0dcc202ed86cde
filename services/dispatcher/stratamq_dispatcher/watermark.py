"""How far the queues' files may be called durable: the end of a step that the log has flushed.

steps applied   ├──────┼──────┼──────┼──────┤
the log flushed ───────────────────▶
covered         ─────────────▶ the watermark that may be stored next
written         ──────▶ what is in the files, synced
"""

from collections import deque


class Watermark:
    """Offsets are the log's; a step's end comes with the store time of the last message there."""

    def __init__(self) -> None:
        self.covered = (0, 0)
        """Offset and store time of the last step that the log has flushed."""
        self.written_to = 0
        """Units of messages below this offset are in the files."""
        self._newest_ms = 0
        self._steps: deque[tuple[int, int]] = deque()
        """Ends of applied steps beyond what is covered."""

    def load(self, offset: int, store_timestamp_ms: int) -> None:
        """Begin with what a start found."""
        self.covered, self.written_to = (offset, store_timestamp_ms), offset
        self._newest_ms = store_timestamp_ms

    def applied(self, offset: int, store_timestamp_ms: int | None) -> None:
        """A step ended; None: it had no message."""
        if store_timestamp_ms is not None:
            self._newest_ms = store_timestamp_ms
        self._steps.append((offset, self._newest_ms))

    def flushed(self, offset: int) -> None:
        """The log is on its disk up to here."""
        while self._steps and self._steps[0][0] <= offset:
            self.covered = self._steps.popleft()

    @property
    def is_ahead(self) -> bool:
        """More is covered than written."""
        return self.covered[0] > self.written_to

    def rewind(self, cut_to: int, *, vacuous: bool) -> None:
        """Set all offsets to `cut_to`; `vacuous` when there is nothing of ours below it."""
        while self._steps and self._steps[-1][0] > cut_to:
            self._steps.pop()
        if vacuous or self.covered[0] > cut_to:
            self._steps.clear()
            self.covered = (cut_to, 0)
        reached = self._steps[-1] if self._steps else self.covered
        if reached[0] < cut_to:
            # The store time at the cut is not known; the one before it is a safe answer.
            self._steps.append((cut_to, reached[1]))
        self.written_to = min(self.written_to, cut_to)
