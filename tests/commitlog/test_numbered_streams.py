"""Append streams of numbered producers, on the wire: one stream each, and the answers in parts."""

import struct

import grpc
import pytest

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.client.append_messages import outcome_of
from stratamq.formats.topics import ANY_QUEUE
from stratamq.rpc.appending import shape_of
from stratamq.rpc.framing import APPEND_STREAM_REQUEST
from stratamq.rpc.methods import METHODS
from stratamq.rpc.rooms import COMMITLOG
from tests.commitlog.test_servicer_streams import OK, Stream, broker

__all__ = ["broker"]


class Numbered(Stream):
    """Of the producer with this number."""

    def __init__(self, broker, producer: int) -> None:
        super().__init__(broker, open_it=False)
        self.send(pb.AppendStreamRequest(open=pb.AppendOpen(producer_id=producer)))
        self.opened = next(self.call).opened
        self.shape = shape_of(self.opened, producer)

    def place(self) -> pb.LogPlace:
        return pb.LogPlace(generation=self.opened.generation, offset=self.opened.appended_offset)

    def again(
        self, sequence: int, count: int, sent_from: pb.LogPlace | None, queue_id: int = 0
    ) -> pb.AppendBatchResult:
        lengths, frames = self.batch(count)
        head = pb.AppendStreamRequest(
            sequence=sequence,
            runs=[pb.AppendRun(topic="t", queue_id=queue_id, count=count)],
            sent_from=sent_from,
        )
        self.send_bytes(APPEND_STREAM_REQUEST.encode(head, lengths, frames))
        return self.result()


def end_of_log(broker) -> int:
    status = METHODS["GetStatus"].on(broker._channels[COMMITLOG])(pb.GetStatusRequest())
    return status.appended_offset


def test_what_is_sent_again_on_another_stream_is_answered_as_before(broker):
    first = Numbered(broker, 101)
    sent_from = first.place()
    first.send_batch(0, *first.batch(3))
    stored = first.result()
    first.end()
    second = Numbered(broker, 101)
    end = end_of_log(broker)
    again = second.again(0, 3, sent_from)
    assert (again.status, end_of_log(broker)) == (OK, end)
    (part,) = again.parts
    assert part.physical_offset == again.physical_offset == stored.physical_offset
    assert part.first_queue_offsets == again.first_queue_offsets == stored.first_queue_offsets
    assert part.packed_lengths == second.batch(3)[0]
    assert outcome_of(again).parts[0].lengths == struct.unpack(">3I", part.packed_lengths)
    more = second.again(1, 4, sent_from)
    assert [len(one.packed_lengths) // 4 for one in more.parts] == [2, 2]
    second.end()


def test_an_older_stream_of_a_producer_takes_nothing_more(broker):
    older, newer = Numbered(broker, 102), Numbered(broker, 102)
    older.send_batch(0, *older.batch(3))
    with pytest.raises(grpc.RpcError) as caught:
        older.result()
    assert "another append stream" in caught.value.details()
    newer.send_batch(0, *newer.batch(3))
    assert newer.result().parts == []
    newer.end()


def test_producers_do_not_end_the_streams_of_others(broker):
    one, other, without = Numbered(broker, 103), Numbered(broker, 104), Stream(broker)
    for stream in (one, other, without):
        stream.send_batch(0, *stream.batch(3))
        assert stream.result().status == OK
        stream.end()


def test_a_place_that_the_log_does_not_know_is_refused_for_good(broker):
    stream = Numbered(broker, 105)
    result = stream.again(0, 3, pb.LogPlace(generation=12345, offset=1))
    assert result.beyond_window and result.error_name == "UNAVAILABLE"
    assert outcome_of(result).beyond_window
    stream.end()


@pytest.mark.parametrize("sequence", [-1, 1 << 48])
def test_a_sequence_that_fits_no_message_is_refused(broker, sequence):
    stream = Numbered(broker, 106)
    stream.send_batch(sequence, *stream.batch(3))
    assert stream.result().error_name == "INVALID_REQUEST"
    stream.end()


def test_a_run_without_a_queue_is_answered_with_the_queue_it_was_stored_in(broker):
    stream = Numbered(broker, 107)
    sent_from = stream.place()
    results = [stream.again(3 * number, 3, None, ANY_QUEUE) for number in range(4)]
    assert sorted(one.queue_ids[0] for one in results) == [0, 1, 2, 3]
    assert not stream.again(12, 3, None, 1).queue_ids
    again = stream.again(3, 3, sent_from, ANY_QUEUE)
    (part,) = again.parts
    assert again.queue_ids == part.queue_ids == results[1].queue_ids
    assert again.physical_offset == results[1].physical_offset
    assert again.first_queue_offsets == results[1].first_queue_offsets
    both = stream.again(3, 6, sent_from, ANY_QUEUE)
    assert [list(one.queue_ids) for one in both.parts] == [
        list(results[1].queue_ids),
        list(results[2].queue_ids),
    ]
    assert stream.again(3, 3, sent_from, (results[1].queue_ids[0] + 1) % 4).error_name
    stream.end()
