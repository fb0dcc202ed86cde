"""Which queue takes what names none: those of its topic in turn, whatever way it came."""

from stratamq.errors import NotFoundError
from stratamq_commitlog.messages import ANY_QUEUE, FrameBatch, Run
from stratamq_commitlog.write.topic_table import TopicTable


class QueueTurns:
    """The turns of one open log. Single-threaded."""

    def __init__(self, topics: TopicTable) -> None:
        self._topics = topics
        self._turns: dict[str, int] = {}

    def take(self, topic: str) -> int:
        """The topic's next queue; 0 of one that was deleted meanwhile."""
        try:
            queues = self._topics.get(topic).write_queues
        except NotFoundError:
            queues = 1
        turn = self._turns.get(topic, -1) + 1
        self._turns[topic] = turn = turn if turn < queues else 0
        return turn

    def placed(self, batch: FrameBatch) -> FrameBatch:
        """The batch, each run in a queue."""
        if all(run.queue_id != ANY_QUEUE for run in batch.runs):
            return batch
        runs = [
            Run(run.topic, self.take(run.topic), run.count) if run.queue_id == ANY_QUEUE else run
            for run in batch.runs
        ]
        return FrameBatch(runs, batch.lengths, batch.frames, batch.numbers)


def queue_ids(asked: FrameBatch, placed: FrameBatch) -> tuple[int, ...]:
    """What the producer is told about the queues of its runs."""
    return () if placed is asked else tuple(run.queue_id for run in placed.runs)
