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
class Batch:
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

    def behind(self, offset: int) -> "Batch":
        """The messages from queue offset `offset` on."""
        skipped = min(len(self.sizes), max(0, offset - self.first))
        if not skipped:
            return self
        return Batch(
            self.first + skipped,
            self.records[int(self.sizes[:skipped].sum()) :],
            self.sizes[skipped:],
            self.tags_codes[skipped:],
            self.times[skipped:],
        )


@dataclass(frozen=True, slots=True)
class Piece:
    """Messages that go into one segment: bytes as they are in the tier, from place `start` on.

    `begins`: into a segment of its own, that begins here.
    """

    begins: bool
    start: int
    first: int
    count: int
    records: bytes
    units: bytes
    times: I64
    place: int
    """The log offset of the last message."""

    @property
    def begin_ms(self) -> int:
        return int(self.times.min())

    @property
    def end_ms(self) -> int:
        return int(self.times.max())


def pieces(batch: Batch, start: int, room: int, segment_bytes: int) -> Iterator[Piece]:
    """The batch, placed from `start` on. The first piece has `room` bytes in the open segment (0:
    none is open), each other begins a segment. One message that is larger has a segment alone."""
    ends = np.cumsum(batch.sizes)
    placed = bytearray(batch.records)
    place_records(placed, ends - batch.sizes, batch.sizes, start)
    view, ours = memoryview(placed), memoryview(batch.records)
    units = np.empty(len(ends), UNIT)
    units["physical_offset"] = ends - batch.sizes + start
    units["size"] = batch.sizes
    units["tags_code"] = batch.tags_codes
    low, begins = 0, False
    while low < len(ends):
        base = int(ends[low - 1]) if low else 0
        high = int(np.searchsorted(ends, base + room, "right"))
        if begins:
            high = max(high, low + 1)
        if high > low:
            yield Piece(
                begins,
                start + base,
                batch.first + low,
                high - low,
                bytes(view[base : int(ends[high - 1])]),
                units[low:high].tobytes(),
                batch.times[low:high],
                physical_offset_of(ours[int(ends[high - 1] - batch.sizes[high - 1]) :]),
            )
        low, room, begins = high, segment_bytes, True


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
