"""What pulling consumers do: PullMessage, UpdateOffset, GetOffset, QueryOffset, which RocketMQ's
proxy does not serve. `spec/gateway.md` 3.13.

A pulling consumer reads the queues of a broker one by one, and keeps its own place in each: its
offsets are those that consumers of the classic protocol commit.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client import AsyncClient, Pulled
from stratamq.client.received import ReceivedMessage
from stratamq.formats.message_status import PullStatus
from stratamq_gateway.messaging.filtering import TagsOrSql, filter_of
from stratamq_gateway.messaging.messages import group_name, milliseconds, to_deliver, topic_name
from stratamq_gateway.messaging.receiving import ANSWER_S, MAX_BATCH, MAX_POLL_S, seconds
from stratamq_gateway.messaging.sessions import ClientSession
from stratamq_gateway.messaging.statuses import RefusedError, status
from stratamq_gateway.messaging.topics import existing


class QueueOfGroup(NamedTuple):
    topic: str
    queue_id: int
    group: str = ""
    offset: int = 0

    @property
    def offsets(self) -> tuple["QueueOfGroup"]:
        return (self,)


class WantedPull(NamedTuple):
    topic: str
    queue_id: int
    group: str
    offset: int
    most: int
    filter: TagsOrSql


class OfBroker:
    """A method about queues of the gateway's own broker."""

    def __init__(self, broker: str) -> None:
        self._broker = broker

    def queue(self, given: pb.MessageQueue) -> tuple[str, int]:
        """Its topic and id. RefusedError."""
        topic = topic_name(given.topic)
        if given.broker.name not in ("", self._broker):
            raise RefusedError(
                pb.BAD_REQUEST,
                f"the queues of {given.broker.name:.80} are not here: this is {self._broker}",
            )
        if given.id < 0:
            raise RefusedError(pb.BAD_REQUEST, f"no queue: {given.id}; name one of the route")
        return topic, given.id


async def require_queue(client: AsyncClient, topic: str, queue_id: int) -> None:
    """RefusedError."""
    found = await existing(client, topic)
    queues = max(found.read_queue_count, found.write_queue_count)
    if queue_id >= queues:
        raise RefusedError(
            pb.BAD_REQUEST, f"topic {topic} has the queues 0 to {queues - 1}, and not {queue_id}"
        )


class PullMessage(OfBroker):
    """Answers with a status, messages, and where the next pull begins."""

    use_case = "Pull"

    def asked(self, request: pb.PullMessageRequest) -> WantedPull:
        topic, queue_id = self.queue(request.message_queue)
        return WantedPull(
            topic,
            queue_id,
            group_name(request.group),
            request.offset,
            max(1, min(request.batch_size or MAX_BATCH, MAX_BATCH)),
            filter_of(request.filter_expression),
        )

    async def answers(
        self,
        session: ClientSession,
        request: pb.PullMessageRequest,
        asked: WantedPull,
        left_s: float | None,
    ) -> AsyncIterator[pb.PullMessageResponse]:
        """`left_s`: of the call's time."""
        wait_s = max(0.0, min(seconds(request.long_polling_timeout), MAX_POLL_S))
        if left_s is not None:
            wait_s = min(wait_s, max(0.0, left_s - ANSWER_S))
        pulled, messages, offset = await self._pull(session, asked, wait_s)
        if not pulled.min_offset <= offset <= pulled.max_offset:
            problem = status(
                pb.ILLEGAL_OFFSET,
                f"queue {asked.queue_id} of {asked.topic} has the offsets {pulled.min_offset} to "
                f"{pulled.max_offset}, and not {offset}",
            )
        elif messages:
            problem = status(pb.OK)
        else:
            problem = status(pb.MESSAGE_NOT_FOUND, "no new message")
        yield pb.PullMessageResponse(status=problem)
        for one in messages:
            message = to_deliver(one, request.message_queue.topic, attempt=one.reconsume_times + 1)
            yield pb.PullMessageResponse(message=message)
        yield pb.PullMessageResponse(next_offset=pulled.next_offset)

    def refused(self, problem: pb.Status) -> Iterator[pb.PullMessageResponse]:
        yield pb.PullMessageResponse(status=problem)

    async def _pull(
        self, session: ClientSession, asked: WantedPull, wait_s: float
    ) -> tuple[Pulled, list[ReceivedMessage], int]:
        """Go on behind what the filter leaves out, until a message comes or the time is over. An
        offset that the queue has not ends it at once. The third part is where the last pull was
        made: messages in front of it may have been deleted since."""
        loop = asyncio.get_running_loop()
        ends, wait_ms, offset = loop.time() + wait_s, 0, asked.offset
        while True:
            pulled = await session.client.pull(
                asked.topic,
                asked.queue_id,
                offset,
                max_messages=asked.most,
                tags=asked.filter.tags,
                wait_ms=wait_ms,
                group=asked.group,
                client_id=session.client_id,
            )
            if pulled.status is PullStatus.NO_MESSAGE_IN_QUEUE and not wait_ms:
                await require_queue(session.client, asked.topic, asked.queue_id)
            found = [one for one in pulled.messages if asked.filter.selects(one)]
            there = pulled.min_offset <= offset <= pulled.max_offset
            wait_ms = int((ends - loop.time()) * 1_000)
            if found or not there or wait_ms <= 0:
                return pulled, found, offset
            offset = pulled.next_offset


