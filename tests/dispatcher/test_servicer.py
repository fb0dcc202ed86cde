"""The RPCs over a real channel: what a client in any language gets."""

import asyncio

import grpc
import pytest
from stratamq_dispatcher.engine import DispatchEngine
from stratamq_dispatcher.pull import PullLimits, StreamPieces
from stratamq_dispatcher.servicer import MAX_UNITS
from stratamq_dispatcher.time_search import Boundary

from stratamq.api.v1 import common_pb2
from stratamq.api.v1 import dispatcher_pb2 as pb
from stratamq.errors import CorruptionError, InvalidRequestError, UnavailableError
from stratamq.formats.javahash import tags_code
from stratamq.formats.message_status import PullStatus
from stratamq.service.entrance import Call
from tests.dispatcher.followed_log import START_MS
from tests.dispatcher.running_service import RunningService, error_of

FOUND = common_pb2.GET_MESSAGE_STATUS_FOUND


def split(frames: bytes) -> list[bytes]:
    found = []
    while frames:
        size = int.from_bytes(frames[:4], "big")
        found.append(frames[:size])
        frames = frames[size:]
    return found


def test_statuses_and_boundaries_have_the_numbers_of_the_wire():
    for status in PullStatus:
        assert common_pb2.GetMessageStatus.Name(status.value) == f"GET_MESSAGE_STATUS_{status.name}"
    assert len(PullStatus) == len(common_pb2.GetMessageStatus.keys()) - 1
    for boundary in Boundary:
        assert pb.TimeBoundary.Name(boundary) == f"TIME_BOUNDARY_{boundary.name}"


# --- pull ---


