"""The commit log over the wire: every call, and any bytes on every call."""

import random
import struct

import grpc
import pytest
from stratamq_commitlog.messages import PutResult
from stratamq_commitlog.servicer.append_codec import put_result

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.api.v1 import common_pb2
from stratamq.client.received import single_frame, split_frames
from stratamq.errors import (
    BusyError,
    InvalidRequestError,
    NotFoundError,
    NotWritableError,
    OffsetOutOfRangeError,
    UnavailableError,
)
from stratamq.formats import frame
from stratamq.formats.hosts import Host, encode_host
from stratamq.formats.message_status import SendStatus
from stratamq.formats.sysflag import TRANSACTION_PREPARED
from stratamq.rpc.appending import refusal_of
from stratamq.rpc.framing import READ_RANGE_RESPONSE
from stratamq.rpc.methods import METHODS
from stratamq.rpc.status import from_rpc_error
from tests.support.brokers import COMMITLOG, Broker, broker_fixture

SEGMENT_BYTES = 1 << 16
HOST = encode_host(Host("10.0.0.9", 1234))
OK = common_pb2.PUT_MESSAGE_STATUS_PUT_OK
LOG_METHODS = [name for name, method in METHODS.items() if method.room == COMMITLOG]


SETTINGS = (f"commitlog.segment_bytes={SEGMENT_BYTES}", "commitlog.followers=")
broker = broker_fixture(*SETTINGS, rooms=[COMMITLOG])


@pytest.fixture(scope="module")
def channel(broker):
    return broker._channels[COMMITLOG]


def refused(call, *arguments):
    """The error of a call that must be refused."""
    with pytest.raises(grpc.RpcError) as caught:
        response = call(*arguments)
        if hasattr(response, "__next__"):
            list(response)
    return from_rpc_error(caught.value)


def append(broker, **fields) -> pb.AppendResult:
    fields = {"topic": "t", "body": b"body"} | fields
    return broker.log.Append(pb.AppendRequest(messages=[pb.Message(**fields)])).results[0]


def stored(broker, result: pb.AppendResult):
    request = pb.GetFrameRequest(physical_offset=result.physical_offset)
    return single_frame(broker.log.GetFrame(request).frame.frame)


# --- any bytes ---


@pytest.mark.parametrize("name", LOG_METHODS)
def test_any_bytes_on_any_call_are_answered_with_a_reason(broker, channel, name):
    method = METHODS[name]
    call = getattr(channel, method.kind)(method.path)
    chance = random.Random(name)
    for attempt in range(40):
        data = chance.randbytes(chance.choice((1, 3, 9, 40))) if attempt else b"\xff" * 11
        try:
            request = iter([data]) if method.kind.startswith("stream") else data
            response = call(request, timeout=30)
            if method.kind.endswith("stream"):
                list(response)
        except grpc.RpcError as failure:
            assert failure.code() not in (
                grpc.StatusCode.INTERNAL,
                grpc.StatusCode.UNKNOWN,
                grpc.StatusCode.UNAVAILABLE,
                grpc.StatusCode.DEADLINE_EXCEEDED,
            ), (data, failure.details())
    assert append(broker).status == OK


# --- unary append ---


def test_an_absent_queue_takes_the_topics_queues_in_turn(broker):
    queues = [append(broker, topic="in-turn").queue_id for _ in range(8)]
    assert sorted(queues) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_the_callers_address_is_the_birth_host_unless_it_names_one(broker):
    assert stored(broker, append(broker)).born_host.address == "127.0.0.1"
    named = append(broker, born_address=bytes((10, 1, 2, 3)), born_port=77)
    assert stored(broker, named).born_host == Host("10.1.2.3", 77)
    six = append(broker, born_address=bytes(15) + b"\x01", born_port=77)
    assert stored(broker, six).born_host.address == "0:0:0:0:0:0:0:1"


