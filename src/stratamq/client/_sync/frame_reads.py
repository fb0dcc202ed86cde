# Generated from _async/frame_reads.py by scripts/gen_sync_client.py (`make client`).
"""Whole frames as they lie in the log, or behind the units of queues."""

import contextlib
from collections.abc import Iterator, Sequence

from stratamq.api.v1 import commitlog_pb2
from stratamq.client._sync.calls import run_plan
from stratamq.client.connections import Connections, Stream
from stratamq.client.consuming import Range, ReadQueues, listed_queues
from stratamq.client.operations import RunOperation
from stratamq.client.primitives import Ongoing
from stratamq.client.reading import Reading
from stratamq.client.values import Queue
from stratamq.errors import OffsetOutOfRangeError, UnavailableError
from stratamq.rpc.framing import PULL_STREAM_RESPONSE, READ_RANGE_RESPONSE
from stratamq.rpc.methods import METHODS


def log_frames(
    connections: Connections, begin: int, end: int, timeout_s: float
) -> Iterator[tuple[int, memoryview]]:
    """See `Client.log_frames`."""
    pieces = log_heads(connections, begin, end, timeout_s, heads=False)
    with contextlib.closing(pieces):
        for offset, data, _ in pieces:
            yield offset, data


def log_heads(
    connections: Connections, begin: int, end: int, timeout_s: float, *, heads: bool = True
) -> Iterator[tuple[int, memoryview, bytes]]:
    """See `Client.log_heads`; not `heads`: whole frames, verified."""
    request = commitlog_pb2.ReadRangeRequest(
        start_offset=begin, end_offset=end, verify=True, heads=heads
    )
    stream = connections.open(METHODS["ReadRange"], request)
    try:
        while (response := _answer(stream, timeout_s)) is not None:
            head, (data,) = READ_RANGE_RESPONSE.decode(response)
            yield head.offset, data, head.packed_lengths
    finally:
        stream.end()


def queue_frames(
    connections: Connections,
    run: RunOperation,
    ranges: Sequence[tuple[str, int, int, int]],
    max_bytes: int,
    timeout_s: float,
) -> Iterator[tuple[int, int, memoryview]]:
    """See `Client.queue_frames`."""
    reading = ReadQueues([Range(*one) for one in ranges], Reading(max_bytes=max_bytes))
    next_offsets = [begin for _, _, begin, _ in ranges]
    open_ranges = [number for number, one in enumerate(reading.ranges) if not one.ended]
    if not open_ranges:
        return
    _refuse_beyond(run, [ranges[number] for number in open_ranges])
    stream = connections.open(METHODS["PullStream"], reading.request())
    try:
        while (response := _answer(stream, timeout_s)) is not None:
            head, (frames,) = PULL_STREAM_RESPONSE.decode(response)
            number = open_ranges[head.stream_index]
            topic, queue_id, _, _ = ranges[number]
            if head.min_offset > next_offsets[number]:
                raise OffsetOutOfRangeError(
                    f"queue {queue_id} of {topic} begins at {head.min_offset} by now: what lay "
                    f"at {next_offsets[number]} was deleted",
                    head.min_offset,
                    head.max_offset,
                )
            next_offsets[number] = head.next_offset
            yield number, head.next_offset, frames
    finally:
        stream.end()
    for number in open_ranges:
        if next_offsets[number] < ranges[number][3]:
            raise UnavailableError("the dispatcher ended the stream")


def _answer(stream: Stream, timeout_s: float) -> bytes | None:
    """The next one; None behind the last. UnavailableError when none comes in time."""
    reading = Ongoing()
    try:
        return reading.result(stream.read, timeout_s)
    except TimeoutError as error:
        stream.end()
        reading.ended()
        raise UnavailableError(f"no answer within {timeout_s:g} s") from error


def _refuse_beyond(run: RunOperation, ranges: Sequence[tuple[str, int, int, int]]) -> None:
    """OffsetOutOfRangeError for a range that ends behind its queue: a stream would wait for it."""
    queues = {}
    for topic in sorted({one[0] for one in ranges}):
        found, _ = run_plan(run, listed_queues(topic, whole=True))
        queues.update({(topic, queue.queue_id): queue for queue in found})
    for topic, queue_id, begin, end in ranges:
        queue = queues.get((topic, queue_id)) or Queue(topic, queue_id, 0, 0, 0)
        if end > queue.max_offset:
            raise OffsetOutOfRangeError(
                f"queue {queue_id} of {topic} ends at {queue.max_offset}: offsets {begin} to {end} "
                "were asked for",
                queue.min_offset,
                queue.max_offset,
            )
