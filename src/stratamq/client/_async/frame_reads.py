"""Whole frames as they lie in the log, or behind the units of queues."""

from collections.abc import AsyncIterator, Sequence

from stratamq.api.v1 import commitlog_pb2
from stratamq.client.connections import AsyncConnections
from stratamq.client.consuming import Range, Reading
from stratamq.errors import OffsetOutOfRangeError, UnavailableError
from stratamq.rpc.framing import PULL_STREAM_RESPONSE, READ_RANGE_RESPONSE
from stratamq.rpc.methods import METHODS


async def log_frames(
    connections: AsyncConnections, begin: int, end: int
) -> AsyncIterator[tuple[int, memoryview]]:
    """See `AsyncClient.log_frames`."""
    request = commitlog_pb2.ReadRangeRequest(start_offset=begin, end_offset=end, verify=True)
    stream = await connections.open(METHODS["ReadRange"], request)
    try:
        while (response := await stream.read()) is not None:
            head, (data,) = READ_RANGE_RESPONSE.decode(response)
            yield head.offset, data
    finally:
        stream.end()


async def queue_frames(
    connections: AsyncConnections, ranges: Sequence[tuple[str, int, int, int]], max_bytes: int
) -> AsyncIterator[tuple[int, int, memoryview]]:
    """See `AsyncClient.queue_frames`."""
    reading = Reading([Range(*one) for one in ranges], (), max_bytes)
    next_offsets = [begin for _, _, begin, _ in ranges]
    open_ranges = [number for number, one in enumerate(reading.ranges) if not one.ended]
    if not open_ranges:
        return
    stream = await connections.open(METHODS["PullStream"], reading.request())
    try:
        while (response := await stream.read()) is not None:
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
