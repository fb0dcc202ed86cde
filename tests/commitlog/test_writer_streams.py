"""Append streams of services of the broker, on the wire: one for each writer, in one generation."""

import grpc
import pytest

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.rpc.appending import shape_of
from tests.commitlog.test_numbered_streams import end_of_log
from tests.commitlog.test_servicer_streams import OK, Stream, broker

__all__ = ["broker"]

TOPIC = "rmq_sys_STRATAMQ_TEST"


class Writer(Stream):
    """A stream of the service `name`; None: in the log's generation."""

    def __init__(self, broker, name: str = "test", generation: int | None = None) -> None:
        super().__init__(broker, open_it=False)
        if generation is None:
            generation = broker.log.GetStatus(pb.GetStatusRequest()).generations[-1].generation
        opening = pb.AppendOpen(writer=name, generation=generation)
        self.send(pb.AppendStreamRequest(open=opening))
        self.opened = next(self.call).opened
        self.shape = shape_of(self.opened)

    def append(self, sequence: int, count: int = 3, topic: str = TOPIC) -> None:
        self.send_batch(sequence, *self.batch(count, topic), [(topic, 0, count)])


def test_a_writer_appends_to_the_brokers_own_topics_and_learns_the_stores_time(broker):
    writer = Writer(broker)
    writer.append(0)
    result = writer.result()
    assert (result.status, result.error) == (OK, "")
    assert result.physical_offset >= writer.opened.appended_offset
    assert 0 < writer.opened.store_time_ms <= result.store_timestamp_ms
    assert broker.log.GetStatus(pb.GetStatusRequest()).store_time_ms >= result.store_timestamp_ms
    writer.end()


def test_a_stream_is_not_opened_in_another_generation(broker):
    with pytest.raises(grpc.RpcError) as caught:
        Writer(broker, generation=12345)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "12345" in caught.value.details()


def test_an_older_stream_of_a_writer_stores_nothing_behind_the_newer_ones_opening(broker):
    older = Writer(broker)
    other = Writer(broker, "other")
    newer = Writer(broker)
    end = end_of_log(broker)
    assert newer.opened.appended_offset <= end
    older.append(0)
    with pytest.raises(grpc.RpcError):
        while True:
            assert older.result().error_name
    assert end_of_log(broker) == end
    for stream in (newer, other):
        stream.append(0)
        assert stream.result().status == OK
        stream.end()


def test_nothing_behind_a_refused_batch_is_stored(broker):
    writer = Writer(broker)
    end = end_of_log(broker)
    writer.append(0, topic="no such/topic")
    writer.append(1)
    assert [writer.result().error_name for _ in range(2)] == ["INVALID_REQUEST", "NOT_WRITABLE"]
    assert end_of_log(broker) == end
    writer.end()


def test_a_writer_does_not_number_its_messages(broker):
    stream = Stream(broker, open_it=False)
    opening = pb.AppendOpen(writer="test", generation=1, producer_id=5)
    stream.send(pb.AppendStreamRequest(open=opening))
    with pytest.raises(grpc.RpcError) as caught:
        next(stream.call)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
