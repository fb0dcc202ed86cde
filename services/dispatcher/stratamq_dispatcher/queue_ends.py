"""Where queues end, and where they ended when the log's generation began."""

from stratamq_dispatcher.consume_queue import first_at_or_above
from stratamq_dispatcher.followed import Followed
from stratamq_dispatcher.queue_table import QueueTable


class QueueEnds:
    """Of the engine's thread."""

    def __init__(self, queues: QueueTable, followed: Followed) -> None:
        self.held_to = 0
        """The log offset at which the generation before ended, or, for a process that begins in the
        log's generation, at which that began to serve."""
        self._queues = queues
        self._followed = followed

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
