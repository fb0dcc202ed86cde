"""Where the log's queues end that no message of it shows: its table of next queue offsets.

After a topic's messages were all deleted, the log still knows where its queues go on. The table
comes in pages, each taken when the log's end was at some offset; a page counts once all below that
offset is applied. A queue that has units and ends earlier then has lost the units behind them: its
files were put back to an older copy.
"""

from collections import deque

from stratamq.formats.next_offset import NextOffset
from stratamq_dispatcher.consume_queue import ConsumeQueue
from stratamq_dispatcher.queue_table import QueueTable


class LogEnds:
    """Used on the engine's thread."""

    def __init__(self, queues: QueueTable) -> None:
        self._queues = queues
        self._pages: deque[tuple[int, list[NextOffset]]] = deque()
        self.more = False
        """Pages are still to come."""

    def clear(self, *, more: bool) -> None:
        self._pages.clear()
        self.more = more

    def add(self, appended: int, table: list[NextOffset], more: bool) -> None:
        """Add a page, taken when the log's end was `appended`."""
        queues, self.more = self._queues, more
        news = [one for one in table if queues.next_index(one[0], one[1]) < one[2]]
        if news:
            self._pages.append((appended, news))

    def early(self, applied: int) -> list[tuple[ConsumeQueue, int]]:
        """The queues of the page that is due which have lost their last units, each with the queue
        offset at which the log goes on."""
        if not self.is_due(applied):
            return []
        found = ((self._queues.get(one[0], one[1]), one[2]) for one in self._pages[0][1])
        return [
            (queue, next_index)
            for queue, next_index in found
            if queue is not None and queue.has_messages and queue.end < next_index
        ]

    def is_due(self, applied: int) -> bool:
        return bool(self._pages) and applied >= self._pages[0][0]

    def take_page(self, applied: int, minimum: int) -> None:
        """Begin the queues of one page that is due: this many are work of less than 2 ms."""
        if self.is_due(applied):
            for topic, queue_id, next_index in self._pages.popleft()[1]:
                self._queues.begin_empty(topic, queue_id, next_index, minimum)

    def __len__(self) -> int:
        return len(self._pages)