def test_a_message_without_time_of_birth_gets_the_time_of_its_arrival(broker):
    message = stored(broker, append(broker))
    assert 0 <= message.store_timestamp_ms - message.born_timestamp_ms < 60_000


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"topic": ""}, "MESSAGE_ILLEGAL"),
        ({"topic": "a b"}, "MESSAGE_ILLEGAL"),
        ({"topic": "t" * 128}, "MESSAGE_ILLEGAL"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "MESSAGE_ILLEGAL"),
        ({"queue_id": 99}, "MESSAGE_ILLEGAL"),
        ({"queue_id": -1}, "MESSAGE_ILLEGAL"),
        ({"body": bytes(SEGMENT_BYTES)}, "MESSAGE_ILLEGAL"),
        ({"properties": {"a": "x" * 32_768}}, "PROPERTIES_SIZE_EXCEEDED"),
        ({"properties": {"a": "x\x02y"}}, "MESSAGE_ILLEGAL"),
    ],
)
def test_a_message_that_breaks_a_rule_is_refused_with_the_reason_and_not_stored(
    broker, fields, status
):
    before = broker.log.GetStatus(pb.GetStatusRequest()).appended_offset
    result = append(broker, **fields)
    assert common_pb2.PutMessageStatus.Name(result.status) == f"PUT_MESSAGE_STATUS_{status}"
    assert result.error
    assert result.offset_message_id == ""
    assert broker.log.GetStatus(pb.GetStatusRequest()).appended_offset == before


