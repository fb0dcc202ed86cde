"""CommitLogService: messages of the wire in, engine calls out, and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import asdict, replace

import grpc

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.api.v1 import commitlog_pb2_grpc, common_pb2
from stratamq.errors import (
    InvalidRequestError,
    NotFoundError,
    NotWritableError,
    StrataError,
)
from stratamq.formats.broker_role import Role
from stratamq.formats.frame import Frame, decode
from stratamq.formats.sysflag import is_in_queue
from stratamq.rpc.changes import mark_of
from stratamq.rpc.framing import READ_RANGE_RESPONSE, identity
from stratamq.rpc.log_state import (
    generation_message,
    generation_value,
    log_state_message,
    replica_value,
)
from stratamq.rpc.members import members_value
from stratamq.rpc.paging import place_of, position_of
from stratamq.service.awaiting import answer
from stratamq.service.entrance import Call
from stratamq.service.worker import ThreadWorker
from stratamq_commitlog.engine import QUEUES_PER_STEP, CommitLog
from stratamq_commitlog.recovery.cut_file import Cut, CutDone
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_commitlog.servicer.append_codec import (
    answers_response,
    batches_of,
    numbers_of,
    opened_response,
    opening_of,
    put_message,
    put_results,
)
from stratamq_commitlog.servicer.follow_stream import FollowStreams
from stratamq_commitlog.servicer.values import (
    changed_topic,
    new_topic,
    received_confirmed,
    received_data,
    role_of,
    topic_message,
)
from stratamq_commitlog.use_cases.appending import Appending, born_host
from stratamq_commitlog.use_cases.served_log import ServedLog

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["CommitLogService"].full_name

REPLICATION_SILENCE_S = 5.0
"""Replication reports once a second; after so long without one no append waits for slaves."""


class CommitLogServicer(commitlog_pb2_grpc.CommitLogServiceServicer):
    """The log is read on `reading`: a stalled disk blocks no other call."""

    def __init__(
        self,
        log: ServedLog,
        appending: Appending,
        reading: ThreadWorker,
        reopen: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`reopen` closes the log and opens it again: for a cut that needs it."""
        self._log = log
        self._appending = appending
        self._reading = reading
        self._follows = FollowStreams()
        self._reopen = reopen
        self._silence: asyncio.TimerHandle | None = None
        self._cuts: set[asyncio.Task[pb.CutResponse]] = set()

    def generic_handler(self) -> grpc.GenericRpcHandler:
        """The methods whose large fields are framed by hand."""
        return grpc.method_handlers_generic_handler(
            SERVICE_NAME,
            {
                "AppendStream": grpc.stream_stream_rpc_method_handler(
                    self.append_stream, identity, identity
                ),
                "AppendData": grpc.stream_unary_rpc_method_handler(
                    self.append_data, identity, pb.AppendDataResponse.SerializeToString
                ),
                "ReadRange": grpc.unary_stream_rpc_method_handler(
                    self.read_range, pb.ReadRangeRequest.FromString, identity
                ),
            },
        )

    def end_follows(self) -> None:
        """End the follow streams."""
        self._follows.end()

    # --- appends ---

    async def Append(self, request: pb.AppendRequest, call: Call) -> pb.AppendResponse:
        born = born_host(call.caller)
        results = await self._appending.messages(
            call,
            (put_message(message, born) for message in request.messages),
            len(request.messages),
            numbers_of(request),
            all_or_nothing=request.all_or_nothing,
            require_replicas=request.require_replicas,
        )
        return pb.AppendResponse(results=await put_results(results))

    async def AppendRaw(self, request: pb.AppendRawRequest, call: Call) -> pb.AppendRawResponse:
        results = await self._appending.raw(request.frames)
        return pb.AppendRawResponse(results=await put_results(results))

    async def append_stream(
        self, requests: AsyncIterator[bytes], call: Call
    ) -> AsyncIterator[bytes]:
        self._log.get()
        first = await anext(aiter(requests), None)
        if first is None:
            return
        with self._appending.stream(call, opening_of(first)) as stream:
            opened = stream.opened()
            yield opened_response(opened)
            async with aclosing(stream.run(requests, batches_of(opened))) as answers:
                async for answered in answers:
                    yield answers_response(answered)

    async def append_data(
        self, requests: AsyncIterator[bytes], call: Call
    ) -> pb.AppendDataResponse:
        engine = self._log.get()
        head, payload = await received_data(requests, engine)
        error = await answer(
            lambda done: engine.append_data(
                head.generation, head.offset, payload, done, received_confirmed(head)
            )
        )
        if error is not None:
            raise error
        offsets = engine.offsets
        return pb.AppendDataResponse(
            appended_offset=offsets.appended, flushed_offset=offsets.flushed
        )

    # --- reads ---

    async def GetFrame(self, request: pb.GetFrameRequest, call: Call) -> pb.GetFrameResponse:
        engine = self._log.get()
        try:
            frame = await self._reading.run(lambda: engine.frame_at(request.physical_offset))
        except InvalidRequestError as error:
            raise NotFoundError(error.message) from None
        _require_shown(engine, frame)
        return pb.GetFrameResponse(
            frame=common_pb2.StoredFrame(physical_offset=request.physical_offset, frame=frame)
        )

    async def read_range(self, request: pb.ReadRangeRequest, call: Call) -> AsyncIterator[bytes]:
        engine = self._log.get()
        pieces = engine.read_range(
            request.start_offset,
            request.end_offset,
            request.max_bytes,
            verify=request.verify,
            unconfirmed=request.unconfirmed,
        )
        while (piece := await self._reading.run(lambda: next(pieces, None))) is not None:
            offset, data = piece
            head = pb.ReadRangeResponse(offset=offset, confirmed_offset=engine.offsets.confirmed)
            yield READ_RANGE_RESPONSE.encode(head, data)

    async def GetStatus(self, request: pb.GetStatusRequest, call: Call) -> pb.GetStatusResponse:
        return log_state_message(self._log.get().status())

    async def GetQueueTable(
        self, request: pb.GetQueueTableRequest, call: Call
    ) -> pb.GetQueueTableResponse:
        engine = self._log.get()
        place = place_of(request.position, engine.incarnation)
        appended, queues, following = engine.queue_page(place, request.max_entries)
        return pb.GetQueueTableResponse(
            appended_offset=appended,
            queues=[
                common_pb2.QueueOffset(topic=topic, queue_id=queue_id, next_queue_offset=following)
                for topic, queue_id, following in queues
            ],
            next_position=position_of(following, engine.incarnation),
        )

    # --- followers ---

    async def Follow(
        self, requests: AsyncIterator[pb.FollowRequest], call: Call
    ) -> AsyncIterator[pb.FollowResponse]:
        self._log.get()
        first = await anext(aiter(requests), None)
        if first is None:
            return
        if not first.HasField("open") or not first.open.name:
            raise InvalidRequestError("the first message of a follow stream must be `open`")
        # While its first message was on the way the log may have begun to be opened again.
        async for response in self._follows.run(self._log.get(), first.open, requests):
            yield response

    # --- topics ---

    async def ListTopics(self, request: pb.ListTopicsRequest, call: Call) -> pb.ListTopicsResponse:
        engine = self._log.get()
        if engine.role is Role.SLAVE:
            # Topics are not created here: they come with their master's messages.
            engine.discover_topics(QUEUES_PER_STEP)
        if request.topic:
            found, following = engine.topics.find(request.topic), 0
        else:
            place = place_of(request.position, engine.incarnation)
            found, following = engine.topics.page(place, request.max_entries)
        return pb.ListTopicsResponse(
            topics=[topic_message(topic) for topic in found],
            next_position=position_of(following, engine.incarnation),
        )

    async def PutTopic(self, request: pb.PutTopicRequest, call: Call) -> pb.PutTopicResponse:
        engine = self._log.get()
        if request.HasField("topic") == request.HasField("change"):
            raise InvalidRequestError("a topic or a change of one: exactly one of both")
        if engine.state.is_slave and not engine.state.recovering_tail:
            raise engine.gate.only_master("a slave takes its topics from its master: change them")
        # No queue that has messages becomes unreadable.
        engine.discover_topics()
        if request.HasField("change"):
            known = engine.topics.get(request.change.topic)
            minimums = {one.queue_id: one.offset for one in request.change.minimums}
            if minimums:
                await _purged(engine, request.change.topic, minimums)
                known = engine.topics.get(request.change.topic)
            config = engine.topics.put(changed_topic(known, request.change))
        else:
            if request.must_be_new:
                engine.topics.require_new(request.topic.topic)
            config = engine.topics.put(new_topic(request.topic))
        await _saved(engine)
        return pb.PutTopicResponse(topic=topic_message(config))

    async def DeleteTopic(
        self, request: pb.DeleteTopicRequest, call: Call
    ) -> pb.DeleteTopicResponse:
        engine = self._log.get()
        error: StrataError | None = await answer(
            lambda done: engine.topic_changes.delete(request.topic, done)
        )
        if error is not None:
            raise error
        await _saved(engine)
        return pb.DeleteTopicResponse()

    async def ExportMetadata(
        self, request: pb.ExportMetadataRequest, call: Call
    ) -> pb.ExportMetadataResponse:
        document, mark = self._log.get().topics.export_changes(mark_of(request.mark))
        return pb.ExportMetadataResponse(
            topics_json=document, mark=common_pb2.ChangeMark(**asdict(mark))
        )

    async def ImportMetadata(
        self, request: pb.ImportMetadataRequest, call: Call
    ) -> pb.ImportMetadataResponse:
        engine = self._log.get()
        learned = 0
        # A master without queues sends an empty table: a table is named by its generation.
        has_queues = bool(request.generation or request.queues)
        if has_queues:
            table = [(one.topic, one.queue_id, one.next_queue_offset) for one in request.queues]
            learned = engine.slave_data.learn_queues(
                request.generation, request.appended_offset, table, more=request.more
            )
        if request.topics_json or not has_queues:
            engine.topics.import_json(request.topics_json, engine.appender.queues.table)
            await _saved(engine)
        return pb.ImportMetadataResponse(learned_queues=learned)

    # --- what the janitor and replication ask ---

    async def DeleteBelow(
        self, request: pb.DeleteBelowRequest, call: Call
    ) -> pb.DeleteBelowResponse:
        engine = self._log.get()
        most = request.max_segments or 10
        minimum, deleted = engine.delete_below(request.offset, most, request.urgent)
        self._reading.submit(engine.reads.let_go, _required)
        return pb.DeleteBelowResponse(minimum_offset=minimum, deleted=deleted)

    async def SetRole(self, request: pb.SetRoleRequest, call: Call) -> pb.SetRoleResponse:
        engine = self._log.get()
        change = RoleChange(
            role_of(request.role),
            request.term,
            request.master_replication_address,
            request.reason,
            request.goes_on,
            request.candidate,
        )
        error = await answer(lambda done: engine.set_role(change, done))
        if error is not None:
            raise error
        return pb.SetRoleResponse(generation=generation_message(engine.state.generations[-1]))

    async def HoldWrites(self, request: pb.HoldWritesRequest, call: Call) -> pb.HoldWritesResponse:
        engine = self._log.get()
        error = await answer(
            lambda done: engine.hold_writes(request.reason, request.has_peers, done)
        )
        if error is not None:
            raise error
        return pb.HoldWritesResponse()

    async def GrantLease(self, request: pb.GrantLeaseRequest, call: Call) -> pb.GrantLeaseResponse:
        engine = self._log.get()
        if engine.state.is_slave or request.term != engine.state.last_term:
            raise NotWritableError(
                f"the log is not of a master of term {request.term}: no lease is granted", "term"
            )
        if request.ended_reason:
            engine.end_lead(request.boot, request.until_ns, request.ended_reason)
        else:
            engine.grant_lease(request.boot, request.until_ns)
        return pb.GrantLeaseResponse()

    async def TrustClock(self, request: pb.TrustClockRequest, call: Call) -> pb.TrustClockResponse:
        self._log.get().store_clock.confirm()
        return pb.TrustClockResponse()

    async def PutMembers(self, request: pb.PutMembersRequest, call: Call) -> pb.PutMembersResponse:
        engine = self._log.get()
        members = members_value(request.members)
        error = await answer(lambda done: engine.membership.put(members, request.member, done))
        if error is not None:
            raise error
        return pb.PutMembersResponse()

    async def SetJoined(self, request: pb.SetJoinedRequest, call: Call) -> pb.SetJoinedResponse:
        engine = self._log.get()
        if request.generation != engine.generation:
            raise NotWritableError(f"the log is in generation {engine.generation}", "generation")
        error = await answer(lambda done: engine.membership.set_joined(request.joined, done))
        if error is not None:
            raise error
        return pb.SetJoinedResponse()

    async def Cut(self, request: pb.CutRequest, call: Call) -> pb.CutResponse:
        # A caller that goes away leaves no log half open.
        cut = asyncio.create_task(self._cut(request))
        self._cuts.add(cut)
        cut.add_done_callback(self._cuts.discard)
        return await asyncio.shield(cut)

    async def _cut(self, request: pb.CutRequest) -> pb.CutResponse:
        engine = self._log.get()
        generations = tuple(map(generation_value, request.generations))
        cut = Cut(request.offset, request.empty, generations, received_confirmed(request))
        done: CutDone = await answer(lambda done: engine.cut(cut, done))
        if done.error is not None:
            raise done.error
        if done.reopen:
            assert self._reopen is not None
            await self._reopen()
        engine.gate.master_address = request.master_address
        return pb.CutResponse(appended_offset=engine.offsets.appended, generation=engine.generation)

    async def cut_ended(self) -> None:
        """Until no cut is being done."""
        while self._cuts:
            await asyncio.wait(self._cuts)

    async def ReportReplication(
        self, request: pb.ReportReplicationRequest, call: Call
    ) -> pb.ReportReplicationResponse:
        replicas = map(replica_value, request.replicas)
        confirmed = self._log.get().report_replication(request.generation, replicas)
        if self._silence is not None:
            self._silence.cancel()
        loop = asyncio.get_running_loop()
        self._silence = loop.call_later(REPLICATION_SILENCE_S, self._replication_fell_silent)
        return pb.ReportReplicationResponse(confirmed_offset=confirmed)

    def _replication_fell_silent(self) -> None:
        """The service that ships the log is gone: its slaves get nothing more through it."""
        engine = self._log.now
        if engine is not None:
            gone = [replace(replica, connected=False) for replica in engine.replicas.known]
            engine.report_replication(engine.generation, gone)


def _required(_: None, error: BaseException | None) -> None:
    if error is not None:
        raise error


def _require_shown(engine: CommitLog, raw: bytes | memoryview) -> None:
    """NotFoundError for a message that was purged, or deleted with its topic."""
    frame = decode(raw, verify_body=False)
    if not isinstance(frame, Frame) or not is_in_queue(frame.sys_flag):
        return
    if frame.queue_offset < engine.topics.minimum(frame.topic, frame.queue_id):
        raise NotFoundError(
            f"the message at {frame.physical_offset} was purged, or deleted with its topic"
        )


async def _purged(engine: CommitLog, topic: str, minimums: dict[int, int]) -> None:
    error: StrataError | None = await answer(
        lambda done: engine.topic_changes.purge(topic, minimums, done)
    )
    if error is not None:
        raise error


async def _saved(engine: CommitLog) -> None:
    error: StrataError | None = await answer(engine.upkeep.save_topics)
    if error is not None:
        raise error
