"""The log of a running broker: looked at by the driver, read in ranges by executors.

Ranges begin at frames: at the first of a segment, and where by a queue's units one begins. Those of
a stream begin where the driver has walked over a frame, and are stored with its offsets, so that a
batch that is done again is divided alike. A service
that is away for a while is waited for, and reading continues behind the last whole frame.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from stratamq.client import Client, LogState, Queue
from stratamq.errors import (
    CorruptionError,
    NotFoundError,
    OffsetOutOfRangeError,
    StrataError,
    UnavailableError,
)
from stratamq.formats.columns import FrameColumns, columns_at
from stratamq.formats.frame_heads import LENGTH, columns_of_heads
from stratamq.formats.log_damage import mark_off
from stratamq.table.decode import Decoder
from stratamq.table.selection import Selection
from stratamq_pipeline.broker_client import ServiceAbsence, connect_to
from stratamq_pipeline.cuts import bounds_of
from stratamq_pipeline.log_view import Chunk
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.partition import Partition
from stratamq_pipeline.queue_parts import queue_pieces

log = logging.getLogger(__name__)

_MAX_SEARCHED = 64
"""So many places between segments are looked for at most: each costs some twenty calls."""


class BrokerPart(Partition):
    """Log offsets of the broker at `address`, of several there the one of that name: both are
    beginnings of frames, or the log's end."""

    def __init__(
        self, address: str, broker: str, begin: int, end: int, selection: Selection
    ) -> None:
        super().__init__(selection)
        self.address = address
        self.broker = broker
        self.begin = begin
        self.end = end

    def read(self, options: SourceOptions, decoder: Decoder) -> Iterator[pa.RecordBatch]:
        """In an executor. What retention has taken is an OffsetOutOfRangeError, or passed over."""
        with connect_to(self.address, options.access, self.broker) as client:
            segment_bytes = client.log_state().segment_bytes
            begin = self.begin
            while begin < self.end:
                try:
                    for behind, raw, frames in _read(client, segment_bytes, begin, self.end):
                        begin = behind
                        wanted = self.selection.wanted(raw, frames)
                        if len(wanted):
                            yield from decoder.batches(raw, wanted)
                    return
                except OffsetOutOfRangeError as error:
                    minimum = client.log_state().minimum_offset
                    if options.fail_on_data_loss or minimum <= begin:
                        raise
                    log.warning(
                        "data lost", extra={"begin": begin, "end": minimum, "why": error.message}
                    )
                    begin = minimum


