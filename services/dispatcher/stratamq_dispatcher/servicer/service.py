"""What of the wire becomes calls of the engine, and back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import grpc

from stratamq.api.v1 import dispatcher_pb2 as pb
from stratamq.api.v1 import dispatcher_pb2_grpc
from stratamq.errors import (
    InvalidRequestError,
    NotFoundError,
    NotWritableError,
    OffsetOutOfRangeError,
    StrataError,
    UnavailableError,
)
from stratamq.files.port import Clock
from stratamq.follow.followed_topics import FollowedTopics
from stratamq.formats.numbers import INT64_MAX, INT64_MIN
from stratamq.formats.queue_units import decode_units
from stratamq.formats.topics import MAX_V2_TOPIC_BYTES
from stratamq.rpc.changes import mark_message, mark_of
from stratamq.rpc.framing import PULL_RESPONSE, PULL_STREAM_RESPONSE, identity
from stratamq.rpc.paging import (
    PAGE_ENTRIES,
    nested_place_of,
    nested_position_of,
    place_of,
    position_of,
)
from stratamq.service.entrance import Call
from stratamq_dispatcher.consume_queue import ConsumeQueue, read_units
from stratamq_dispatcher.consumer_offsets import ConsumerOffsets, GroupOffset
from stratamq_dispatcher.cursors import Cursor
from stratamq_dispatcher.engine import DispatchEngine
from stratamq_dispatcher.group_listing import GroupListing
from stratamq_dispatcher.group_members import GroupMembers
from stratamq_dispatcher.lag_times import LagTimes
from stratamq_dispatcher.last_commits import LastCommits
from stratamq_dispatcher.metrics import PULLED_BYTES, PULLED_MESSAGES, PULLS
from stratamq_dispatcher.offset_bounds import OffsetBounds
from stratamq_dispatcher.pull import PullAnswer, PullQuery, TagFilter
from stratamq_dispatcher.pulling import Puller
from stratamq_dispatcher.servicer.groups import group_info, group_member
from stratamq_dispatcher.tier_fetches import answer_bytes
from stratamq_dispatcher.time_search import Boundary

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["DispatcherService"].full_name
MAX_WAIT_MS = 30_000
MAX_UNITS = 65_536
"""Of one ListUnits answer: about 2 MiB."""
MAX_STREAM_QUEUES = 10_000
STREAM_BYTES = 262_144
DEADLINE_TOLERANCE_S = 0.5
"""A stream that is cancelled so shortly before its deadline has ended by it: client and service
count from different moments."""
QUEUES_AT_ONCE = 128
"""So many queues are described before others get their turn."""


class DispatcherServicer(dispatcher_pb2_grpc.DispatcherServiceServicer):
    """`Pull` and `PullStream` go through `generic_handler`."""

    def __init__(
        self,
        engine: DispatchEngine,
        puller: Puller,
        offsets: ConsumerOffsets,
        bounds: OffsetBounds,
        last_commits: LastCommits,
        members: GroupMembers,
        topics: FollowedTopics,
        why_not_writable: Callable[[], Awaitable[tuple[str, str] | None]],
        clock: Clock,
        page_entries: int = PAGE_ENTRIES,
    ) -> None:
        """`why_not_writable` asks the log for its sentence, "" if it takes messages, and for its
        master's address, "" if it is not known; None: it does not answer."""
        self._page_entries = page_entries
        self._engine = engine
        self._puller = puller
        self._offsets = offsets
        self._bounds = bounds
        self._last_commits = last_commits
        self._members = members
        self._topics = topics
        self._groups = GroupListing(offsets, bounds, puller.learn_minimums, puller.first_offset)
        self._lag_times = LagTimes(puller.store_times, clock)
        self._why_not_writable = why_not_writable

    def generic_handler(self) -> grpc.GenericRpcHandler:
        """The methods whose large fields are framed by hand."""
        return grpc.method_handlers_generic_handler(
            SERVICE_NAME,
            {
                "Pull": grpc.unary_unary_rpc_method_handler(
                    self.pull, pb.PullRequest.FromString, identity
                ),
                "PullStream": grpc.unary_stream_rpc_method_handler(
                    self.pull_stream, pb.PullStreamRequest.FromString, identity
                ),
            },
        )

    # --- messages ---

    async def pull(self, request: pb.PullRequest, call: Call) -> bytes:
        _check_topic(request.topic)
        for name in ("max_messages", "max_bytes", "wait_ms"):
            _check_not_negative(name, getattr(request, name))
        if request.wait_ms > MAX_WAIT_MS:
            raise InvalidRequestError(f"wait_ms is at most {MAX_WAIT_MS}, not {request.wait_ms}")
        self._topics.require_readable(request.topic)
        if request.group and request.client_id:
            reader = request.group, request.client_id, call.caller.address
            self._members.pulled(*reader, request.topic, request.queue_id)
        query = PullQuery(
            request.topic,
            request.queue_id,
            request.offset,
            request.max_messages,
            request.max_bytes,
            _filter(request),
        )
        answer = await self._puller.waiting(query, request.wait_ms)
        return PULL_RESPONSE.encode_pieces(
            _head(pb.PullResponse, answer), answer.pieces, answer.size
        )

    async def pull_stream(self, request: pb.PullStreamRequest, call: Call) -> AsyncIterator[bytes]:
        if not request.queues:
            raise InvalidRequestError("no queues")
        if len(request.queues) > MAX_STREAM_QUEUES:
            raise InvalidRequestError(f"more than {MAX_STREAM_QUEUES} queues in one stream")
        _check_not_negative("max_bytes", request.max_bytes)
        cursors = []
        read: dict[str, set[int]] = {}
        for number, queue in enumerate(request.queues):
            _check_topic(queue.topic)
            self._topics.require_readable(queue.topic)
            end = queue.end_offset if queue.HasField("end_offset") else None
            cursors.append(Cursor(queue.topic, queue.queue_id, queue.offset, end, queue.generation))
            read.setdefault(queue.topic, set()).add(queue.queue_id)
            if number % QUEUES_AT_ONCE == QUEUES_AT_ONCE - 1:
                await asyncio.sleep(0)
        stream = self._puller.stream(
            cursors,
            _filter(request),
            request.max_bytes or STREAM_BYTES,
            answer_bytes(len(cursors), request.max_bytes),
        )
        # Closed with this call and not some time later: it watches its queues until then.
        with self._membership(request, call, read):
            async with contextlib.aclosing(stream):
                async for index, answer in stream:
                    head = _head(pb.PullStreamResponse, answer)
                    head.stream_index, head.generation = index, cursors[index].generation
                    yield PULL_STREAM_RESPONSE.encode_pieces(head, answer.pieces, answer.size)

    @contextlib.contextmanager
    def _membership(
        self, request: pb.PullStreamRequest, call: Call, queues: dict[str, set[int]]
    ) -> Iterator[None]:
        """The client is listed as a member of its group while the stream is open."""
        if not (request.group and request.client_id):
            yield
            return
        now = asyncio.get_running_loop().time
        address = call.caller.address
        stream = self._members.stream(request.group, request.client_id, address, queues)
        at_deadline = False
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            at_deadline = now() > call.deadline - DEADLINE_TOLERANCE_S
            raise
        finally:
            stream.end(at_deadline=at_deadline)

    # --- queues ---

    async def ListQueues(self, request: pb.ListQueuesRequest, call: Call) -> Any:
        self._engine.require_serving()
        self._topics.require_learned()
        _check_not_negative("applied_offset", request.applied_offset)
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
        _check_topic(request.topic)
        self._topics.require_learned()
        if request.boundary not in pb.TimeBoundary.values():
            raise InvalidRequestError(f"there is no boundary {request.boundary}")
        await self._puller.catch_up()
        # One less than the greatest: the upper bound is looked for one millisecond further.
        timestamp_ms = min(max(request.timestamp_ms, INT64_MIN + 1), INT64_MAX - 1)
        offset = await self._puller.offset_at(
            request.topic,
            request.queue_id,
            timestamp_ms,
            Boundary(request.boundary or pb.TIME_BOUNDARY_LOWER),
        )
        return pb.GetOffsetByTimeResponse(offset=offset)

    async def ListUnits(self, request: pb.ListUnitsRequest, call: Call) -> Any:
        engine = self._engine
        engine.require_serving()
        self._topics.require_learned()
        _check_topic(request.topic)
        _check_not_negative("count", request.count)
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

    # --- groups ---

    async def CommitOffsets(self, request: pb.CommitOffsetsRequest, call: Call) -> Any:
        self._engine.require_serving()
        agreed = self._engine.ends.agreed
        offsets = [
            (one.topic, one.queue_id, agreed(one.topic, one.queue_id, one.offset, one.generation))
            for one in request.offsets
        ]
        for topic in {topic for topic, _, _ in offsets}:
            if self._topics.is_deleted(topic):
                raise NotFoundError(f"there is no topic {topic}: it was deleted; nothing is kept")
        try:
            await self._commit(request.group, offsets)
        except NotWritableError as error:
            raise await self._explained(error) from error
        topics = {topic for topic, _, _ in offsets}
        self._last_commits.note(request.group, topics, call.caller.address)
        if request.client_id:
            self._members.committed(request.group, request.client_id)
        return pb.CommitOffsetsResponse()

    async def _commit(self, group: str, offsets: list[GroupOffset]) -> None:
        try:
            self._bounds.commit(group, offsets)
        except OffsetOutOfRangeError:
            await self._puller.catch_up()
            self._bounds.commit(group, offsets)

    async def DeleteGroup(self, request: pb.DeleteGroupRequest, call: Call) -> Any:
        self._engine.require_serving()
        try:
            self._bounds.require_master()
        except NotWritableError as error:
            raise await self._explained(error) from error
        self._last_commits.forget(request.group, request.topic)
        count = self._offsets.delete(request.group, request.topic)
        return pb.DeleteGroupResponse(queue_count=count)

    async def _explained(self, error: NotWritableError) -> StrataError:
        """The error with where to turn."""
        found = await self._why_not_writable()
        if found is None:
            return error
        why, master = found
        if not why:
            return UnavailableError("the broker has just become a master: try again")
        return NotWritableError(f"{error.message}; {why}", error.reason, master)

    async def GetCommittedOffsets(self, request: pb.GetCommittedOffsetsRequest, call: Call) -> Any:
        self._engine.require_serving()
        offsets, bounded = self._offsets, self._bounds.bounded
        place = nested_place_of(request.position, request.incarnation, offsets.incarnation)
        found, following = offsets.committed(
            request.group, request.topic, place, request.max_entries
        )
        return pb.GetCommittedOffsetsResponse(
            offsets=[
                pb.GroupOffset(
                    topic=topic, queue_id=queue_id, offset=bounded(group, topic, queue_id, offset)
                )
                for group, topic, queue_id, offset in found
            ],
            next_position=nested_position_of(following),
            incarnation=offsets.incarnation,
        )

    async def ListGroups(self, request: pb.ListGroupsRequest, call: Call) -> Any:
        self._engine.require_serving()
        self._topics.require_learned()
        if not request.position:
            await self._puller.catch_up()
        incarnation = self._offsets.incarnation
        place = nested_place_of(request.position, request.incarnation, incarnation)
        found, following = await self._groups.page(
            self._engine.queues,
            place,
            request.max_entries,
            most=self._page_entries,
            group=request.group,
        )
        ages_ms: Sequence[int | None] = [None] * len(found)
        if request.with_lag_ms:
            ages_ms = await self._lag_times.of(found)
        infos = []
        for number, (one, age_ms) in enumerate(zip(found, ages_ms, strict=True)):
            last = self._last_commits.of(one.group, one.topic)
            infos.append(group_info(one, last, age_ms))
            if number % QUEUES_AT_ONCE == QUEUES_AT_ONCE - 1:
                await asyncio.sleep(0)
        return pb.ListGroupsResponse(
            groups=infos,
            next_position=nested_position_of(following),
            incarnation=incarnation,
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
            consumer_offset_json=document, mark=mark_message(mark)
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
    PULLS.labels(answer.status.name).inc()
    PULLED_MESSAGES.inc(answer.count)
    PULLED_BYTES.inc(answer.size)
    return message(
        status=answer.status.value,
        next_offset=answer.next_offset,
        min_offset=answer.minimum,
        max_offset=answer.maximum,
        count=answer.count,
    )


def _filter(request: pb.PullRequest | pb.PullStreamRequest) -> TagFilter | None:
    if not request.tags and not request.tags_codes:
        return None
    return TagFilter(request.tags, request.tags_codes)


def _check_topic(topic: str) -> None:
    if not topic:
        raise InvalidRequestError("the topic is empty")
    if len(topic) > MAX_V2_TOPIC_BYTES:
        raise InvalidRequestError(f"no topic has a name of more than {MAX_V2_TOPIC_BYTES} bytes")


def _check_not_negative(name: str, value: int) -> None:
    if value < 0:
        raise InvalidRequestError(f"{name} is negative: {value}")
