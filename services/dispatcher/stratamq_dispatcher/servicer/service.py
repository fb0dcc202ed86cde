"""What of the wire becomes calls of the engine, and back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from typing import Any

from stratamq.api.v1 import common_pb2
from stratamq.api.v1 import dispatcher_pb2 as pb
from stratamq.errors import (
    InvalidRequestError,
)
from stratamq.files.port import Clock
from stratamq.follow.followed_topics import FollowedTopics
from stratamq.formats.queue_units import decode_units
from stratamq.rpc.changes import mark_of
from stratamq.rpc.framing import PULL_RESPONSE, PULL_STREAM_RESPONSE
from stratamq.rpc.mirrors import message_of
from stratamq.rpc.paging import (
    PAGE_ENTRIES,
    nested_place_of,
    nested_position_of,
    place_of,
    position_of,
)
from stratamq.service.entrance import Call
from stratamq_dispatcher.consume_queue import ConsumeQueue, read_units
from stratamq_dispatcher.consumer_offsets import ConsumerOffsets
from stratamq_dispatcher.cursors import Cursor
from stratamq_dispatcher.engine import DispatchEngine
from stratamq_dispatcher.group_lags import LagTimes
from stratamq_dispatcher.group_listing import GroupQueue
from stratamq_dispatcher.group_members import GroupMember
from stratamq_dispatcher.pull import PullAnswer, PullQuery, TagFilter
from stratamq_dispatcher.pulling import Puller
from stratamq_dispatcher.time_search import Boundary
from stratamq_dispatcher.topic_sizes import TopicSizes, TopicTotal
from stratamq_dispatcher.use_cases.committing import CommittedPlace, LastCommit
from stratamq_dispatcher.use_cases.pulling import (
    MAX_WAIT_MS,
    QUEUES_AT_ONCE,
    GroupReader,
    check_not_negative,
    check_topic,
)
from stratamq_dispatcher.use_cases.together import DispatcherUseCases

MAX_UNITS = 65_536
"""The units of one ListUnits answer: about 2 MiB."""


class DispatcherServicer:
    """gRPC's codec in front of the use cases, and what only reads of the queues."""

    def __init__(
        self,
        engine: DispatchEngine,
        puller: Puller,
        offsets: ConsumerOffsets,
        use_cases: DispatcherUseCases,
        topics: FollowedTopics,
        clock: Clock,
        page_entries: int = PAGE_ENTRIES,
    ) -> None:
        self._page_entries = page_entries
        self._engine = engine
        self._puller = puller
        self._pulling = use_cases.pulling
        self._committing = use_cases.committing
        self._offsets = offsets
        self._last_commits = use_cases.last_commits
        self._members = use_cases.members
        self._topics = topics
        self._groups = use_cases.groups
        self._lag_times = LagTimes(puller.store_times, clock)
        self._sizes = TopicSizes(lambda: engine.queues, lambda: engine.followed.minimum, clock)

    # --- messages ---

    async def Pull(self, request: pb.PullRequest, call: Call) -> bytes:
        query = PullQuery(
            request.topic,
            request.queue_id,
            request.offset,
            request.max_messages,
            request.max_bytes,
            _filter(request),
        )
        reader = GroupReader(request.group, request.client_id)
        answer = await self._pulling.pull(call, query, reader, request.wait_ms)
        return PULL_RESPONSE.encode_pieces(
            _head(pb.PullResponse, answer), answer.pieces, answer.size
        )

    async def PullStream(self, request: pb.PullStreamRequest, call: Call) -> AsyncIterator[bytes]:
        stream = self._pulling.stream(
            call,
            map(_cursor, request.queues),
            len(request.queues),
            GroupReader(request.group, request.client_id),
            _filter(request),
            request.max_bytes,
        )
        async with contextlib.aclosing(stream):
            async for number, generation, answer in stream:
                head = _head(pb.PullStreamResponse, answer)
                head.stream_index, head.generation = number, generation
                yield PULL_STREAM_RESPONSE.encode_pieces(head, answer.pieces, answer.size)

    # --- queues ---

    async def ListQueues(self, request: pb.ListQueuesRequest, call: Call) -> Any:
        self._engine.require_serving()
        self._topics.require_learned()
        check_not_negative("applied_offset", request.applied_offset)
        if request.applied_offset:
            await self._puller.reach(request.applied_offset, MAX_WAIT_MS / 1000)
        elif not request.position:
            await self._puller.catch_up()
        infos = []
        queues = self._engine.queues
        incarnation = queues.incarnation
        place = place_of(request.position, incarnation)
        found, following = queues.page(
            request.topic, place, request.max_entries, self._page_entries
        )
        found = [queue for queue in found if not self._topics.is_deleted(queue.topic)]
        await self._puller.learn(found)
        for number, queue in enumerate(found):
            infos.append(self._info(queue))
            if number % QUEUES_AT_ONCE == QUEUES_AT_ONCE - 1:
                await asyncio.sleep(0)
        return pb.ListQueuesResponse(
            queues=infos, next_position=position_of(following, incarnation)
        )

    async def GetOffsetByTime(self, request: pb.GetOffsetByTimeRequest, call: Call) -> Any:
        if request.boundary not in pb.TimeBoundary.values():
            raise InvalidRequestError(f"there is no boundary {request.boundary}")
        boundary = Boundary(request.boundary or pb.TIME_BOUNDARY_LOWER)
        offset = await self._pulling.offset_at(
            request.topic, request.queue_id, request.timestamp_ms, boundary
        )
        return pb.GetOffsetByTimeResponse(offset=offset)

    async def ListUnits(self, request: pb.ListUnitsRequest, call: Call) -> Any:
        engine = self._engine
        engine.require_serving()
        self._topics.require_learned()
        check_topic(request.topic)
        check_not_negative("count", request.count)
        await self._puller.catch_up()
        queue = engine.queues.get(request.topic, request.queue_id)
        if queue is None:
            return pb.ListUnitsResponse()
        open_files = engine.queues.open_files
        response = pb.ListUnitsResponse(
            min_offset=queue.minimum(open_files, engine.followed.minimum), max_offset=queue.end
        )
        index = max(request.offset, queue.first_index)
        stop = min(index + min(request.count, MAX_UNITS), queue.end)
        while index < stop:
            units = decode_units(read_units(queue, open_files, index, stop - index))
            if not len(units):
                break
            for physical_offset, size, tags_code in units.tolist():
                response.units.add(
                    queue_offset=index,
                    physical_offset=physical_offset,
                    size=size,
                    tags_code=tags_code,
                )
                index += 1
        return response

    async def ListTopicSizes(self, request: pb.ListTopicSizesRequest, call: Call) -> Any:
        self._engine.require_serving()
        found = await self._sizes.estimate()
        largest, others = found.top(request.max_topics)
        return pb.ListTopicSizesResponse(
            topics=map(_size_of, largest),
            others=_size_of(others),
            topic_count=found.topics,
            at_ms=found.at_ms,
            sampled_messages=found.sampled,
            file_count=found.files,
            unit_count=found.units,
        )

    # --- groups ---

    async def CommitOffsets(self, request: pb.CommitOffsetsRequest, call: Call) -> Any:
        places = (
            CommittedPlace(one.topic, one.queue_id, one.offset, one.generation)
            for one in request.offsets
        )
        reader = GroupReader(request.group, request.client_id)
        shared = request.shared if request.HasField("shared") else None
        await self._committing.commit(call, reader, places, shared)
        return pb.CommitOffsetsResponse()

    async def DeleteGroup(self, request: pb.DeleteGroupRequest, call: Call) -> Any:
        count = await self._committing.delete(request.group, request.topic)
        return pb.DeleteGroupResponse(queue_count=count)

    async def GetCommittedOffsets(self, request: pb.GetCommittedOffsetsRequest, call: Call) -> Any:
        incarnation = self._offsets.incarnation
        place = nested_place_of(request.position, request.incarnation, incarnation)
        found, following = self._committing.committed(
            request.group, request.topic, place, request.max_entries
        )
        return pb.GetCommittedOffsetsResponse(
            offsets=[
                pb.GroupOffset(topic=topic, queue_id=queue_id, offset=offset)
                for topic, queue_id, offset in found
            ],
            next_position=nested_position_of(following),
            incarnation=incarnation,
        )

    async def ListGroups(self, request: pb.ListGroupsRequest, call: Call) -> Any:
        self._engine.require_serving()
        self._topics.require_learned()
        if not request.position:
            await self._puller.catch_up()
        incarnation = self._offsets.incarnation
        if request.HasField("offset"):
            return await self._readers(request)
        place = nested_place_of(request.position, request.incarnation, incarnation)
        found, following = await self._groups.page(
            self._engine.queues,
            place,
            request.max_entries,
            most=self._page_entries,
            group=request.group,
            topic=request.topic,
            queue_id=request.queue_id if request.HasField("queue_id") else None,
        )
        ages_ms: Sequence[int | None] = [None] * len(found)
        if request.with_lag_ms:
            ages_ms = await self._lag_times.of(found)
        infos = []
        for number, (one, age_ms) in enumerate(zip(found, ages_ms, strict=True)):
            last = self._last_commits.of(one.group, one.topic)
            shared = self._members.is_shared(one.group)
            infos.append(group_info(one, last, age_ms, shared=shared))
            if number % QUEUES_AT_ONCE == QUEUES_AT_ONCE - 1:
                await asyncio.sleep(0)
        return pb.ListGroupsResponse(
            groups=infos,
            next_position=nested_position_of(following),
            incarnation=incarnation,
        )

    async def _readers(self, request: pb.ListGroupsRequest) -> pb.ListGroupsResponse:
        if not (request.topic and request.HasField("queue_id")):
            raise InvalidRequestError("an offset counts within a queue: name topic and queue")
        most = min(request.max_entries or self._page_entries, self._page_entries)
        check_not_negative("max_entries", most)
        place = request.topic, request.queue_id, request.offset
        shared = self._members.is_shared
        found = await self._groups.readers(self._engine.queues, place, most, shared)
        return pb.ListGroupsResponse(
            groups=[
                group_info(
                    one, self._last_commits.of(one.group, one.topic), None, shared=shared(one.group)
                )
                for one in found.groups
            ],
            incarnation=self._offsets.incarnation,
            read_groups=found.read,
            unread_groups=found.unread,
        )

    async def ListGroupMembers(self, request: pb.ListGroupMembersRequest, call: Call) -> Any:
        self._engine.require_serving()
        if not request.group:
            raise InvalidRequestError("the group is empty")
        incarnation = self._offsets.incarnation
        place = place_of(request.position, incarnation)
        found, following = self._members.page(
            request.group, place, request.max_entries, self._page_entries
        )
        return pb.ListGroupMembersResponse(
            members=[group_member(one) for one in found],
            next_position=position_of(following, incarnation),
            unlisted_streams=self._members.unlisted_streams,
        )

    async def ExportConsumerOffsets(
        self, request: pb.ExportConsumerOffsetsRequest, call: Call
    ) -> Any:
        document, mark = self._offsets.export_changes(mark_of(request.mark))
        return pb.ExportConsumerOffsetsResponse(
            consumer_offset_json=document, mark=common_pb2.ChangeMark(**asdict(mark))
        )

    async def ImportConsumerOffsets(
        self, request: pb.ImportConsumerOffsetsRequest, call: Call
    ) -> Any:
        self._offsets.import_document(request.consumer_offset_json)
        return pb.ImportConsumerOffsetsResponse()

    # --- the service itself ---

    async def GetDispatchStatus(self, request: Any, call: Call) -> Any:
        engine = self._engine
        return pb.GetDispatchStatusResponse(
            applied_offset=engine.followed.applied,
            durable_offset=engine.followed.durable,
            log_confirmed_offset=engine.followed.confirmed,
            queue_count=len(engine.queues),
            serving=engine.followed.serving,
            recovery_report=[*engine.recovery_report(), *self._offsets.report],
            stopped_reason=engine.followed.stopped_reason or engine.saver.blocked,
        )

    def _info(self, queue: ConsumeQueue) -> pb.QueueInfo:
        return pb.QueueInfo(
            topic=queue.topic,
            queue_id=queue.queue_id,
            min_offset=self._puller.first_offset(queue),
            max_offset=queue.end,
            newest_store_timestamp_ms=self._engine.newest_store_timestamp_ms(queue) or 0,
        )


