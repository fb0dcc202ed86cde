"""What pages of topics show, gathered by the public client alone."""

import asyncio
from dataclasses import dataclass

from stratamq.client import AsyncClient, Queue, Topic
from stratamq.client.values import GroupQueue
from stratamq.errors import NotFoundError, StrataError

PAGE_TOPICS = 50
DATED_QUEUES = 16
"""So many queues are asked for their oldest message's time and their last minute's messages."""
SHOWN_QUEUES = 200
SMALL_BYTES = 64 << 10
"""A larger message is not fetched for its time."""
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class ListedTopics:
    """A page of the list, in the order in which the topics became known. `next_position` 0: it is
    the last one."""

    topics: tuple[Topic, ...]
    contains: str
    position: int
    next_position: int


@dataclass(frozen=True, slots=True)
class QueueLine:
    """One queue. `oldest_ms` and `minute`, the messages of the last minute, are None where they
    were not asked for or are not known."""

    queue: Queue
    oldest_ms: int | None = None
    minute: int | None = None

    @property
    def messages(self) -> int:
        return self.queue.max_offset - self.queue.min_offset


@dataclass(frozen=True, slots=True)
class ReadingGroup:
    """A group that has committed an offset of the topic."""

    name: str
    lag: int
    queues: int


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic. `queues`: the first `SHOWN_QUEUES`; `queue_count` and `messages`: of all."""

    topic: Topic
    queues: tuple[QueueLine, ...]
    queue_count: int
    messages: int
    groups: tuple[ReadingGroup, ...]
    groups_problem: str

    @property
    def per_second(self) -> float | None:
        """In the last minute, of the queues that were asked."""
        known = [one.minute for one in self.queues if one.minute is not None]
        return sum(known) / 60 if known or not self.queues else None


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """What goes with a topic."""

    messages: int
    queues: int
    groups: tuple[str, ...]


async def gather_topics(client: AsyncClient, contains: str = "", position: int = 0) -> ListedTopics:
    found = await client.topics_page(position, PAGE_TOPICS, contains)
    while not found.topics and found.next_position:  # the broker looks at some of the names a call
        found = await client.topics_page(found.next_position, PAGE_TOPICS, contains)
    return ListedTopics(found.topics, contains, position, found.next_position)


async def gather_topic(client: AsyncClient, name: str, now_ms: int) -> TopicView:
    """NotFoundError when there is no such topic."""
    found, queues = await asyncio.gather(client.topics(name), client.queues(name))
    if not found:
        raise NotFoundError(f"there is no topic {name}")
    try:
        groups, problem = await client.groups_of_topic(name), ""
    except StrataError as error:
        groups, problem = [], error.message
    dated = await asyncio.gather(*(_dated(client, one, now_ms) for one in queues[:DATED_QUEUES]))
    others = (QueueLine(one) for one in queues[DATED_QUEUES:SHOWN_QUEUES])
    return TopicView(
        found[0],
        (*dated, *others),
        len(queues),
        sum(one.max_offset - one.min_offset for one in queues),
        _group_lines(groups),
        problem,
    )


async def gather_deletion(client: AsyncClient, name: str) -> TopicDeletion:
    """NotFoundError when there is no such topic."""
    view = await gather_topic(client, name, 0)
    return TopicDeletion(view.messages, view.queue_count, tuple(one.name for one in view.groups))


def _group_lines(groups: list[GroupQueue]) -> tuple[ReadingGroup, ...]:
    by_name: dict[str, list[GroupQueue]] = {}
    for one in groups:
        by_name.setdefault(one.group, []).append(one)
    lines = (
        ReadingGroup(name, sum(one.lag for one in some), len(some))
        for name, some in by_name.items()
    )
    return tuple(sorted(lines, key=lambda one: (-one.lag, one.name)))


async def _dated(client: AsyncClient, queue: Queue, now_ms: int) -> QueueLine:
    """A queue whose times cannot be read is shown without them."""
    if queue.min_offset >= queue.max_offset:
        return QueueLine(queue, minute=0)
    try:
        minute = await client.offset_at_time(queue.topic, queue.queue_id, now_ms - MINUTE_MS)
        units = await client.units(queue.topic, queue.queue_id, queue.min_offset, 1)
        oldest_ms = None
        if units and units[0].size <= SMALL_BYTES:
            pulled = await client.pull(
                queue.topic, queue.queue_id, queue.min_offset, max_messages=1
            )
            oldest_ms = next((one.store_timestamp_ms for one in pulled.messages), None)
    except StrataError:
        return QueueLine(queue)
    return QueueLine(queue, oldest_ms, max(0, queue.max_offset - max(minute, queue.min_offset)))
