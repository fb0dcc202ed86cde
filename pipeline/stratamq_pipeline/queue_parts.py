"""Some queues of a running broker: read by the dispatcher, and not with all of the log.

The driver asks which queues there are, and divides their offsets into partitions. What the
dispatcher has not applied yet is left to the log. If more than half of the messages is wanted, all
is: the log is read in its order, queues are not.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from stratamq.client import Client, Queue
from stratamq.errors import NotFoundError, OffsetOutOfRangeError, UnavailableError
from stratamq.table.broker_reader import QueueRange, queue_batches, range_of
from stratamq.table.decode import Decoder
from stratamq.table.selection import Selection
from stratamq_pipeline.broker_client import ServiceAbsence, connect_to
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.partition import Partition

log = logging.getLogger(__name__)

_PIECE_BYTES = 4 << 20
_RANGES_AT_ONCE = 1000
"""So many queues a stream of the dispatcher reads, which takes ten times as many."""
_ASKED_FOR_TIMES = 256
"""The dispatcher is asked where a moment is in at most so many queues: it takes a call for each."""


class QueuesPart(Partition):
    """Ranges of queues of the broker at `address`."""

    def __init__(
        self, address: str, broker: str, ranges: list[QueueRange], selection: Selection
    ) -> None:
        super().__init__(selection)
        self.address = address
        self.broker = broker
        self.ranges = ranges

    def read(self, options: SourceOptions, decoder: Decoder) -> Iterator[pa.RecordBatch]:
        """In an executor. What retention has taken is an OffsetOutOfRangeError, or passed over."""
        with connect_to(self.address, options.access, self.broker) as client:
            left, absence = list(self.ranges), ServiceAbsence()
            while left:
                try:
                    for number, offset, frames in client.queue_frames(list(left), _PIECE_BYTES):
                        topic, queue_id, _, end = left[number]
                        left[number] = topic, queue_id, offset, end
                        absence.ended()
                        yield from queue_batches(frames, left[number], decoder, self.selection)
                    return
                except UnavailableError as error:
                    absence.wait(error)
                except OffsetOutOfRangeError as error:
                    if options.fail_on_data_loss:
                        raise
                    log.warning("data lost", extra={"why": error.message})
                    kept = _kept(client, left)
                    if kept == [one for one in left if one[2] < one[3]]:
                        raise  # nothing was deleted: it would fail again
                    left = kept


def queue_pieces(
    client: Client,
    place: tuple[str, str],
    span: tuple[int, int],
    selection: Selection,
    options: SourceOptions,
) -> tuple[list[InputPartition], int]:
    """Partitions of the queues, and the log offset from which on the log must be read.

    `place`: address and name of the broker. `span`: log offsets in which the wanted frames begin.
    """
    begin, end = span
    if not selection.by_queues or begin >= end:
        return [], begin
    try:
        applied = min(client.admin.dispatch_state().applied_offset, end)
        queues = client.queues()
        ranges = list(_ranges(client, queues, selection))
    except (UnavailableError, NotFoundError):
        return [], begin  # without a dispatcher everything is in the log
    wanted = sum(last - first for _, _, first, last in ranges)
    there = sum(one.max_offset - one.min_offset for one in queues)
    if applied <= begin or 2 * wanted > there:
        return [], begin
    estimated_bytes = (applied - begin) * wanted // max(1, there)
    count = max(1, options.min_partitions, -(-estimated_bytes // options.partition_bytes))
    below = replace(selection, physical=(begin, applied))
    parts = [QueuesPart(*place, some, below) for some in _divided(ranges, -(-wanted // count))]
    return parts, applied


def _ranges(client: Client, queues: Sequence[Queue], selection: Selection) -> Iterator[QueueRange]:
    chosen = [one for one in queues if selection.span_of(one.topic, one.queue_id) is not None]
    with_times = len(chosen) <= _ASKED_FOR_TIMES
    for queue in chosen:
        if (found := range_of(client, queue, selection, ask_times=with_times)) is not None:
            yield found


def _divided(ranges: Sequence[QueueRange], messages: int) -> Iterator[list[QueueRange]]:
    """Groups of so many messages each, or of `_RANGES_AT_ONCE` queues."""
    some: list[QueueRange] = []
    room = messages
    for topic, queue_id, first, last in ranges:
        begin = first
        while begin < last:
            end = min(last, begin + room)
            some.append((topic, queue_id, begin, end))
            room -= end - begin
            begin = end
            if not room or len(some) == _RANGES_AT_ONCE:
                yield some
                some, room = [], messages
    if some:
        yield some


def _kept(client: Client, ranges: Sequence[QueueRange]) -> list[QueueRange]:
    """What is left of them."""
    topics = {topic for topic, _, _, _ in ranges}
    minimum = {
        (one.topic, one.queue_id): one.min_offset
        for topic in topics
        for one in client.queues(topic)
    }
    found = []
    for topic, queue_id, begin, end in ranges:
        first = max(begin, minimum.get((topic, queue_id), end))
        if first < end:
            found.append((topic, queue_id, first, end))
    return found