def _head(message: Any, answer: PullAnswer) -> Any:
    return message(
        status=answer.status.value,
        next_offset=answer.next_offset,
        min_offset=answer.minimum,
        max_offset=answer.maximum,
        count=answer.count,
    )


def _size_of(topic: TopicTotal) -> pb.TopicSize:
    return pb.TopicSize(
        topic=topic.name,
        size=topic.size,
        message_count=topic.messages,
        queue_count=topic.queues,
    )


def _filter(request: pb.PullRequest | pb.PullStreamRequest) -> TagFilter | None:
    if not request.tags and not request.tags_codes:
        return None
    return TagFilter(request.tags, request.tags_codes)


def _cursor(queue: pb.PullQueue) -> Cursor:
    end = queue.end_offset if queue.HasField("end_offset") else None
    return Cursor(queue.topic, queue.queue_id, queue.offset, end, queue.generation)


def group_info(
    one: GroupQueue, last: LastCommit, lag_ms: int | None, *, shared: bool
) -> pb.GroupInfo:
    """`lag_ms` None: not known, or not asked for."""
    return pb.GroupInfo(
        group=one.group,
        topic=one.topic,
        queue_id=one.queue_id,
        offset=one.offset,
        max_offset=one.end,
        lag=one.lag,
        last_commit_timestamp_ms=last.timestamp_ms,
        last_client=last.client,
        lag_ms=lag_ms,
        shared=shared,
    )


def group_member(one: GroupMember) -> pb.GroupMember:
    topics = [pb.MemberTopic(topic=name, queue_ids=ids) for name, ids in one.topics.items()]
    return message_of(pb.GroupMember, one, topics=topics)
