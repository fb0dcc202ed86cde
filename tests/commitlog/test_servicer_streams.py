"""The append stream over the wire: opening, batches, refusals in band, answers in order."""

import queue
import random
import struct
from collections.abc import Iterator

import grpc
import pytest

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.api.v1 import common_pb2
from stratamq.client.received import single_frame
from stratamq.errors import InvalidRequestError
from stratamq.formats.batch_frames import BatchEncoder
from stratamq.rpc.appending import shape_of
from stratamq.rpc.framing import APPEND_STREAM_REQUEST
from stratamq.rpc.methods import METHODS
from stratamq.rpc.status import from_rpc_error
from tests.support.brokers import COMMITLOG, Broker

SEGMENT_BYTES = 1 << 18
OK = common_pb2.PUT_MESSAGE_STATUS_PUT_OK
BODY_AT = 48 + 8 + 8 + 8 + 16


@pytest.fixture(scope="module", params=["plain", "checksum"])
def broker(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("broker")
    settings = (
        f"commitlog.segment_bytes={SEGMENT_BYTES}",
        "commitlog.followers=",
        f"commitlog.property_checksum={'true' if request.param == 'checksum' else 'false'}",
    )
    with Broker(directory / "store", directory / "logs", settings) as broker:
        yield broker.start([COMMITLOG])


class Stream:
    """One append stream, written and read by hand."""

    def __init__(self, broker: Broker, *, open_it: bool = True) -> None:
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.call = METHODS["AppendStream"].on(broker._channels[COMMITLOG])(self._sent())
        self._results: list[pb.AppendBatchResult] = []
        if open_it:
            self.send(pb.AppendStreamRequest(open=pb.AppendOpen(client_name="test")))
            self.opened = next(self.call).opened
            self.shape = shape_of(self.opened)

    def _sent(self) -> Iterator[bytes]:
        while (request := self._requests.get()) is not None:
            yield request

    def send_bytes(self, data: bytes) -> None:
        self._requests.put(data)

    def send(self, head: pb.AppendStreamRequest, lengths: bytes = b"", frames: bytes = b"") -> None:
        self.send_bytes(APPEND_STREAM_REQUEST.encode(head, lengths, frames))

    def batch(self, count: int = 3, topic: str = "t", **fields) -> tuple[bytes, bytes]:
        """Packed lengths and frames of so many messages."""
        encoder = BatchEncoder(self.shape)
        encoder.add(topic, [(f"body {number}".encode(), b"") for number in range(count)], **fields)
        return encoder.finish()

    def send_batch(
        self,
        sequence: int,
        lengths: bytes,
        frames: bytes,
        runs: list[tuple[str, int, int]] | None = None,
    ) -> None:
        runs = [("t", 0, len(lengths) // 4)] if runs is None else runs
        wire = [pb.AppendRun(topic=t, queue_id=q, count=c) for t, q, c in runs]
        self.send(pb.AppendStreamRequest(sequence=sequence, runs=wire), lengths, frames)

    def result(self) -> pb.AppendBatchResult:
        while not self._results:
            self._results.extend(next(self.call).results)
        return self._results.pop(0)

    def end(self) -> list[pb.AppendBatchResult]:
        """End the requests; return the results that are still answered."""
        self._requests.put(None)
        rest = self._results + [result for response in self.call for result in response.results]
        self._results = []
        return rest


@pytest.fixture
def stream(broker):
    stream = Stream(broker)
    yield stream
    stream.end()


def refusal(stream: Stream) -> pb.AppendBatchResult:
    result = stream.result()
    assert result.status != OK
    assert result.error_name == "INVALID_REQUEST"
    assert result.error
    return result


def assert_works(stream: Stream, sequence: int = 99) -> pb.AppendBatchResult:
    stream.send_batch(sequence, *stream.batch())
    result = stream.result()
    assert (result.sequence, result.status, result.error) == (sequence, OK, "")
    return result


def test_the_opening_has_all_that_frames_need(broker, stream):
    opened = stream.opened
    assert opened.store_address_bytes == 4
    assert (opened.born_address, opened.born_port > 0) == (bytes((127, 0, 0, 1)), True)
    assert opened.max_batch_bytes == SEGMENT_BYTES - 8
    assert opened.role == common_pb2.BROKER_ROLE_ASYNC_MASTER
    assert (
        opened.generation == broker.log.GetStatus(pb.GetStatusRequest()).generations[-1].generation
    )


def test_stored_frames_have_their_places_and_everything_else_as_it_was_sent(broker, stream):
    lengths, frames = stream.batch(flag=5, born_timestamp_ms=1_700_000_000_000)
    stream.send_batch(7, lengths, frames)
    result = stream.result()
    offset = result.physical_offset
    for number, size in enumerate(struct.unpack(">3I", lengths)):
        request = pb.GetFrameRequest(physical_offset=offset)
        message = single_frame(broker.log.GetFrame(request).frame.frame)
        assert message.body == f"body {number}".encode()
        assert message.queue_offset == result.first_queue_offsets[0] + number
        assert message.store_timestamp_ms == result.store_timestamp_ms
        assert (message.flag, message.born_timestamp_ms) == (5, 1_700_000_000_000)
        offset += size


def test_answers_come_in_the_order_of_the_batches_refused_ones_among_them(stream):
    chance = random.Random(1)
    bad = {number for number in range(200) if chance.random() < 0.3}
    lengths, frames = stream.batch()
    for number in range(200):
        stream.send_batch(number, lengths, frames[:-1] if number in bad else frames)
    results = [stream.result() for _ in range(200)]
    assert [result.sequence for result in results] == list(range(200))
    assert {r.sequence for r in results if r.status != OK} == bad


def test_queue_offsets_of_a_stream_continue_from_batch_to_batch(stream):
    first = assert_works(stream, 1)
    second = assert_works(stream, 2)
    assert second.first_queue_offsets[0] == first.first_queue_offsets[0] + 3
    assert second.physical_offset > first.physical_offset


def test_runs_of_several_queues_are_answered_one_by_one(stream):
    encoder = BatchEncoder(stream.shape)
    encoder.add("runs1", [(b"a", b""), (b"b", b"")])
    encoder.add("runs2", [(b"c", b"")])
    lengths, frames = encoder.finish()
    stream.send_batch(1, lengths, frames, [("runs1", 0, 1), ("runs1", 1, 1), ("runs2", 3, 1)])
    assert len(stream.result().first_queue_offsets) == 3


def test_the_first_bad_frame_is_named(stream):
    lengths, frames = stream.batch(5)
    sizes = struct.unpack(">5I", lengths)
    damaged = bytearray(frames)
    damaged[sum(sizes[:3]) + BODY_AT] ^= 1  # the body of frame 3
    damaged[sum(sizes[:4]) + BODY_AT] ^= 1  # and of frame 4
    stream.send_batch(1, lengths, bytes(damaged))
    assert refusal(stream).bad_frame == 3
    assert_works(stream)


@pytest.mark.parametrize("position", [0, 3, 4, 7, 8, 36, 39, 84, 87])
def test_a_wrong_header_is_refused_and_the_next_batch_works(stream, position):
    """Size, magic, checksum, SYSFLAG and body length; the last frame of three."""
    lengths, frames = stream.batch(3)
    damaged = bytearray(frames)
    damaged[sum(struct.unpack(">3I", lengths)[:2]) + position] ^= 0x7C
    stream.send_batch(1, lengths, bytes(damaged))
    assert refusal(stream).bad_frame == 2
    assert_works(stream)


def test_batches_that_contradict_themselves_are_refused_and_the_next_one_works(stream):
    lengths, frames = stream.batch(3)
    for changed_lengths, changed_frames, runs in [
        (lengths[:-1], frames, None),
        (lengths[:-4], frames, None),
        (lengths + lengths[:4], frames, None),
        (b"", b"", []),
        (b"", frames, []),
        (lengths, b"", None),
        (lengths, frames[:-1], None),
        (lengths, frames + b"\0", None),
        (struct.pack(">3I", 0, 0, len(frames)), frames, None),
        (lengths, frames, [("t", 0, 2)]),
        (lengths, frames, [("t", 0, 4)]),
        (lengths, frames, [("t", 0, 3), ("t", 0, 0)]),
        (lengths, frames, [("t", 0, 4), ("t", 0, -1)]),
        (lengths, frames, [("u", 0, 3)]),
        (lengths, frames, [("t", 0, 1), ("u", 0, 2)]),
        (lengths, frames, [("t", 99, 3)]),
        (lengths, frames, [("t", -2, 3)]),
        (lengths, frames, [("", 0, 3)]),
        (lengths, frames, [("no name", 0, 3)]),
    ]:
        stream.send_batch(1, changed_lengths, changed_frames, runs)
        refusal(stream)
    assert_works(stream)


def test_nothing_of_a_refused_batch_is_stored(broker, stream):
    assert_works(stream)
    end = broker.log.GetStatus(pb.GetStatusRequest()).appended_offset
    table = broker.log.GetQueueTable(pb.GetQueueTableRequest())
    lengths, frames = stream.batch(3)
    damaged = bytearray(frames)
    damaged[struct.unpack(">3I", lengths)[0] + BODY_AT] ^= 1  # the second of three
    stream.send_batch(1, lengths, bytes(damaged))
    assert refusal(stream).bad_frame == 1
    assert broker.log.GetStatus(pb.GetStatusRequest()).appended_offset == end
    assert broker.log.GetQueueTable(pb.GetQueueTableRequest()) == table


@pytest.mark.parametrize("seed", range(6))
def test_any_damage_to_a_batch_is_refused_or_harmless(broker, stream, seed):
    """Every bit of the frames may be wrong: the batch is refused, or stored as readable frames."""
    chance = random.Random(seed)
    lengths, frames = stream.batch(4)
    for number in range(100):
        damaged = bytearray(frames)
        for _ in range(chance.choice((1, 1, 1, 4))):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        stream.send_batch(number, lengths, bytes(damaged))
        result = stream.result()
        assert result.sequence == number
        if result.status == OK:
            request = pb.GetFrameRequest(physical_offset=result.physical_offset)
            assert single_frame(broker.log.GetFrame(request).frame.frame).topic == "t"
        else:
            assert result.error_name == "INVALID_REQUEST"
    assert_works(stream)


def test_a_batch_over_the_limits_is_refused(stream):
    encoder = BatchEncoder(stream.shape)
    encoder.add("t", [(bytes(SEGMENT_BYTES), b"")])
    stream.send_batch(1, *encoder.finish())
    refusal(stream)
    assert_works(stream)


def test_a_batch_of_more_runs_than_messages_is_refused_before_they_are_looked_at(stream):
    lengths, frames = stream.batch(1)
    stream.send_batch(1, lengths, frames, [(f"t{number}", 0, 0) for number in range(100_000)])
    refused = stream.result()
    assert refused.error_name == "INVALID_REQUEST" and "and runs no more" in refused.error
    stream.send_batch(2, *stream.batch(1))
    assert stream.result().status == OK


def test_batches_never_span_segments(broker, stream):
    lengths, frames = stream.batch(100)
    for number in range(60):
        stream.send_batch(number, lengths, frames)
    for _ in range(60):
        result = stream.result()
        assert result.status == OK
        last = result.physical_offset + len(frames) - 1
        assert result.physical_offset // SEGMENT_BYTES == last // SEGMENT_BYTES


def test_what_is_in_flight_is_answered_when_the_client_has_no_more(broker):
    stream = Stream(broker)
    lengths, frames = stream.batch()
    for number in range(50):
        stream.send_batch(number, lengths, frames)
    assert [result.sequence for result in stream.end()] == list(range(50))


def test_a_client_that_goes_away_leaves_what_it_sent_whole_or_absent(broker):
    stream = Stream(broker)
    lengths, frames = stream.batch(10)
    for number in range(20):
        stream.send_batch(number, lengths, frames)
    stream.result()
    stream.call.cancel()
    table = broker.log.GetQueueTable(pb.GetQueueTableRequest())
    assert all(one.next_queue_offset >= 0 for one in table.queues)
    assert_works(Stream(broker))


def ended_with(stream: Stream) -> Exception:
    with pytest.raises(grpc.RpcError) as caught:
        stream.end()
    return from_rpc_error(caught.value)


def test_a_stream_that_does_not_begin_with_its_opening_is_refused(broker):
    stream = Stream(broker, open_it=False)
    stream.send(pb.AppendStreamRequest(sequence=1))
    assert type(ended_with(stream)) is InvalidRequestError


def test_bytes_that_are_no_request_end_the_stream_after_what_came_before(broker):
    stream = Stream(broker)
    stream.send_batch(1, *stream.batch())
    stream.send_bytes(b"\xff\xff\xff")
    assert stream.result().status == OK
    assert type(ended_with(stream)) is InvalidRequestError


def test_several_streams_share_the_log(broker):
    streams = [Stream(broker) for _ in range(8)]
    batches = [stream.batch() for stream in streams]
    for number in range(20):
        for stream, batch in zip(streams, batches, strict=True):
            stream.send_batch(number, *batch)
    offsets = []
    for stream in streams:
        results = [*stream.end()]
        assert [result.sequence for result in results] == list(range(20))
        offsets += [result.physical_offset for result in results]
    assert len(set(offsets)) == 160
