"""CommitLogService: messages of the wire in, engine calls out, and nothing else."""

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf.message import Message as ProtoMessage

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.api.v1 import commitlog_pb2_grpc, common_pb2
from stratamq.errors import (
    InvalidRequestError,
    NotFoundError,
    StrataError,
    UnavailableError,
)
from stratamq.formats.follow import Closing, Event, Opened, Report
from stratamq.formats.hosts import Host, encode_host
from stratamq.formats.properties import KEYS, TAGS, UNIQ_KEY
from stratamq.runtime.framing import APPEND_DATA_REQUEST, READ_RANGE_RESPONSE, identity
from stratamq_commitlog.append_stream import AppendStreams, put_status, role
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.follow_hub import Session
from stratamq_commitlog.messages import PutMessage, PutResult
from stratamq_commitlog.replicas import Replica
from stratamq_commitlog.topic_table import TopicConfig

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["CommitLogService"].full_name
COALESCE_SECONDS = 0.002
"""A follower that is being fed hears at most every 2 ms, so that events hold many messages."""
_LOCAL = Host("127.0.0.1", 0)


class CommitLogServicer(commitlog_pb2_grpc.CommitLogServiceServicer):
    """`opening` says how far recovery is while the engine is not open yet."""

    def __init__(self, engine: CommitLog) -> None:
        self._engine = engine
        self._appends = AppendStreams(engine)
        self._sessions: set[Session] = set()
        self.opening = "starting"

    def generic_handler(self) -> grpc.GenericRpcHandler:
        """The methods whose large fields are framed by hand."""
        return grpc.method_handlers_generic_handler(
            SERVICE_NAME,
            {
                "AppendStream": grpc.stream_stream_rpc_method_handler(
                    self.append_stream, identity, identity
                ),
                "AppendData": grpc.unary_unary_rpc_method_handler(
                    self.append_data, identity, pb.AppendDataResponse.SerializeToString
                ),
                "ReadRange": grpc.unary_stream_rpc_method_handler(
                    self.read_range, pb.ReadRangeRequest.FromString, identity
                ),
            },
        )

    def stop_appends(self) -> None:
        """End the append streams once what they have in flight is answered."""
        self._appends.stop()

    def end_follows(self) -> None:
        """End the follow streams."""
        for session in list(self._sessions):
            session.ended = True
            session.poke()

    def _ready(self) -> CommitLog:
        if self.opening:
            raise UnavailableError(f"the log is being opened: {self.opening}")
        return self._engine

    # --- appends ---

    async def Append(self, request: pb.AppendRequest, context: Any) -> pb.AppendResponse:
        engine = self._ready()
        if not request.messages:
            raise InvalidRequestError("no messages")
        born = peer_host(context.peer())
        messages = [_put_message(message, born) for message in request.messages]
        results = await _answer(lambda done: engine.put(messages, request.all_or_nothing, done))
        return pb.AppendResponse(results=[_result(result) for result in results])

    async def AppendRaw(self, request: pb.AppendRawRequest, context: Any) -> pb.AppendRawResponse:
        engine = self._ready()
        results = await _answer(lambda done: engine.put_raw(list(request.frames), done))
        return pb.AppendRawResponse(results=[_result(result) for result in results])

    async def append_stream(
        self, requests: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[bytes]:
        self._ready()
        born = peer_host(context.peer())
        async for response in self._appends.run(requests, born, encode_host(born)):
            yield response

    async def append_data(self, data: bytes, context: Any) -> pb.AppendDataResponse:
        engine = self._ready()
        head, (payload,) = APPEND_DATA_REQUEST.decode(data)
        error = await _answer(
            lambda done: engine.append_data(head.generation, head.offset, bytes(payload), done)
        )
        if error is not None:
            raise error
        offsets = engine.offsets
        return pb.AppendDataResponse(
            appended_offset=offsets.appended, flushed_offset=offsets.flushed
        )

    # --- reads ---

    async def GetFrame(self, request: pb.GetFrameRequest, context: Any) -> pb.GetFrameResponse:
        engine = self._ready()
        try:
            frame = engine.frame_at(request.physical_offset)
        except InvalidRequestError as error:
            raise NotFoundError(error.message) from None
        return pb.GetFrameResponse(
            frame=common_pb2.StoredFrame(physical_offset=request.physical_offset, frame=frame)
        )

    async def read_range(self, request: pb.ReadRangeRequest, context: Any) -> AsyncIterator[bytes]:
        engine = self._ready()
        pieces = engine.read_range(request.start_offset, request.end_offset, request.max_bytes)
        for offset, data in pieces:
            yield READ_RANGE_RESPONSE.encode(pb.ReadRangeResponse(offset=offset), data)
            await asyncio.sleep(0)

    async def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.GetStatusResponse:
        engine = self._ready()
        status = engine.status()
        return pb.GetStatusResponse(
            minimum_offset=status.minimum,
            appended_offset=status.appended,
            flushed_offset=status.flushed,
            confirmed_offset=status.confirmed,
            role=role(status.role),
            generations=[
                common_pb2.Generation(generation=g.number, start_offset=g.start)
                for g in status.generations
            ],
            writable=status.writable,
            not_writable_reason=status.not_writable_reason,
            segment_bytes=status.segment_bytes,
            segment_count=status.segment_count,
            followers=[
                pb.FollowerStatus(
                    name=state.name,
                    connected=state.connections > 0,
                    applied_offset=state.applied,
                    durable_offset=state.durable,
                    lag_bytes=max(0, status.confirmed - state.applied),
                    durable_store_timestamp_ms=state.durable_store_timestamp_ms,
                )
                for state in engine.hub.followers.values()
            ],
            replicas=[
                pb.ReplicaStatus(
                    address=replica.address,
                    acknowledged_offset=replica.acknowledged,
                    connected=replica.connected,
                    lag_bytes=max(0, status.appended - replica.acknowledged),
                    lag_ms=replica.lag_ms,
                )
                for replica in engine.replicas.known
            ],
            disk_used_ratio=status.disk_used_ratio,
            sync_flush=engine.config.flush_disk_type == "SYNC_FLUSH",
            recovery_report=status.recovery_report,
            broker_name=engine.config.broker_name,
            broker_id=engine.config.broker_id,
        )

    async def GetQueueTable(
        self, request: pb.GetQueueTableRequest, context: Any
    ) -> pb.GetQueueTableResponse:
        appended, queues = self._ready().queue_table()
        return pb.GetQueueTableResponse(
            appended_offset=appended,
            queues=[
                common_pb2.QueueOffset(topic=topic, queue_id=queue_id, next_queue_offset=following)
                for topic, queue_id, following in queues
            ],
        )

    # --- followers ---

    async def Follow(
        self, requests: AsyncIterator[pb.FollowRequest], context: Any
    ) -> AsyncIterator[pb.FollowResponse]:
        engine = self._ready()
        first = await anext(aiter(requests), None)
        if first is None:
            return
        if not first.HasField("open") or not first.open.name:
            raise InvalidRequestError("the first message of a follow stream must be `open`")
        moved = asyncio.Event()
        opened, session = engine.hub.open(
            first.open.name,
            replicable=first.open.horizon == pb.FOLLOW_HORIZON_REPLICABLE,
            generation=first.open.generation,
            position=first.open.position,
            wake=moved.set,
        )
        self._sessions.add(session)
        reader = asyncio.create_task(_read_reports(requests, session))
        reader.add_done_callback(lambda _: moved.set())
        loop = asyncio.get_running_loop()
        try:
            yield pb.FollowResponse(opened=_opened(opened))
            spoke_at = 0.0
            while not session.ended and not reader.done():
                message = session.next()
                if message is None:
                    await moved.wait()
                    moved.clear()
                    early = spoke_at + COALESCE_SECONDS - loop.time()
                    if early > 0 and not session.much_waits:
                        await asyncio.sleep(early)
                    continue
                spoke_at = loop.time()
                yield _follow_message(message)
            if reader.done() and not reader.cancelled() and reader.exception() is not None:
                raise reader.exception()  # type: ignore[misc]
        finally:
            reader.cancel()
            session.close()
            self._sessions.discard(session)

    # --- topics ---

    async def ListTopics(
        self, request: pb.ListTopicsRequest, context: Any
    ) -> pb.ListTopicsResponse:
        topics = self._ready().topics.list()
        return pb.ListTopicsResponse(topics=[_topic_message(topic) for topic in topics])

    async def PutTopic(self, request: pb.PutTopicRequest, context: Any) -> pb.PutTopicResponse:
        engine = self._ready()
        wanted = request.topic
        config = engine.topics.put(
            TopicConfig(
                topic=wanted.topic,
                read_queues=wanted.read_queue_count or wanted.write_queue_count or 4,
                write_queues=wanted.write_queue_count or wanted.read_queue_count or 4,
                permission=wanted.permission or 6,
                ordered=wanted.ordered,
                system_flags=wanted.system_flags,
            )
        )
        await _saved(engine)
        return pb.PutTopicResponse(topic=_topic_message(config))

    async def ExportMetadata(
        self, request: pb.ExportMetadataRequest, context: Any
    ) -> pb.ExportMetadataResponse:
        return pb.ExportMetadataResponse(topics_json=self._ready().topics.export_json())

    async def ImportMetadata(
        self, request: pb.ImportMetadataRequest, context: Any
    ) -> pb.ImportMetadataResponse:
        engine = self._ready()
        engine.topics.import_json(request.topics_json)
        engine.topics.discover(engine.appender.queues)
        await _saved(engine)
        return pb.ImportMetadataResponse()

    # --- what the janitor and replication ask ---

    async def DeleteBelow(
        self, request: pb.DeleteBelowRequest, context: Any
    ) -> pb.DeleteBelowResponse:
        engine = self._ready()
        most = request.max_segments or 10
        minimum, deleted = engine.delete_below(request.offset, most, request.urgent)
        return pb.DeleteBelowResponse(minimum_offset=minimum, deleted=deleted)

    async def ReportReplication(
        self, request: pb.ReportReplicationRequest, context: Any
    ) -> pb.ReportReplicationResponse:
        replicas = [
            Replica(r.address, r.acknowledged_offset, r.connected, r.lag_ms)
            for r in request.replicas
        ]
        confirmed = self._ready().report_replication(request.generation, replicas)
        return pb.ReportReplicationResponse(confirmed_offset=confirmed)


async def _read_reports(requests: AsyncIterator[pb.FollowRequest], session: Session) -> None:
    async for request in requests:
        if not request.HasField("report"):
            raise InvalidRequestError("a follow stream is opened once")
        report = request.report
        session.report(
            Report(
                applied=report.applied_offset,
                durable=report.durable_offset,
                durable_store_timestamp_ms=report.durable_store_timestamp_ms,
                released=report.released_offset,
            )
        )


async def _answer(call: Any) -> Any:
    """Make a call that answers through a callback, and wait for the answer."""
    future = asyncio.get_running_loop().create_future()

    def done(result: Any) -> None:
        if not future.done():
            future.set_result(result)

    call(done)
    return await future


async def _saved(engine: CommitLog) -> None:
    error: StrataError | None = await _answer(engine.save_topics)
    if error is not None:
        raise error


def peer_host(peer: str) -> Host:
    """gRPC's name of a caller as a host: `ipv4:1.2.3.4:5`, `ipv6:[::1]:5`, anything else local."""
    family, _, rest = peer.partition(":")
    address, _, port = rest.replace("%5B", "[").replace("%5D", "]").rpartition(":")
    if family in ("ipv4", "ipv6") and port.isdigit():
        try:
            return Host(str(ipaddress.ip_address(address.strip("[]"))), int(port))
        except ValueError:
            return _LOCAL
    return _LOCAL


def _put_message(message: pb.Message, born: Host) -> PutMessage:
    properties = dict(message.properties)
    if message.keys:
        properties[KEYS] = " ".join(message.keys)
    if message.tag:
        properties[TAGS] = message.tag
    if message.unique_key:
        properties[UNIQ_KEY] = message.unique_key
    if message.born_address:
        try:
            address = ipaddress.ip_address(message.born_address)
        except ValueError:
            raise InvalidRequestError("born_address must have 4 or 16 bytes") from None
        born = Host(str(address), message.born_port)
    return PutMessage(
        topic=message.topic,
        body=message.body,
        born_host=born,
        queue_id=message.queue_id if message.HasField("queue_id") else None,
        properties=properties,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp_ms=message.born_timestamp_ms,
        delay_level=message.delay_level,
        half=message.transaction == pb.TRANSACTION_TYPE_HALF,
        reconsume_times=message.reconsume_times,
        wait_store_ok=message.wait_store_ok if message.HasField("wait_store_ok") else True,
    )


def _result(result: PutResult) -> pb.AppendResult:
    return pb.AppendResult(
        status=put_status(result.status),
        offset_message_id=result.message_id,
        physical_offset=result.physical_offset,
        queue_offset=result.queue_offset,
        topic=result.topic,
        queue_id=result.queue_id,
        store_timestamp_ms=result.store_timestamp_ms,
        error=str(result.error) if result.error is not None else "",
        size=result.size,
    )


def _opened(opened: Opened) -> pb.FollowOpened:
    return pb.FollowOpened(
        generation=opened.generation,
        cut_to=opened.cut_to,
        minimum_offset=opened.minimum,
        confirmed_offset=opened.confirmed,
        flushed_offset=opened.flushed,
        segment_bytes=opened.segment_bytes,
        generation_start_offset=opened.generation_start,
    )


def _follow_message(message: Event | Closing) -> ProtoMessage:
    if isinstance(message, Closing):
        return pb.FollowResponse(closing=pb.FollowClosing(end_offset=message.end))
    return pb.FollowResponse(
        event=pb.FollowEvent(
            generation=message.generation,
            start_offset=message.start,
            end_offset=message.end,
            confirmed_offset=message.confirmed,
            flushed_offset=message.flushed,
            minimum_offset=message.minimum,
            packed_lengths=b""
            if message.lengths is None
            else message.lengths.astype(">u4").tobytes(),
            runs=[
                pb.FollowRun(topic=topic, queue_id=queue_id, first_queue_offset=first, count=count)
                for topic, queue_id, first, count in message.runs or ()
            ],
        )
    )


def _topic_message(config: TopicConfig) -> common_pb2.TopicConfig:
    return common_pb2.TopicConfig(
        topic=config.topic,
        read_queue_count=config.read_queues,
        write_queue_count=config.write_queues,
        permission=config.permission,
        ordered=config.ordered,
        system_flags=config.system_flags,
    )


__all__ = ["SERVICE_NAME", "CommitLogServicer", "peer_host"]
