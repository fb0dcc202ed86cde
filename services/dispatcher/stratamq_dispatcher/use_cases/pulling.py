"""Pulls of consumers: one, perhaps held until there is a message, or a stream of many queues.

A consumer that names its group and itself is listed as a member of the group.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import NamedTuple

from stratamq.errors import InvalidRequestError
from stratamq.follow.followed_topics import FollowedTopics
from stratamq.formats.numbers import INT64_MAX, INT64_MIN
from stratamq.formats.topics import MAX_V2_TOPIC_BYTES
from stratamq.service.entrance import Call
from stratamq_dispatcher.cursors import Cursor
from stratamq_dispatcher.group_members import GroupMembers
from stratamq_dispatcher.metrics import PULLED_BYTES, PULLED_MESSAGES, PULLS
from stratamq_dispatcher.pull import PullAnswer, PullQuery, TagFilter
from stratamq_dispatcher.pulling import Puller
from stratamq_dispatcher.tier_fetches import answer_bytes
from stratamq_dispatcher.time_search import Boundary

MAX_WAIT_MS = 30_000
MAX_STREAM_QUEUES = 10_000
DEADLINE_TOLERANCE_S = 0.5
"""A stream that is cancelled so shortly before its deadline has ended by it: client and service
count from different moments."""
QUEUES_AT_ONCE = 128
"""So many queues are described before others get their turn."""


class GroupReader(NamedTuple):
    """Who reads, as it names itself; with either name empty it is not listed."""

    group: str = ""
    client_id: str = ""

    @property
    def is_named(self) -> bool:
        return bool(self.group and self.client_id)


NOT_NAMED = GroupReader()


class StreamPiece(NamedTuple):
    """A piece of a stream."""

    number: int
    """The number of its queue, in the order in which the stream names them."""
    generation: int
    answer: PullAnswer


class Pulling:
    """Belongs to the event loop. Answers hold views of the log's bytes: encode them before anything
    else runs."""

    def __init__(self, puller: Puller, topics: FollowedTopics, members: GroupMembers) -> None:
        self._puller = puller
        self._topics = topics
        self._members = members

    async def pull(
        self, call: Call, query: PullQuery, reader: GroupReader = NOT_NAMED, wait_ms: int = 0
    ) -> PullAnswer:
        """Wait so long for a first message."""
        check_topic(query.topic)
        check_not_negative("max_messages", query.max_messages)
        check_not_negative("max_bytes", query.max_bytes)
        check_not_negative("wait_ms", wait_ms)
        if wait_ms > MAX_WAIT_MS:
            raise InvalidRequestError(f"wait_ms is at most {MAX_WAIT_MS}, not {wait_ms}")
        self._topics.require_readable(query.topic)
        if reader.is_named:
            self._members.pulled(*reader, call.caller.address, query.topic, query.queue_id)
        return _counted(await self._puller.waiting(query, wait_ms))

    async def stream(
        self,
        call: Call,
        queues: Iterable[Cursor],
        count: int,
        reader: GroupReader = NOT_NAMED,
        tag_filter: TagFilter | None = None,
        max_bytes: int = 0,
    ) -> AsyncGenerator[StreamPiece, None]:
        """Read `count` queues from their cursors on, a piece of each in turn, until all have
        ended. Close it with its call: it watches its queues until then."""
        if not count:
            raise InvalidRequestError("no queues")
        if count > MAX_STREAM_QUEUES:
            raise InvalidRequestError(f"more than {MAX_STREAM_QUEUES} queues in one stream")
        check_not_negative("max_bytes", max_bytes)
        cursors = []
        read: dict[str, set[int]] = {}
        for number, cursor in enumerate(queues):
            check_topic(cursor.topic)
            self._topics.require_readable(cursor.topic)
            cursors.append(cursor)
            read.setdefault(cursor.topic, set()).add(cursor.queue_id)
            if number % QUEUES_AT_ONCE == QUEUES_AT_ONCE - 1:
                await asyncio.sleep(0)
        pieces = self._puller.stream(
            cursors, tag_filter, max_bytes, answer_bytes(len(cursors), max_bytes), call.spares
        )
        with self._membership(reader, call, read):
            async with contextlib.aclosing(pieces):
                async for number, answer in pieces:
                    yield StreamPiece(number, cursors[number].generation, _counted(answer))

    @contextlib.contextmanager
    def _membership(
        self, reader: GroupReader, call: Call, queues: dict[str, set[int]]
    ) -> Iterator[None]:
        """The client is listed as a member of its group while the stream is open."""
        if not reader.is_named:
            yield
            return
        now = asyncio.get_running_loop().time
        stream = self._members.stream(*reader, call.caller.address, queues)
        at_deadline = False
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            at_deadline = now() > call.deadline - DEADLINE_TOLERANCE_S
            raise
        finally:
            stream.end(at_deadline=at_deadline)

    async def offset_at(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """The offset of a queue at a time."""
        check_topic(topic)
        self._topics.require_learned()
        await self._puller.catch_up()
        # One less than the greatest: the upper bound is looked for one millisecond further.
        timestamp_ms = min(max(timestamp_ms, INT64_MIN + 1), INT64_MAX - 1)
        return await self._puller.offset_at(topic, queue_id, timestamp_ms, boundary)


def _counted(answer: PullAnswer) -> PullAnswer:
    PULLS.labels(answer.status.name).inc()
    PULLED_MESSAGES.inc(answer.count)
    PULLED_BYTES.inc(answer.size)
    return answer


def check_topic(topic: str) -> None:
    if not topic:
        raise InvalidRequestError("the topic is empty")
    if len(topic) > MAX_V2_TOPIC_BYTES:
        raise InvalidRequestError(f"no topic has a name of more than {MAX_V2_TOPIC_BYTES} bytes")


def check_not_negative(name: str, value: int) -> None:
    if value < 0:
        raise InvalidRequestError(f"{name} is negative: {value}")
