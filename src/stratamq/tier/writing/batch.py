"""Messages of one queue on their way into the tier, and how they fall into segments.

Everything here is computed: the same messages behind the same manifest give the same bytes at the
same places.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import InvalidRequestError
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.queue_units import UNIT
from stratamq.formats.tier_records import physical_offset_of, place_records

I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TierBatch:
    """Consecutive messages from queue offset `first` on.

    `records`: their records as the local log has them, one behind the other; `sizes`: bytes of
    each; `tags_codes`: of their units; `times`: store times in ms.
    """

    first: int
    records: bytes
    sizes: I64
    tags_codes: I64
    times: I64

    def __post_init__(self) -> None:
        lengths = {len(self.sizes), len(self.tags_codes), len(self.times)}
        if len(lengths) != 1 or int(self.sizes.sum()) != len(self.records):
            raise InvalidRequestError("a batch has as many sizes, tag codes and times as records")

    @property
    def end(self) -> int:
        return self.first + len(self.sizes)

    def behind(self, offset: int) -> "TierBatch":
        """The messages from queue offset `offset` on."""
        skipped = min(len(self.sizes), max(0, offset - self.first))
        if not skipped:
            return self
        return TierBatch(
            self.first + skipped,
            self.records[int(self.sizes[:skipped].sum()) :],
            self.sizes[skipped:],
            self.tags_codes[skipped:],
            self.times[skipped:],
        )


@dataclass(frozen=True, slots=True)
class SegmentPiece:
    """Messages that go into one segment: bytes as they are in the tier, from place `start` on.

    `begins`: into a segment of its own, that begins here. `data`: `size` bytes of records, and
    their units behind them, as an object has them; read-only.
    """

    begins: bool
    start: int
    first: int
    count: int
    size: int
    data: memoryview
    times: I64
    place: int
    """The log offset of the last message."""

    @property
    def records(self) -> memoryview:
        return self.data[: self.size]

    @property
    def units(self) -> memoryview:
        return self.data[self.size :]

    @property
    def begin_ms(self) -> int:
        return int(self.times.min())

    @property
    def end_ms(self) -> int:
        return int(self.times.max())


def pieces(batch: TierBatch, start: int, room: int, segment_bytes: int) -> Iterator[SegmentPiece]:
    """The batch, placed from `start` on. The first piece has `room` bytes in the open segment (0:
    none is open), each other begins a segment. One message that is larger has a segment alone."""
    ends = np.cumsum(batch.sizes)
    low, begins = 0, False
    while low < len(ends):
        base = int(ends[low - 1]) if low else 0
        high = int(np.searchsorted(ends, base + room, "right"))
        if begins:
            high = max(high, low + 1)
        if high > low:
            yield _piece(batch, low, high, base, start, begins)
        low, room, begins = high, segment_bytes, True


def _piece(
    batch: TierBatch, low: int, high: int, base: int, start: int, begins: bool
) -> SegmentPiece:
    """The messages [low, high) of the batch, whose records begin at its byte `base`."""
    sizes = batch.sizes[low:high]
    ends = np.cumsum(sizes)
    size = int(ends[-1])
    units = np.empty(len(sizes), UNIT)
    units["physical_offset"] = ends - sizes + start + base
    units["size"] = sizes
    units["tags_code"] = batch.tags_codes[low:high]
    ours = memoryview(batch.records)[base : base + size]
    data = bytearray().join((ours, units.view(np.uint8).data))
    place_records(memoryview(data)[:size], ends - sizes, sizes, start + base)
    return SegmentPiece(
        begins,
        start + base,
        batch.first + low,
        high - low,
        size,
        memoryview(data).toreadonly(),
        batch.times[low:high],
        physical_offset_of(ours[size - int(sizes[-1]) :]),
    )


def unit_ranges(first: int, count: int, base: int, segment_bytes: int) -> Iterator[tuple[int, int]]:
    """Where `count` units from queue offset `first` on fall into segments of the consume queue, the
    open one beginning at byte `base`: (base of the segment, number of units)."""
    per_segment = segment_bytes // QUEUE_UNIT_BYTES
    while count:
        used = first - base // QUEUE_UNIT_BYTES
        if used >= per_segment:
            base, used = first * QUEUE_UNIT_BYTES, 0
        taken = min(count, per_segment - used)
        yield base, taken
        first, count = first + taken, count - taken
