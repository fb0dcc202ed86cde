"""What groups have read and have yet to read, in pages: every queue of each topic of which a group
has committed something. A queue without a committed offset counts with all its messages."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from stratamq.errors import InvalidRequestError
from stratamq.formats.numbers import INT32_MAX
from stratamq.rpc.paging import PAGE_ENTRIES, NestedPlace, SortedEntries, nested_page
from stratamq_dispatcher.consume_queue import ConsumeQueue
from stratamq_dispatcher.consumer_offsets import ConsumerOffsets, GroupTopic
from stratamq_dispatcher.offset_bounds import OffsetBounds
from stratamq_dispatcher.queue_table import QueueTable

NOTHING_COMMITTED = -1
GROUPS_AT_ONCE = 1_000
"""Looking at so many takes less than a millisecond."""


@dataclass(frozen=True, slots=True)
class GroupQueue:
    group: str
    topic: str
    queue_id: int
    offset: int
    """NOTHING_COMMITTED: of this queue."""
    end: int
    lag: int

    @property
    def first_unread(self) -> tuple[str, int, int]:
        """Topic, queue number and queue offset; of a queue with a lag."""
        return self.topic, self.queue_id, self.end - self.lag


@dataclass(frozen=True, slots=True)
class Readers:
    """Some of the groups that have not read a message, then of those that have, and how
    many there are of both."""

    groups: list[GroupQueue]
    read: int
    unread: int


class GroupListing:
    """Belongs to the event loop."""

    def __init__(
        self,
        offsets: ConsumerOffsets,
        bounds: OffsetBounds,
        learn_minimums: Callable[[Sequence[ConsumeQueue]], Awaitable[None]],
        minimum: Callable[[ConsumeQueue], int],
    ) -> None:
        """`minimum`: where a queue begins, from memory, once `learn_minimums` has looked for it
        beside the event loop."""
        self._offsets = offsets
        self._bounds = bounds
        self._learn_minimums = learn_minimums
        self._minimum = minimum
        self._sorted: SortedEntries[GroupTopic] = SortedEntries()

    def pages_of(
        self, table: Callable[[], QueueTable]
    ) -> Callable[[NestedPlace, int], Awaitable[tuple[list[GroupQueue], NestedPlace | None]]]:
        """Pages of whatever the table is when each is asked for."""
        return lambda place, most: self.page(table(), place, most=most)

    async def page(
        self,
        table: QueueTable,
        place: NestedPlace,
        wanted: int = 0,
        *,
        most: int = PAGE_ENTRIES,
        group: str = "",
        topic: str = "",
        queue_id: int | None = None,
    ) -> tuple[list[GroupQueue], NestedPlace | None]:
        """At most so many queues from a place, and where the next page begins; None: there is none.
        With `group`, or `topic`, of that one alone, whose places are others; with `queue_id` too
        of this queue of the topic.

        The queues of a topic are those that exist and those that have an offset, by number. What is
        deleted meanwhile is left out. Raises InvalidRequestError.
        """
        if group and topic:
            raise InvalidRequestError("a group's queues are listed, or a topic's: name one of them")
        if queue_id is not None and not (topic and 0 <= queue_id <= INT32_MAX):
            raise InvalidRequestError(f"there is no queue {queue_id} without a topic")
        offsets = self._offsets
        keys = offsets.keys_of(group) if group else offsets.keys
        if topic:
            keys = offsets.keys_of_topic(topic)

        def queue_ids(key: GroupTopic) -> Sequence[int]:
            there = table.of_topic(key[1])
            if queue_id is not None:
                known = queue_id in offsets.queues_of(key) or table.get(topic, queue_id) is not None
                return [queue_id] if known else []
            version = table.incarnation, len(there), offsets.incarnation, offsets.reshaped
            return self._sorted.of(key, version, lambda: _all_ids(there, offsets.queues_of(key)))

        found, following = nested_page(keys, queue_ids, place, wanted, most=most)
        unread = [
            queue
            for key, queue_id in found
            if queue_id not in offsets.queues_of(key)
            and (queue := table.get(key[1], queue_id)) is not None
        ]
        await self._learn_minimums(unread)
        there = [entry for entry in found if offsets.queues_of(entry[0])]
        return [self._described(table, *entry) for entry in there], following

    async def readers(
        self,
        table: QueueTable,
        place: tuple[str, int, int],
        most: int,
        is_shared: Callable[[str], bool],
    ) -> Readers:
        """Who has read the message at (topic, queue number, offset), and who has not. Looks at each
        group of the topic once, some at a time."""
        topic, queue_id, offset = place
        read: list[tuple[bool, int, int]] = []
        unread: list[tuple[bool, int, int]] = []
        keys = self._offsets.keys_of_topic(topic)
        for number in range(len(keys)):
            if number % GROUPS_AT_ONCE == GROUPS_AT_ONCE - 1:
                await asyncio.sleep(0)
            if queues := self._offsets.queues_of(keys[number]):
                upto = queues.get(queue_id, NOTHING_COMMITTED)
                kind = read if upto > offset else unread
                kind.append((not is_shared(keys[number][0]), upto, number))
        shown = [*heapq.nsmallest(most, unread), *heapq.nsmallest(most, read)]
        found = [self._described(table, keys[number], queue_id) for *_, number in shown]
        return Readers(found, len(read), len(unread))

    def _described(self, table: QueueTable, key: GroupTopic, queue_id: int) -> GroupQueue:
        group, topic = key
        queue = table.get(topic, queue_id)
        offset = self._offsets.queues_of(key).get(queue_id, NOTHING_COMMITTED)
        end = 0 if queue is None else queue.end
        if offset == NOTHING_COMMITTED:
            begin = end if queue is None else self._minimum(queue)
        else:
            offset = self._bounds.bounded(group, topic, queue_id, offset)
            # What was purged is not read any more.
            begin = offset if queue is None else max(offset, queue.hidden_below)
        return GroupQueue(group, topic, queue_id, offset, end, max(0, end - begin))


def _all_ids(queues: Iterable[ConsumeQueue], committed: Collection[int]) -> set[int]:
    """None of a topic of which the group's offsets were deleted."""
    return {*(queue.queue_id for queue in queues), *committed} if committed else set()