async def test_a_pull_gives_the_frames_as_they_are_in_the_log(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put_many(60, topics=2, queues=1)
        service.follow()
        answer = await service.stub.Pull(pb.PullRequest(topic="topic-1", offset=3))
        there = service.log.of_queue("topic-1", 0)
        assert answer.status == FOUND
        assert split(answer.frames) == [m.frame for m in there[3:]]
        assert (answer.count, answer.next_offset) == (27, 30)
        assert (answer.min_offset, answer.max_offset) == (0, 30)


@pytest.mark.parametrize("offset", [-5, 0, 29, 30, 31])
async def test_the_hand_framed_answer_is_what_the_stubs_would_write(tmp_path, offset):
    async with RunningService(tmp_path) as service:
        service.log.put_many(30, topics=1, queues=1)
        service.follow()
        request = pb.PullRequest(topic="topic-0", offset=offset)
        raw = await service.raw("Pull", request.SerializeToString())
        assert pb.PullResponse.FromString(raw).SerializeToString() == raw


async def test_cold_messages_are_read_beside_the_event_loop_and_are_the_same(tmp_path):
    async with RunningService(tmp_path, PullLimits(hot_bytes=0)) as service:
        service.log.put_many(30, topics=2, queues=1)
        service.follow()
        answer = await service.stub.Pull(pb.PullRequest(topic="topic-0", max_messages=5))
        there = service.log.of_queue("topic-0", 0)
        assert split(answer.frames) == [m.frame for m in there[:5]]


async def test_a_pull_that_waits_gets_the_message_that_comes(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put("t")
        service.follow()
        waiting = service.engine.waiting
        requests = [
            pb.PullRequest(topic="t", offset=1, wait_ms=30_000),
            pb.PullRequest(topic="new", offset=0, wait_ms=30_000),
        ]
        pulls = [asyncio.ensure_future(service.stub.Pull(request)) for request in requests]
        await service.until(lambda: len(waiting) == 2)
        second, first = service.log.put("t"), service.log.put("new")
        service.follow()
        answers = await asyncio.gather(*pulls)
        assert [answer.frames for answer in answers] == [second.frame, first.frame]
        assert len(waiting) == 0


async def test_a_pull_that_waits_for_a_tag_is_not_answered_with_another(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put("t", tags="B")
        service.follow()
        request = pb.PullRequest(topic="t", offset=0, wait_ms=30_000, tags=["A"])
        pull = asyncio.ensure_future(service.stub.Pull(request))
        await service.until(lambda: len(service.engine.waiting) == 1)
        service.log.put("t", tags="B")
        service.follow()
        await service.until(lambda: len(service.engine.waiting) == 1)
        wanted = service.log.put("t", tags="A")
        service.follow()
        answer = await pull
        assert (answer.frames, answer.next_offset) == (wanted.frame, 3)


async def test_a_pull_whose_waiting_time_passes_answers_with_the_status_of_its_queue(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put("t", tags="B")
        service.follow()
        answer = await service.stub.Pull(pb.PullRequest(topic="t", offset=1, wait_ms=1))
        assert PullStatus(answer.status) is PullStatus.OFFSET_OVERFLOW_ONE
        answer = await service.stub.Pull(pb.PullRequest(topic="none", wait_ms=1))
        assert PullStatus(answer.status) is PullStatus.NO_MESSAGE_IN_QUEUE
        request = pb.PullRequest(topic="t", offset=0, wait_ms=1, tags=["A"])
        answer = await service.stub.Pull(request)
        assert answer.next_offset == 1


@pytest.mark.parametrize(
    ("topic", "offset", "status"),
    [
        ("t", -1, PullStatus.OFFSET_TOO_SMALL),
        ("t", 9, PullStatus.OFFSET_OVERFLOW_BADLY),
        ("none", 5, PullStatus.NO_MESSAGE_IN_QUEUE),
    ],
)
async def test_an_offset_that_must_move_is_answered_at_once(tmp_path, topic, offset, status):
    async with RunningService(tmp_path) as service:
        service.log.put("t")
        service.follow()
        request = pb.PullRequest(topic=topic, offset=offset, wait_ms=30_000)
        assert PullStatus((await service.stub.Pull(request)).status) is status


async def test_a_caller_who_has_gone_waits_no_more(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put("t")
        service.follow()
        call = service.stub.Pull(pb.PullRequest(topic="t", offset=1, wait_ms=30_000))
        await service.until(lambda: len(service.engine.waiting) == 1)
        call.cancel()
        await service.until(lambda: len(service.engine.waiting) == 0)


async def test_a_stop_answers_those_who_wait_and_ends_the_streams(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put("t")
        service.follow()
        pull = asyncio.ensure_future(
            service.stub.Pull(pb.PullRequest(topic="t", offset=1, wait_ms=30_000))
        )
        stream = service.stub.PullStream(
            pb.PullStreamRequest(queues=[pb.PullQueue(topic="t", offset=1)])
        )
        read = asyncio.ensure_future(stream.read())
        await service.until(lambda: len(service.engine.waiting) == 2)
        service.puller.stop()
        assert PullStatus((await pull).status) is PullStatus.OFFSET_OVERFLOW_ONE
        assert await read is grpc.aio.EOF


# --- streams ---


async def test_a_stream_gives_everything_up_to_its_ends_and_then_ends(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put_many(200, topics=1, queues=3)
        service.follow()
        queues = [
            pb.PullQueue(topic="topic-0", queue_id=0, offset=0, end_offset=50),
            pb.PullQueue(topic="topic-0", queue_id=1, offset=10, end_offset=20),
            pb.PullQueue(topic="topic-0", queue_id=2, offset=5, end_offset=5),
        ]
        frames: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        async for piece in service.stub.PullStream(pb.PullStreamRequest(queues=queues)):
            frames[piece.stream_index] += split(piece.frames)
        for index, queue in enumerate(queues):
            there = service.log.of_queue("topic-0", index)
            wanted = there[queue.offset : queue.end_offset]
            assert frames[index] == [m.frame for m in wanted]


async def test_a_stream_continues_with_what_arrives(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put("t", 0)
        service.follow()
        stream = service.stub.PullStream(
            pb.PullStreamRequest(
                queues=[pb.PullQueue(topic="t"), pb.PullQueue(topic="t", queue_id=1)]
            )
        )
        first = await stream.read()
        assert (first.stream_index, first.frames) == (0, service.log.messages[0].frame)
        for queue_id in (1, 0, 1):
            message = service.log.put("t", queue_id)
            service.follow()
            piece = await stream.read()
            assert (piece.stream_index, piece.frames) == (queue_id, message.frame)
        stream.cancel()
        await service.until(lambda: len(service.engine.waiting) == 0)


async def test_pieces_of_a_stream_are_as_large_as_was_asked_for(tmp_path):
    async with RunningService(tmp_path) as service:
        for _ in range(100):
            service.log.put("t", body=bytes(1_000))
        service.follow()
        sizes = []
        request = pb.PullStreamRequest(
            queues=[pb.PullQueue(topic="t", end_offset=100)], max_bytes=10_000
        )
        async for piece in service.stub.PullStream(request):
            sizes.append(len(piece.frames))
        assert max(sizes) <= 10_000
        assert sum(sizes) == sum(len(m.frame) for m in service.log.messages)
        size = len(service.log.messages[0].frame)
        assert len(sizes) == -(-100 // (10_000 // size))


@pytest.mark.parametrize("has_room", [True, False])
async def test_larger_pieces_leave_room_for_the_clients_other_streams(
    tmp_path, monkeypatch, has_room
):
    monkeypatch.setattr(StreamPieces, "SURE_AFTER", 1)
    monkeypatch.setattr(StreamPieces, "SMALLEST", 4_000)
    monkeypatch.setattr(Call, "spares", lambda call, size: has_room)
    async with RunningService(tmp_path) as service:
        for _ in range(100):
            service.log.put("t", body=bytes(1_000))
        service.follow()
        request = pb.PullStreamRequest(queues=[pb.PullQueue(topic="t", end_offset=100)])
        sizes = [len(piece.frames) async for piece in service.stub.PullStream(request)]
        assert (max(sizes) <= 4_000) is not has_room
        assert sum(sizes) == sum(len(m.frame) for m in service.log.messages)


async def test_a_filtered_stream_reports_how_far_it_has_looked(tmp_path):
    async with RunningService(tmp_path) as service:
        for number in range(50):
            service.log.put("t", tags="AB"[number % 2])
        service.follow()
        request = pb.PullStreamRequest(queues=[pb.PullQueue(topic="t")], tags=["none"])
        stream = service.stub.PullStream(request)
        piece = await stream.read()
        assert (piece.next_offset, piece.count) == (50, 0)
        assert PullStatus(piece.status) is PullStatus.NO_MATCHED_MESSAGE
        stream.cancel()
        request = pb.PullStreamRequest(
            queues=[pb.PullQueue(topic="t", end_offset=50)], tags_codes=[tags_code("B")]
        )
        pieces = [piece async for piece in service.stub.PullStream(request)]
        wanted = [m.frame for m in service.log.messages if m.tags == "B"]
        assert [frame for piece in pieces for frame in split(piece.frames)] == wanted
        assert pieces[-1].next_offset == 50


@pytest.mark.parametrize(
    ("offset", "status"),
    [(-3, PullStatus.OFFSET_TOO_SMALL), (99, PullStatus.OFFSET_OVERFLOW_BADLY)],
)
async def test_a_stream_that_begins_outside_reports_it_and_continues_inside(
    tmp_path, offset, status
):
    async with RunningService(tmp_path) as service:
        service.log.put("t")
        service.follow()
        stream = service.stub.PullStream(
            pb.PullStreamRequest(queues=[pb.PullQueue(topic="t", offset=offset)])
        )
        assert PullStatus((await stream.read()).status) is status
        message = service.log.put("t")
        service.follow()
        piece = await stream.read()
        assert piece.frames.endswith(message.frame) or (await stream.read()).frames.endswith(
            message.frame
        )
        stream.cancel()


async def test_the_hand_framed_pieces_are_what_the_stubs_would_write(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put_many(40, topics=1, queues=2)
        service.follow()
        queues = [pb.PullQueue(topic="topic-0", queue_id=n, end_offset=20) for n in range(2)]
        request = pb.PullStreamRequest(queues=queues).SerializeToString()
        method = service.channel.unary_stream("/stratamq.api.v1.DispatcherService/PullStream")
        async for raw in method(request):
            whole = pb.PullStreamResponse.FromString(raw)
            before = pb.PullStreamResponse(generation=whole.generation).SerializeToString()
            whole.ClearField("generation")
            assert raw.replace(before, b"", 1) == whole.SerializeToString()


# --- queues and times ---


async def test_queues_are_listed_with_their_ends_and_newest_time(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put_many(30, topics=2, queues=2)
        service.follow()
        answer = await service.stub.ListQueues(pb.ListQueuesRequest(topic="topic-1"))
        assert [(q.topic, q.queue_id) for q in answer.queues] == [
            ("topic-1", 0),
            ("topic-1", 1),
        ]
        for queue in answer.queues:
            there = service.log.of_queue(queue.topic, queue.queue_id)
            assert (queue.min_offset, queue.max_offset) == (0, len(there))
            assert queue.newest_store_timestamp_ms == there[-1].store_ms
        everything = await service.stub.ListQueues(pb.ListQueuesRequest())
        assert len(everything.queues) == 4


async def test_a_list_waits_for_what_the_log_holds_already(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put("t")
        service.follow()
        service.log.put("t")
        end = service.log.end
        asked = pb.ListQueuesRequest(topic="t", applied_offset=end)
        call = service.stub.ListQueues(asked)
        await service.until(lambda: len(service.engine.waiting) == 1)
        assert not call.done()
        service.follow()
        (queue,) = (await call).queues
        assert queue.max_offset == 2
        asked.applied_offset = end + 1
        with pytest.raises(UnavailableError, match=rf"up to {end}, not yet up to {end + 1}"):
            await service.puller.reach(end + 1, limit_s=0)
        call = service.stub.ListQueues(asked)
        await service.until(lambda: len(service.engine.waiting) == 1)
        service.engine.fold.stopped(ValueError("the log uses another protocol"))
        assert (await call).queues[0].max_offset == 2
        asked.applied_offset = -1
        assert isinstance(await error_of(service.stub.ListQueues(asked)), InvalidRequestError)


async def test_times_are_found_over_the_wire(tmp_path):
    async with RunningService(tmp_path) as service:
        for _ in range(10):
            service.log.put("t", after_ms=10)
        service.follow()

        async def asked(timestamp_ms, boundary, topic="t"):
            request = pb.GetOffsetByTimeRequest(
                topic=topic, timestamp_ms=timestamp_ms, boundary=boundary
            )
            return (await service.stub.GetOffsetByTime(request)).offset

        assert await asked(START_MS + 35, pb.TIME_BOUNDARY_UNSPECIFIED) == 3
        assert await asked(START_MS + 35, pb.TIME_BOUNDARY_LOWER) == 3
        assert await asked(START_MS + 35, pb.TIME_BOUNDARY_UPPER) == 2
        assert await asked(START_MS + 35, pb.TIME_BOUNDARY_NEAREST) == 2
        assert await asked(2**63 - 1, pb.TIME_BOUNDARY_LOWER) == 10
        assert await asked(2**63 - 1, pb.TIME_BOUNDARY_UPPER) == 9
        assert await asked(-(2**63), pb.TIME_BOUNDARY_NEAREST) == 0
        assert await asked(START_MS, pb.TIME_BOUNDARY_LOWER, topic="unknown") == 0


async def test_units_are_listed_as_they_are_on_disk(tmp_path):
    async with RunningService(tmp_path) as service:
        for _ in range(250):
            service.log.put("t", tags="A")
        service.follow()
        request = pb.ListUnitsRequest(topic="t", offset=190, count=1_000)
        answer = await service.stub.ListUnits(request)
        assert (answer.min_offset, answer.max_offset) == (0, 250)
        assert [unit.queue_offset for unit in answer.units] == list(range(190, 250))
        for unit in answer.units:
            message = service.log.messages[unit.queue_offset]
            assert unit.physical_offset == message.offset
            assert (unit.size, unit.tags_code) == (len(message.frame), tags_code("A"))
        request = pb.ListUnitsRequest(topic="t", offset=-(2**63), count=2**31 - 1)
        assert len((await service.stub.ListUnits(request)).units) == min(250, MAX_UNITS)
        assert not (await service.stub.ListUnits(pb.ListUnitsRequest(topic="no"))).units


# --- groups ---


async def test_group_offsets_are_committed_listed_exported_and_imported(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put_many(20, topics=1, queues=1)
        service.follow()
        stub = service.stub
        await stub.CommitOffsets(
            pb.CommitOffsetsRequest(
                group="g",
                offsets=[
                    pb.GroupOffset(topic="topic-0", queue_id=0, offset=15),
                    pb.GroupOffset(topic="gone", queue_id=4, offset=0),
                ],
            )
        )
        committed = await stub.GetCommittedOffsets(pb.GetCommittedOffsetsRequest(group="g"))
        assert [(o.topic, o.queue_id, o.offset) for o in committed.offsets] == [
            ("topic-0", 0, 15),
            ("gone", 4, 0),
        ]
        groups = (await stub.ListGroups(pb.ListGroupsRequest())).groups
        assert [(g.topic, g.offset, g.max_offset, g.lag) for g in groups] == [
            ("topic-0", 15, 20, 5),
            ("gone", 0, 0, 0),
        ]
        document = await stub.ExportConsumerOffsets(pb.ExportConsumerOffsetsRequest())
        await stub.ImportConsumerOffsets(
            pb.ImportConsumerOffsetsRequest(consumer_offset_json=document.consumer_offset_json)
        )
        unknown = pb.GetCommittedOffsetsRequest(group="unknown")
        assert not (await stub.GetCommittedOffsets(unknown)).offsets


# --- what goes wrong ---

BAD = [
    ("Pull", pb.PullRequest()),
    ("Pull", pb.PullRequest(topic="t", max_messages=-1)),
    ("Pull", pb.PullRequest(topic="t", max_bytes=-1)),
    ("Pull", pb.PullRequest(topic="t", wait_ms=-1)),
    ("Pull", pb.PullRequest(topic="t", wait_ms=30_001)),
    ("GetOffsetByTime", pb.GetOffsetByTimeRequest()),
    ("GetOffsetByTime", pb.GetOffsetByTimeRequest(topic="t", boundary=77)),
    ("ListUnits", pb.ListUnitsRequest(count=3)),
    ("ListUnits", pb.ListUnitsRequest(topic="t", count=-3)),
    ("CommitOffsets", pb.CommitOffsetsRequest()),
    ("ImportConsumerOffsets", pb.ImportConsumerOffsetsRequest()),
]


@pytest.mark.parametrize(("method", "request_"), BAD, ids=lambda value: str(value)[:60])
async def test_a_request_that_makes_no_sense_is_refused_and_the_next_one_works(
    tmp_path, method, request_
):
    async with RunningService(tmp_path) as service:
        service.log.put("t")
        service.follow()
        error = await error_of(getattr(service.stub, method)(request_))
        assert isinstance(error, InvalidRequestError), error
        assert (await service.stub.Pull(pb.PullRequest(topic="t"))).status == FOUND


@pytest.mark.parametrize(
    "request_",
    [
        pb.PullStreamRequest(),
        pb.PullStreamRequest(queues=[pb.PullQueue()]),
        pb.PullStreamRequest(queues=[pb.PullQueue(topic="t")], max_bytes=-1),
        pb.PullStreamRequest(queues=[pb.PullQueue(topic="t")] * 10_001),
    ],
    ids=["no queues", "no topic", "negative bytes", "too many queues"],
)
async def test_a_stream_that_makes_no_sense_is_refused(tmp_path, request_):
    async with RunningService(tmp_path) as service:
        service.log.put("t")
        service.follow()
        error = await error_of(service.stub.PullStream(request_).read())
        assert isinstance(error, InvalidRequestError)


@pytest.mark.parametrize(
    "method", [m.name for m in pb.DESCRIPTOR.services_by_name["DispatcherService"].methods]
)
@pytest.mark.parametrize("data", [b"\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x08"])
async def test_bytes_that_are_no_request_are_an_invalid_request(tmp_path, method, data):
    async with RunningService(tmp_path) as service:
        service.log.put("t")
        service.follow()
        error = await error_of(service.raw(method, data))
        assert isinstance(error, InvalidRequestError), error


async def test_before_it_serves_everything_that_reads_queues_is_unavailable(tmp_path):
    async with RunningService(tmp_path) as service:
        stub = service.stub
        calls = [
            stub.Pull(pb.PullRequest(topic="t")),
            stub.PullStream(pb.PullStreamRequest(queues=[pb.PullQueue(topic="t")])).read(),
            stub.ListQueues(pb.ListQueuesRequest()),
            stub.GetOffsetByTime(pb.GetOffsetByTimeRequest(topic="t")),
            stub.ListUnits(pb.ListUnitsRequest(topic="t")),
            stub.ListGroups(pb.ListGroupsRequest()),
        ]
        for call in calls:
            assert isinstance(await error_of(call), UnavailableError)
        status = await stub.GetDispatchStatus(pb.GetDispatchStatusRequest())
        assert not status.serving


async def test_the_status_reports_where_it_is_and_why_it_stopped(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put_many(10)
        service.follow()
        engine: DispatchEngine = service.engine
        status = await service.stub.GetDispatchStatus(pb.GetDispatchStatusRequest())
        assert (status.applied_offset, status.queue_count) == (service.log.end, 4)
        assert status.log_confirmed_offset == service.log.end
        assert (status.serving, status.stopped_reason) == (True, "")
        assert "compared with the log" in " ".join(status.recovery_report)
        engine.fold.stopped(CorruptionError("the log is damaged"))
        status = await service.stub.GetDispatchStatus(pb.GetDispatchStatusRequest())
        assert "the log is damaged" in status.stopped_reason
