"""Where queues end, where they ended when the log's generation began, and how far a reader of an
older one has what is there now. `LogEnds`: where the log says that queues end."""

from collections import deque

from stratamq.files.port import Files
from stratamq.follow.fold import FoldPlace
from stratamq.formats.numbers import NextOffset
from stratamq.store.generations import history, parted_at
from stratamq_dispatcher.consume_queue import ConsumeQueue, first_at_or_above
from stratamq_dispatcher.queue_table import QueueTable


class QueueEnds:
    """Used on the engine's thread."""

    def __init__(self, queues: QueueTable, followed: FoldPlace, files: Files) -> None:
        self.held_to = 0
        """The log offset at which the generation before ended, or, for a process that begins in the
        log's generation, at which that began to serve."""
        self._queues = queues
        self._followed = followed
        self._files = files
        self._listed: tuple[int, list[tuple[int, int]]] = (0, [])
        """The log's generation, and the list that ends in it."""

    @property
    def is_slave(self) -> bool:
        return self._followed.is_slave

    @property
    def begun(self) -> int:
        """The generation that a master's log is in, once the queues hold all that is before it;
        0 before, and on a slave."""
        followed = self._followed
        return 0 if followed.is_slave or not followed.serving else followed.generation

    def end(self, topic: str, queue_id: int) -> int:
        return self._queues.next_index(topic, queue_id)

    def end_at_begin(self, topic: str, queue_id: int) -> int:
        """Where the queue ended at `held_to`. Raises CorruptionError."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or queue.end_offset <= self.held_to:
            return 0 if queue is None else queue.end
        files, begin = self._queues.open_files, queue.first_index
        return first_at_or_above(queue, files, self.held_to, begin, queue.end)

    def agreed(self, topic: str, queue_id: int, offset: int, generation: int) -> int:
        """Where a reader goes on that came to `offset` while the log was in `generation`; 0: not
        known. Raises CorruptionError.

        Example of what it would skip, an ASYNC_MASTER that shipped up to queue offset 100:
        1. A consumer reads it up to 120. The master dies, a slave is promoted.
        2. The queue grows there from 100 to 130, before the consumer is back and asks for 120.
        """
        generations = self._generations()
        parted = parted_at(generations, generation) if generation else None
        queue = self._queues.get(topic, queue_id)
        if parted is None or queue is None or queue.end_offset <= parted:
            return offset
        begin, end = queue.first_index, min(offset, queue.end)
        return first_at_or_above(queue, self._queues.open_files, parted, begin, end)

    def _generations(self) -> list[tuple[int, int]]:
        now = self._followed.generation
        if self._listed[0] != now:
            self._listed = now, history(self._files)
        return self._listed[1]


class LogEnds:
    """The log's table of next queue offsets: where queues end that no message of the log shows.
    Used on the engine's thread.

    After a topic's messages were all deleted, the log still knows where its queues continue. The
    table comes in pages, each taken when the log's end was at some offset; a page counts once
    everything below that offset is applied. A queue that has units and ends earlier then has lost
    the units behind them: its files were put back to an older copy.
    """

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
