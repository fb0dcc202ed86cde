"""Where the log's queues end that no message of it shows: its table of next queue offsets.

After a topic's messages were all deleted, the log still knows where its queues go on. The table
comes in pages, each taken when the log's end was at some offset; a page counts once all below that
offset is applied.
"""

from collections import deque

from stratamq.formats.next_offset import NextOffset
from stratamq_dispatcher.queue_table import QueueTable


class LogEnds:
    """Of the engine's thread."""

    def __init__(self, queues: QueueTable) -> None:
        self._queues = queues
        self._pages: deque[tuple[int, list[NextOffset]]] = deque()

    def clear(self) -> None:
        self._pages.clear()

    def add(self, appended: int, table: list[NextOffset]) -> None:
        """A page, taken when the log's end was `appended`."""
        queues = self._queues
        news = [one for one in table if queues.next_index(one[0], one[1]) < one[2]]
        if news:
            self._pages.append((appended, news))

    def is_due(self, applied: int) -> bool:
        return bool(self._pages) and applied >= self._pages[0][0]

    def take_page(self, applied: int, minimum: int) -> None:
        """Begin the queues of one page that is due: this many are work of less than 2 ms."""
        if self.is_due(applied):
            for topic, queue_id, next_index in self._pages.popleft()[1]:
                self._queues.begin_empty(topic, queue_id, next_index, minimum)

    def __len__(self) -> int:
        return len(self._pages)