@pytest.mark.parametrize("how", [{"delay_level": 3}, {"properties": {"DELAY": "3"}}])
def test_a_delayed_message_is_stored_as_rocketmq_stores_it(broker, how):
    result = append(broker, topic="orders", body=b"later", queue_id=1, **how)
    assert result.status == OK, result
    message = stored(broker, result)
    assert (message.topic, message.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    kept = {"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "1"}
    assert kept.items() <= message.properties.items()


def test_a_message_that_would_never_be_delivered_is_refused_with_the_whole_call(broker):
    fields = {"transaction": pb.TRANSACTION_TYPE_HALF}
    before = broker.log.GetStatus(pb.GetStatusRequest()).appended_offset
    good = pb.Message(topic="orders", body=b"good")
    bad = pb.Message(topic="orders", body=b"bad", **fields)
    error = refused(broker.log.Append, pb.AppendRequest(messages=[good, bad]))
    assert type(error) is InvalidRequestError
    assert "its producer group" in error.message
    assert broker.log.GetStatus(pb.GetStatusRequest()).appended_offset == before


def test_raw_frames_of_delayed_and_half_messages_come_in_as_rocketmq_stores_them(broker):
    for topic, queue_id in (("SCHEDULE_TOPIC_XXXX", 2), ("RMQ_SYS_TRANS_HALF_TOPIC", 0)):
        raw = frame.encode(
            topic=topic.encode(),
            body=b"x",
            born_host=HOST,
            store_host=bytes(8),
            queue_id=queue_id,
            properties=b"DELAY\x013\x02REAL_TOPIC\x01orders\x02REAL_QID\x010",
        )
        (result,) = broker.log.AppendRaw(pb.AppendRawRequest(frames=[raw])).results
        assert result.status == OK, result
        message = stored(broker, result)
        assert (message.topic, message.queue_id) == (topic, queue_id)
        assert message.properties["REAL_TOPIC"] == "orders"


def test_a_call_without_messages_is_refused(broker):
    assert type(refused(broker.log.Append, pb.AppendRequest())) is InvalidRequestError


# --- raw frames ---


def test_raw_frames_keep_their_transaction_bits_and_take_no_queue_offset(broker):
    raw = frame.encode(
        topic=b"raw",
        body=b"prepared",
        born_host=HOST,
        store_host=bytes(8),
        sys_flag=TRANSACTION_PREPARED,
    )
    (result,) = broker.log.AppendRaw(pb.AppendRawRequest(frames=[raw])).results
    message = stored(broker, result)
    assert (message.sys_flag, message.queue_offset) == (TRANSACTION_PREPARED, 0)
    plain = frame.encode(topic=b"raw", body=b"plain", born_host=HOST, store_host=bytes(8))
    (result,) = broker.log.AppendRaw(pb.AppendRawRequest(frames=[plain])).results
    assert result.queue_offset == 0


def test_malformed_raw_frames_are_refused_one_by_one(broker):
    good = frame.encode(topic=b"raw", body=b"good", born_host=HOST, store_host=bytes(8))
    results = broker.log.AppendRaw(pb.AppendRawRequest(frames=[b"junk", good])).results
    assert [result.status == OK for result in results] == [False, True]


# --- reads ---


def test_a_range_is_read_in_pieces_that_hold_whole_segments_apart(broker, channel):
    for number in range(40):
        append(broker, topic="range", body=bytes([number]) * 4000)
    status = broker.log.GetStatus(pb.GetStatusRequest())
    read_range = METHODS["ReadRange"].on(channel)
    pieces = [READ_RANGE_RESPONSE.decode(data) for data in read_range(pb.ReadRangeRequest())]
    expected = 0
    for head, (data,) in pieces:
        assert head.offset == expected
        expected += len(data)
        assert head.offset // SEGMENT_BYTES == (expected - 1) // SEGMENT_BYTES
    assert expected == status.appended_offset
    first, _ = pieces[0][1][0], pieces[0][0]
    (size,) = struct.unpack_from(">i", first)
    assert next(split_frames(first[:size])).queue_offset == 0


def test_a_range_stops_after_about_as_many_bytes_as_were_asked_for(broker, channel):
    append(broker)
    read_range = METHODS["ReadRange"].on(channel)
    request = pb.ReadRangeRequest(start_offset=0, max_bytes=100)
    data = b"".join(bytes(READ_RANGE_RESPONSE.decode(one)[1][0]) for one in read_range(request))
    assert len(data) == 100


def test_offsets_outside_the_log_name_its_bounds(broker, channel):
    end = broker.log.GetStatus(pb.GetStatusRequest()).appended_offset
    read_range = METHODS["ReadRange"].on(channel)
    for call, request in (
        (broker.log.GetFrame, pb.GetFrameRequest(physical_offset=end)),
        (broker.log.GetFrame, pb.GetFrameRequest(physical_offset=-1)),
        (broker.log.GetFrame, pb.GetFrameRequest(physical_offset=2**62)),
        (read_range, pb.ReadRangeRequest(start_offset=end + 1)),
        (read_range, pb.ReadRangeRequest(end_offset=end + 1)),
        (read_range, pb.ReadRangeRequest(start_offset=10, end_offset=5)),
    ):
        error = refused(call, request)
        assert isinstance(error, OffsetOutOfRangeError)
        assert (error.minimum, error.maximum) == (0, end)


def test_an_offset_at_which_no_frame_begins_is_not_found(broker):
    append(broker)
    error = refused(broker.log.GetFrame, pb.GetFrameRequest(physical_offset=1))
    assert type(error) is NotFoundError


def test_the_queue_table_and_the_topics_come_in_pages(broker):
    for number in range(5):
        append(broker, topic=f"paged-{number}")
    for method, request, field in (
        (broker.log.GetQueueTable, pb.GetQueueTableRequest(max_entries=2), "queues"),
        (broker.log.ListTopics, pb.ListTopicsRequest(max_entries=2), "topics"),
    ):
        whole = [one.topic for one in getattr(method(type(request)()), field)]
        answer = method(request)
        pages = [getattr(answer, field)]
        of_another_start = answer.next_position ^ (1 << 60)
        while answer.next_position:
            request.position = answer.next_position
            answer = method(request)
            pages.append(getattr(answer, field))
        assert [one.topic for page in pages for one in page] == whole
        assert {len(page) for page in pages[:-1]} == {2}
        request.position = of_another_start
        assert isinstance(refused(method, request), UnavailableError)
    (one,) = broker.log.ListTopics(pb.ListTopicsRequest(topic="paged-3")).topics
    assert one.topic == "paged-3"
    assert not broker.log.ListTopics(pb.ListTopicsRequest(topic="nothing")).topics


def test_the_queue_table_counts_what_is_stored(broker):
    for _ in range(3):
        append(broker, topic="counted", queue_id=1)
    table = broker.log.GetQueueTable(pb.GetQueueTableRequest())
    (entry,) = [one for one in table.queues if one.topic == "counted"]
    assert (entry.queue_id, entry.next_queue_offset) == (1, 3)
    assert table.appended_offset == broker.log.GetStatus(pb.GetStatusRequest()).appended_offset


# --- topics and state ---


def test_topics_are_created_changed_and_kept(broker):
    config = common_pb2.TopicConfig(
        topic="made", read_queue_count=2, write_queue_count=2, permission=6
    )
    assert broker.log.PutTopic(pb.PutTopicRequest(topic=config)).topic == config
    config.permission = 4
    broker.log.PutTopic(pb.PutTopicRequest(topic=config))
    listed = {one.topic: one for one in broker.log.ListTopics(pb.ListTopicsRequest()).topics}
    assert listed["made"] == config
    change = pb.TopicChange(topic="made", write_queue_count=5)
    changed = broker.log.PutTopic(pb.PutTopicRequest(change=change)).topic
    assert (changed.write_queue_count, changed.read_queue_count, changed.permission) == (5, 2, 4)
    assert append(broker, topic="made").status != OK
    document = broker.log.ExportMetadata(pb.ExportMetadataRequest()).topics_json
    assert b'"made"' in document
    broker.log.ImportMetadata(pb.ImportMetadataRequest(topics_json=document))
    listed = {one.topic: one for one in broker.log.ListTopics(pb.ListTopicsRequest()).topics}
    assert listed["made"] == changed


def test_a_document_that_is_none_changes_no_topic(broker):
    append(broker, topic="stays")
    for junk in (b"", b"[]", b"{", b"\xff"):
        error = refused(broker.log.ImportMetadata, pb.ImportMetadataRequest(topics_json=junk))
        assert type(error) is InvalidRequestError
    topics = [one.topic for one in broker.log.ListTopics(pb.ListTopicsRequest()).topics]
    assert "stays" in topics


def test_the_state_has_the_four_offsets_and_who_may_write(broker):
    append(broker)
    status = broker.log.GetStatus(pb.GetStatusRequest())
    assert status.minimum_offset == 0
    assert status.appended_offset == status.flushed_offset == status.confirmed_offset > 0
    assert status.role == common_pb2.BROKER_ROLE_ASYNC_MASTER
    assert status.writable
    assert status.segment_bytes == SEGMENT_BYTES
    assert status.sync_flush
    assert status.generations[-1].generation >> 51 == 0


def test_only_a_slave_takes_a_masters_bytes(broker, channel):
    data = pb.AppendDataRequest(offset=0, data=b"x").SerializeToString()
    assert type(refused(METHODS["AppendData"].on(channel), iter([data]))) is NotWritableError


def test_a_masters_bytes_come_in_parts_of_at_most_a_segment(tmp_path):
    settings = [f"commitlog.segment_bytes={SEGMENT_BYTES}", "commitlog.followers="]
    settings += ["commitlog.role=SLAVE", "commitlog.max_message_bytes=1"]
    raw = frame.encode(topic=b"t", body=bytes(10_000), born_host=HOST, store_host=HOST)
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as slave:
        slave.start([COMMITLOG])
        call = METHODS["AppendData"].on(slave._channels[COMMITLOG])
        status = slave.log.GetStatus(pb.GetStatusRequest())
        head = pb.AppendDataRequest(generation=status.generations[-1].generation, data=raw[:99])
        rest = [
            pb.AppendDataRequest(data=raw[at : at + 3_000]) for at in range(99, len(raw), 3_000)
        ]
        parts = [part.SerializeToString() for part in (head, *rest)]
        assert call(iter(parts)).appended_offset == len(raw)
        too_much = [parts[0], *[parts[1]] * (SEGMENT_BYTES // 3_000 + 1)]
        assert "more than a segment" in refused(call, iter(too_much)).message
        assert slave.log.GetStatus(pb.GetStatusRequest()).appended_offset == len(raw)


def test_a_report_for_another_generation_is_refused(broker):
    request = pb.ReportReplicationRequest(generation=1)
    assert type(refused(broker.log.ReportReplication, request)) is NotWritableError


def test_a_second_service_on_the_directory_is_refused_and_leaves_the_first_one_alone(broker):
    second = Broker(broker.root, broker.root.parent / "second", broker._settings)
    second.spawn(COMMITLOG)
    assert second.wait_end(COMMITLOG) == 3
    assert "in use" in second.output(COMMITLOG)
    announced = (broker.root / "stratamq" / "run" / "commitlog.json").read_text()
    assert str(broker.pid(COMMITLOG)) in announced
    assert append(broker).status == OK


def test_a_refusal_of_one_message_has_its_class_and_when_to_retry():
    refused = PutResult(
        SendStatus.SERVICE_NOT_AVAILABLE, "t", error=BusyError("full", retry_after_ms=1234)
    )
    wire = pb.AppendResult.FromString(put_result(refused).SerializeToString())
    error = refusal_of(SendStatus(wire.status), wire)
    assert isinstance(error, BusyError)
    assert (str(error), error.retry_after_ms) == ("full", 1234)
    assert error.fields["status"] == "SERVICE_NOT_AVAILABLE"
