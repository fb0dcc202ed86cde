"""CommitLogService: messages of the wire in, engine calls out, and nothing else."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import asdict

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.api.v1 import common_pb2
from stratamq.errors import (
    InvalidRequestError,
)
from stratamq.formats.log_state import ReplicaState
from stratamq.rpc.changes import mark_of
from stratamq.rpc.framing import READ_RANGE_RESPONSE
from stratamq.rpc.log_state import (
    generation_message,
    generation_value,
    log_state_message,
    members_value,
)
from stratamq.rpc.mirrors import value_of
from stratamq.service.entrance import Call
from stratamq_commitlog.recovery.cut_file import CutOrder
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
from stratamq_commitlog.use_cases.appending import born_host
from stratamq_commitlog.use_cases.together import LogUseCases


class CommitLogServicer:
    """gRPC's codec in front of the use cases."""

    def __init__(self, use_cases: LogUseCases) -> None:
        self._log = use_cases.log
        self._appending = use_cases.appending
        self._topics = use_cases.topics
        self._reading = use_cases.reading
        self._replicating = use_cases.replicating
        self._follows = FollowStreams(use_cases.log)

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

    async def AppendStream(
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

    async def AppendData(self, requests: AsyncIterator[bytes], call: Call) -> pb.AppendDataResponse:
        head, payload = await received_data(requests, self._replicating)
        appended, flushed = await self._replicating.append(
            head.generation, head.offset, payload, received_confirmed(head)
        )
        return pb.AppendDataResponse(appended_offset=appended, flushed_offset=flushed)

    # --- reads ---

    async def GetFrame(self, request: pb.GetFrameRequest, call: Call) -> pb.GetFrameResponse:
        offset = request.physical_offset
        frame = await self._reading.frame(offset)
        return pb.GetFrameResponse(
            frame=common_pb2.StoredFrame(physical_offset=offset, frame=frame)
        )

    async def ReadRange(self, request: pb.ReadRangeRequest, call: Call) -> AsyncIterator[bytes]:
        span = request.start_offset, request.end_offset, request.max_bytes
        if request.heads:
            heads = self._reading.heads(*span, unconfirmed=request.unconfirmed)
            async with aclosing(heads):
                async for offset, data, lengths, confirmed in heads:
                    head = pb.ReadRangeResponse(
                        offset=offset, confirmed_offset=confirmed, packed_lengths=lengths
                    )
                    yield READ_RANGE_RESPONSE.encode(head, data)
            return
        pieces = self._reading.range(*span, verify=request.verify, unconfirmed=request.unconfirmed)
        async with aclosing(pieces):
            async for offset, data, confirmed in pieces:
                head = pb.ReadRangeResponse(offset=offset, confirmed_offset=confirmed)
                yield READ_RANGE_RESPONSE.encode(head, data)

    async def GetStatus(self, request: pb.GetStatusRequest, call: Call) -> pb.GetStatusResponse:
        return log_state_message(self._reading.status())

    async def GetQueueTable(
        self, request: pb.GetQueueTableRequest, call: Call
    ) -> pb.GetQueueTableResponse:
        appended, queues, position = self._reading.queue_table(
            request.position, request.max_entries
        )
        return pb.GetQueueTableResponse(
            appended_offset=appended,
            queues=[
                common_pb2.QueueOffset(topic=topic, queue_id=queue_id, next_queue_offset=following)
                for topic, queue_id, following in queues
            ],
            next_position=position,
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
        async for response in self._follows.run(first.open, requests):
            yield response

    # --- topics ---

    async def ListTopics(self, request: pb.ListTopicsRequest, call: Call) -> pb.ListTopicsResponse:
        if request.topic:
            found, position = self._topics.find(request.topic), 0
        else:
            found, position = self._topics.page(
                request.position, request.max_entries, request.contains
            )
        return pb.ListTopicsResponse(
            topics=[topic_message(topic) for topic in found], next_position=position
        )

    async def PutTopic(self, request: pb.PutTopicRequest, call: Call) -> pb.PutTopicResponse:
        if request.HasField("topic") == request.HasField("change"):
            raise InvalidRequestError("a topic or a change of one: exactly one of both")
        if request.HasField("change"):
            change = request.change
            minimums = {one.queue_id: one.offset for one in change.minimums}
            config = await self._topics.change(
                change.topic, lambda known: changed_topic(known, change), minimums
            )
        else:
            config = await self._topics.put(
                new_topic(request.topic), must_be_new=request.must_be_new
            )
        return pb.PutTopicResponse(topic=topic_message(config))

    async def DeleteTopic(
        self, request: pb.DeleteTopicRequest, call: Call
    ) -> pb.DeleteTopicResponse:
        await self._topics.delete(request.topic)
        return pb.DeleteTopicResponse()

    async def ExportMetadata(
        self, request: pb.ExportMetadataRequest, call: Call
    ) -> pb.ExportMetadataResponse:
        document, mark = self._topics.export_changes(mark_of(request.mark))
        return pb.ExportMetadataResponse(
            topics_json=document, mark=common_pb2.ChangeMark(**asdict(mark))
        )

    async def ImportMetadata(
        self, request: pb.ImportMetadataRequest, call: Call
    ) -> pb.ImportMetadataResponse:
        learned = 0
        # A master without queues sends an empty table: a table is named by its generation.
        has_queues = bool(request.generation or request.queues)
        if has_queues:
            table = [(one.topic, one.queue_id, one.next_queue_offset) for one in request.queues]
            learned = self._topics.learn_queues(
                request.generation, request.appended_offset, table, more=request.more
            )
        if request.topics_json or not has_queues:
            await self._topics.take_over(request.topics_json)
        return pb.ImportMetadataResponse(learned_queues=learned)

    # --- what the janitor and replication ask ---

    async def DeleteBelow(
        self, request: pb.DeleteBelowRequest, call: Call
    ) -> pb.DeleteBelowResponse:
        minimum, deleted = self._reading.delete_below(
            request.offset, request.max_segments or 10, request.urgent
        )
        return pb.DeleteBelowResponse(minimum_offset=minimum, deleted=deleted)

    async def SetRole(self, request: pb.SetRoleRequest, call: Call) -> pb.SetRoleResponse:
        change = RoleChange(
            role_of(request.role),
            request.term,
            request.master_replication_address,
            request.reason,
            request.goes_on,
            request.candidate,
        )
        generation = await self._replicating.set_role(change)
        return pb.SetRoleResponse(generation=generation_message(generation))

    async def HoldWrites(self, request: pb.HoldWritesRequest, call: Call) -> pb.HoldWritesResponse:
        await self._replicating.hold_writes(request.reason, has_peers=request.has_peers)
        return pb.HoldWritesResponse()

    async def GrantLease(self, request: pb.GrantLeaseRequest, call: Call) -> pb.GrantLeaseResponse:
        self._replicating.grant_lease(
            request.term, request.boot, request.until_ns, request.ended_reason
        )
        return pb.GrantLeaseResponse()

    async def TrustClock(self, request: pb.TrustClockRequest, call: Call) -> pb.TrustClockResponse:
        self._replicating.trust_clock()
        return pb.TrustClockResponse()

    async def PutMembers(self, request: pb.PutMembersRequest, call: Call) -> pb.PutMembersResponse:
        await self._replicating.put_members(members_value(request.members), request.member)
        return pb.PutMembersResponse()

    async def SetJoined(self, request: pb.SetJoinedRequest, call: Call) -> pb.SetJoinedResponse:
        await self._replicating.set_joined(request.generation, joined=request.joined)
        return pb.SetJoinedResponse()

    async def Cut(self, request: pb.CutRequest, call: Call) -> pb.CutResponse:
        generations = tuple(map(generation_value, request.generations))
        cut = CutOrder(request.offset, request.empty, generations, received_confirmed(request))
        appended, generation = await self._replicating.cut(cut, request.master_address)
        return pb.CutResponse(appended_offset=appended, generation=generation)

    async def ReportReplication(
        self, request: pb.ReportReplicationRequest, call: Call
    ) -> pb.ReportReplicationResponse:
        replicas = [value_of(ReplicaState, one) for one in request.replicas]
        confirmed = self._replicating.report(request.generation, replicas)
        return pb.ReportReplicationResponse(confirmed_offset=confirmed)
