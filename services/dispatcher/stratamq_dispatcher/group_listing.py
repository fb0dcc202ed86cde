"""What groups have read and have yet to read, in pages: every queue of each topic of which a group
has committed something. A queue without a committed offset counts with all its messages."""

from collections.abc import Sequence
from dataclasses import dataclass

from stratamq.errors import CorruptionError, InvalidRequestError
from stratamq_dispatcher.consume_queue import ConsumeQueue
from stratamq_dispatcher.consumer_offsets import ConsumerOffsets, GroupTopic
from stratamq_dispatcher.offset_bounds import OffsetBounds
from stratamq_dispatcher.queue_table import QueueTable

NOTHING_COMMITTED = -1
_QUEUE_BITS = 24
"""Of a page's place: the queue within a topic of a group."""


@dataclass(frozen=True, slots=True)
class GroupQueue:
    group: str
    topic: str
    queue_id: int
    offset: int
    """NOTHING_COMMITTED: of this queue."""
    end: int
    lag: int


def group_page(
    offsets: ConsumerOffsets,
    bounds: OffsetBounds,
    table: QueueTable,
    minimum_offset: int,
    place: int,
    most: int,
) -> tuple[list[GroupQueue], int]:
    """At most so many queues from a place, and where the next page begins; 0: there is none.

    The queues of a topic come in the table's order, which only grows; then those that have an
    offset and do not exist.
    """
    if most < 1:
        raise InvalidRequestError("a page has at least one entry")

    def entry(key: GroupTopic, queue: ConsumeQueue | None, queue_id: int) -> GroupQueue:
        group, topic = key
        offset = offsets.queues_of(key).get(queue_id, NOTHING_COMMITTED)
        end = 0 if queue is None else queue.end
        if offset == NOTHING_COMMITTED:
            begin = end if queue is None else _minimum(queue, table, minimum_offset)
        else:
            begin = offset = bounds.bounded(group, topic, queue_id, offset)
        return GroupQueue(group, topic, queue_id, offset, end, max(0, end - begin))

    keys: Sequence[GroupTopic] = offsets.keys
    number, skipped = place >> _QUEUE_BITS, place % (1 << _QUEUE_BITS)
    taken: list[GroupQueue] = []
    while number < len(keys) and len(taken) < most:
        key = keys[number]
        there = table.of_topic(key[1])
        some = there[skipped : skipped + most - len(taken)]
        taken += [entry(key, queue, queue.queue_id) for queue in some]
        skipped += len(some)
        if skipped < len(there):
            break
        missing = [one for one in offsets.queues_of(key) if table.get(key[1], one) is None]
        others = missing[skipped - len(there) :][: most - len(taken)]
        taken += [entry(key, None, queue_id) for queue_id in others]
        skipped += len(others)
        if skipped >= len(there) + len(missing):
            number, skipped = number + 1, 0
    return taken, number << _QUEUE_BITS | skipped if number < len(keys) else 0


def _minimum(queue: ConsumeQueue, table: QueueTable, minimum_offset: int) -> int:
    try:
        return queue.minimum(table.open_files, minimum_offset)
    except CorruptionError:
        return queue.first_index  # whoever pulls from it hears of the damage
