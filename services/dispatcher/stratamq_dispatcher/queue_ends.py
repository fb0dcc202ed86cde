"""Where queues end, where they ended when the log's generation began, and how far a reader of an
older one has what is there now."""

from stratamq.files.port import Files
from stratamq.follow.fold import FoldPlace
from stratamq.store.generations import history, parted_at
from stratamq_dispatcher.consume_queue import first_at_or_above
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