class BrokerView:
    """Implements `LogView`."""

    divided_at_frames = True

    def __init__(
        self,
        address: str,
        broker: str,
        access: Mapping[str, str],
        client: Client,
        state: LogState,
    ) -> None:
        self._address = address
        self._broker = broker
        self._access = access
        self._client = client
        self._segment_bytes = state.segment_bytes
        self.minimum = state.minimum_offset
        self.end = max(state.confirmed_offset, state.minimum_offset)
        self.history = state.generations

    def refreshed(self) -> "BrokerView":
        """Return the current state of the log, over the same connection."""
        state = self._client.log_state()
        return BrokerView(self._address, self._broker, self._access, self._client, state)

    def within(self, since_ms: int | None, until_ms: int | None) -> tuple[int, int]:
        begin, end = self.minimum, self.end
        if since_ms is None and until_ms is None:
            return begin, end
        for start in self._segment_starts(begin, end):
            try:
                first_ms = self._client.message_at(start).store_timestamp_ms
            except (NotFoundError, OffsetOutOfRangeError, CorruptionError):
                continue  # it does not help to narrow the range
            if since_ms is not None and first_ms < since_ms:
                begin = max(begin, start)
            if until_ms is not None and first_ms >= until_ms:
                end = min(end, start)
        return begin, max(begin, end)

    def frames(self, begin: int, end: int) -> Iterator[Chunk]:
        """The driver counts and chooses by headers, and asks for heads alone."""
        for _, raw, frames in _read(self._client, self._segment_bytes, begin, end, heads=True):
            yield raw, frames

    def pieces(
        self,
        begin: int,
        end: int,
        part_bytes: int,
        selection: Selection,
        *,
        cuts: Sequence[int] | None = None,
    ) -> list[InputPartition]:
        if begin >= end:
            return []
        # What the dispatcher has is another thing later: messages of a batch that is done again
        # would get other numbers, and be taken for new ones.
        if cuts:
            bounds = bounds_of(begin, end, cuts)
        else:
            known = {at for at in self._segment_starts(begin, end) if begin < at < end}
            if cuts is None and (end - begin) // part_bytes > len(known):
                known.update(self._searched(begin, end, part_bytes))
            bounds = _apart(begin, end, known, part_bytes)
        return [
            BrokerPart(self._address, self._broker, low, high, selection)
            for low, high in pairwise(bounds)
        ]

    def queue_pieces(
        self, span: tuple[int, int], selection: Selection, options: SourceOptions
    ) -> tuple[list[InputPartition], int]:
        place = (self._address, self._broker)
        # No wait for a dispatcher that is not needed.
        with connect_to(self._address, self._access, self._broker, 0) as asked:
            return queue_pieces(asked, place, span, selection, options)

    def close(self) -> None:
        self._client.close()

    def _segment_starts(self, begin: int, end: int) -> range:
        size = self._segment_bytes
        return range(-(-begin // size) * size, end, size)

    def _searched(self, begin: int, end: int, part_bytes: int) -> Iterator[int]:
        """Beginnings of frames, by the units of the longest queue. None without a dispatcher."""
        step = max(part_bytes, -(-(end - begin) // _MAX_SEARCHED))
        # No wait for a dispatcher that is not needed.
        with connect_to(self._address, self._access, self._broker, 0) as asked:
            try:
                queues = asked.queues()
                longest = max(queues, key=lambda one: one.max_offset - one.min_offset, default=None)
                if longest is None:
                    return
                for target in range(begin + step, end, step):
                    at = _first_unit_from(asked, longest, target)
                    if begin < at < end:
                        yield at
            except (UnavailableError, NotFoundError, OffsetOutOfRangeError):
                return


def _apart(begin: int, end: int, known: Collection[int], part_bytes: int) -> list[int]:
    bounds = [begin]
    for at in sorted(known):
        if at - bounds[-1] >= part_bytes:
            bounds.append(at)
    return [*bounds, end]


def open_broker(address: str, broker: str, access: Mapping[str, str]) -> BrokerView:
    """`broker`: of several names at the address the one to read, "" where there is one.
    UnavailableError without an answer within `RETRY_S`; InvalidRequestError where brokers of
    several names answer, and none was chosen."""
    client = connect_to(address, access, broker)
    try:
        return BrokerView(address, broker, access, client, client.log_state())
    except StrataError:
        client.close()
        raise


def _read(
    client: Client, segment_bytes: int, begin: int, end: int, *, heads: bool = False
) -> Iterator[tuple[int, np.ndarray, FrameColumns]]:
    """(where the next chunk begins, bytes, frames), across absences of the service. `heads`:
    frames without bodies and properties, unless the service is too old for it."""
    absence = ServiceAbsence()
    while begin < end:
        try:
            for offset, data, lengths in _pieces(client, begin, end, heads):
                if lengths:
                    sizes = np.frombuffer(lengths, LENGTH)
                    begin = offset + int(sizes.sum())
                    absence.ended()
                    if len(data):
                        raw = np.frombuffer(data, np.uint8)
                        yield begin, raw, columns_of_heads(raw, sizes, offset)
                    continue
                segment_end = (offset // segment_bytes + 1) * segment_bytes
                looked, starts, sizes = mark_off(data, offset, segment_end)
                begin = segment_end if looked.at_end else offset + looked.good
                raw = np.frombuffer(data, np.uint8)
                absence.ended()
                if len(starts):
                    yield begin, raw, columns_at(raw, starts, sizes, offset)
            return
        except UnavailableError as error:
            absence.wait(error)


def _pieces(
    client: Client, begin: int, end: int, heads: bool
) -> Iterator[tuple[int, memoryview, bytes]]:
    if heads:
        return client.log_heads(begin, end)
    return ((offset, data, b"") for offset, data in client.log_frames(begin, end))


def _first_unit_from(client: Client, queue: Queue, target: int) -> int:
    """Where the queue's first message is that is not in front of the log offset `target`; −1
    without one."""
    low, high = queue.min_offset, queue.max_offset - 1
    found = -1
    while low <= high:
        middle = (low + high) // 2
        units = client.units(queue.topic, queue.queue_id, middle, 1)
        if not units:
            return -1
        if units[0].physical_offset >= target:
            found, high = units[0].physical_offset, middle - 1
        else:
            low = middle + 1
    return found
