"""The next offset of every queue of a log, and what of it changed."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from stratamq.errors import NotFoundError
from stratamq.formats.topics import ANY_QUEUE
from stratamq.rpc.paging import page
from stratamq_commitlog.messages import FrameBatch, FrameRun
from stratamq_commitlog.write.topic_table import TopicTable

QueueKey = tuple[str, int]
"""topic, queue id."""


class QueueOffsets:
    """Queues only come: `names` has them in the order in which they did."""

    def __init__(self, table: dict[QueueKey, int]) -> None:
        """`table` belongs to this object from here on."""
        self.table = table
        self.names: list[QueueKey] = list(table)
        self.changed: dict[QueueKey, int] = {}
        """What changed since `take_changed`."""
        self._discovered = 0

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[QueueKey]:
        return iter(self.names)

    def __contains__(self, key: QueueKey) -> bool:
        return key in self.table

    def take(self, key: QueueKey, count: int) -> int:
        """Offsets for `count` messages: the first of them."""
        first = self.table.get(key)
        if first is None:
            first = 0
            self.names.append(key)
        self.table[key] = self.changed[key] = first + count
        return first

    def set(self, offsets: Mapping[QueueKey, int]) -> None:
        """The next offsets of queues, known or not."""
        table = self.table
        self.names += [key for key in offsets if key not in table]
        table.update(offsets)
        self.changed.update(offsets)

    def page(self, place: int, wanted: int, most: int) -> tuple[list[tuple[str, int, int]], int]:
        """(topic, queue id, next offset) from a place on, and where the next page begins."""
        names, following = page(
            self.names, place, wanted, most=most, size=lambda name: len(name[0])
        )
        return [(*name, self.table[name]) for name in names], following

    def undiscovered(self, most: int | None = None) -> list[QueueKey]:
        """The queues, up to `most`, that no call before has given."""
        stop = None if most is None else self._discovered + most
        found = self.names[self._discovered : stop]
        self._discovered += len(found)
        return found

    def take_changed(self) -> dict[QueueKey, int]:
        """The entries that changed since the last call, as they are now. Of constant cost."""
        changed, self.changed = self.changed, {}
        return changed


class QueueTurns:
    """Which queue takes what names none: those of its topic in turn, whatever way it came.

    The turns of one open log. Single-threaded.
    """

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
            FrameRun(run.topic, self.take(run.topic), run.count)
            if run.queue_id == ANY_QUEUE
            else run
            for run in batch.runs
        ]
        return replace(batch, runs=runs)


def queue_ids(asked: FrameBatch, placed: FrameBatch) -> tuple[int, ...]:
    """What the producer is told about the queues of its runs."""
    return () if placed is asked else tuple(run.queue_id for run in placed.runs)