class UpdateOffset(OfBroker):
    use_case = "CommitOffsets"
    response = pb.UpdateOffsetResponse

    def asked(self, request: pb.UpdateOffsetRequest) -> QueueOfGroup:
        if request.offset < 0:
            raise RefusedError(pb.ILLEGAL_OFFSET, f"no offset: {request.offset}")
        place = self.queue(request.message_queue)
        return QueueOfGroup(*place, group_name(request.group), request.offset)

    async def answer(
        self, session: ClientSession, request: pb.UpdateOffsetRequest, asked: QueueOfGroup
    ) -> pb.UpdateOffsetResponse:
        # The dispatcher keeps 0 for whatever name.
        await require_queue(session.client, asked.topic, asked.queue_id)
        place = (asked.topic, asked.queue_id)
        await session.client.commit_offsets(asked.group, {place: asked.offset})
        return pb.UpdateOffsetResponse(status=status(pb.OK))


class GetOffset(OfBroker):
    use_case = "GetCommittedOffsets"
    response = pb.GetOffsetResponse

    def asked(self, request: pb.GetOffsetRequest) -> QueueOfGroup:
        return QueueOfGroup(*self.queue(request.message_queue), group_name(request.group))

    async def answer(
        self, session: ClientSession, request: pb.GetOffsetRequest, asked: QueueOfGroup
    ) -> pb.GetOffsetResponse:
        offsets = await session.client.committed_offsets(asked.group, asked.topic)
        offset = offsets.get((asked.topic, asked.queue_id))
        if offset is None:
            raise RefusedError(
                pb.OFFSET_NOT_FOUND,
                f"group {asked.group} has no offset in queue {asked.queue_id} of {asked.topic}",
            )
        return pb.GetOffsetResponse(status=status(pb.OK), offset=offset)


class QueryOffset(OfBroker):
    use_case = "GetOffsetByTime"
    response = pb.QueryOffsetResponse

    def asked(self, request: pb.QueryOffsetRequest) -> QueueOfGroup:
        if request.query_offset_policy not in pb.QueryOffsetPolicy.values():
            raise RefusedError(pb.BAD_REQUEST, f"no policy: {request.query_offset_policy}")
        if request.query_offset_policy == pb.TIMESTAMP and not request.HasField("timestamp"):
            raise RefusedError(pb.BAD_REQUEST, "the time is missing")
        return QueueOfGroup(*self.queue(request.message_queue))

    async def answer(
        self, session: ClientSession, request: pb.QueryOffsetRequest, asked: QueueOfGroup
    ) -> pb.QueryOffsetResponse:
        client, place = session.client, (asked.topic, asked.queue_id)
        await require_queue(client, *place)
        if request.query_offset_policy == pb.TIMESTAMP:
            offset = await client.offset_at_time(*place, milliseconds(request.timestamp))
        else:
            ends = {
                one.queue_id: (one.min_offset, one.max_offset)
                for one in await client.queues(asked.topic)
            }
            first, end = ends.get(asked.queue_id, (0, 0))
            offset = end if request.query_offset_policy == pb.END else first
        return pb.QueryOffsetResponse(status=status(pb.OK), offset=offset)
