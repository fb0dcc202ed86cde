"""The records that a queue's units name, cut out of the bytes around them.

A unit whose record is missing, is another record or has a damaged head yields nothing; the others
keep their own offsets, so that damage in the middle shifts no other record. Spec tier 6.6.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stratamq.formats import frame_layout as layout
from stratamq.formats.columns import I64, windows
from stratamq.formats.queue_units import UnitArray
from stratamq.formats.sysflag import host_bytes
from stratamq.formats.tier_records import CODA_BYTES, CODA_MAGIC


@dataclass(frozen=True, slots=True)
class TierMessage:
    """A record as it is in the tier, and the tag code of its unit."""

    offset: int
    tags_code: int
    record: memoryview


@dataclass(frozen=True, slots=True)
class TierRecords:
    """Records of one queue, as columns over the buffer that they lie in: where each begins there,
    its size, its queue offset (rising) and the tag code of its unit."""

    buffer: memoryview
    starts: I64
    sizes: I64
    offsets: I64
    tags_codes: I64

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[TierMessage]:
        columns = (self.offsets, self.tags_codes, self.starts, self.sizes)
        for offset, tags_code, start, size in zip(*(one.tolist() for one in columns), strict=True):
            yield TierMessage(offset, tags_code, self.buffer[start : start + size])

    def between(self, low: int, high: int) -> "TierRecords":
        """Records number [low, high), in the same buffer."""
        part = slice(low, high)
        return TierRecords(
            self.buffer,
            self.starts[part],
            self.sizes[part],
            self.offsets[part],
            self.tags_codes[part],
        )

    def pieces(self) -> tuple[list[memoryview], int]:
        """The records as views, one behind the other, and their bytes: in one view where they lie
        so."""
        if not len(self):
            return [], 0
        ends = self.starts + self.sizes
        if (ends[:-1] == self.starts[1:]).all():
            whole = self.buffer[int(self.starts[0]) : int(ends[-1])]
            return [whole], len(whole)
        return [one.record for one in self], int(self.sizes.sum())

    @property
    def memory_bytes(self) -> int:
        """Return the size of the whole buffer and of the columns."""
        columns = (self.starts, self.sizes, self.offsets, self.tags_codes)
        return memoryview(self.buffer.obj).nbytes + sum(one.nbytes for one in columns)


_NONE = np.zeros(0, np.int64)
NO_RECORDS = TierRecords(memoryview(b""), _NONE, _NONE, _NONE, _NONE)


def cut_records(
    units: UnitArray, first_offset: int, data: bytes | memoryview, base: int
) -> TierRecords:
    """Units of consecutive queue offsets from `first_offset` on → their records in `data`, which
    begins at place `base` of the queue's records."""
    sizes = units["size"].astype(np.int64)
    starts = units["physical_offset"].astype(np.int64) - base
    offsets = np.arange(first_offset, first_offset + len(units), dtype=np.int64)
    there = (starts >= 0) & (sizes >= layout.MIN_FRAME_BYTES) & (starts + sizes <= len(data))
    kept = np.flatnonzero(there)
    behind_coda = _column(data, starts[kept] + layout.MAGIC_POSITION, ">u4") == CODA_MAGIC
    if behind_coda.any():
        starts[kept[behind_coda]] += CODA_BYTES
        kept = kept[starts[kept] + sizes[kept] <= len(data)]
    begin, size = starts[kept], sizes[kept]
    magics = _column(data, begin + layout.MAGIC_POSITION, ">u4")
    good = (
        (_column(data, begin + layout.TOTAL_SIZE_POSITION, ">u4") == size)
        & ((magics == layout.MAGIC_V1) | (magics == layout.MAGIC_V2))
        & (_column(data, begin + layout.QUEUE_OFFSET_POSITION, ">i8") == offsets[kept])
    )
    kept = kept[good]
    codes = units["tags_code"].astype(np.int64)
    return TierRecords(memoryview(data), starts[kept], sizes[kept], offsets[kept], codes[kept])


def _column(data: bytes | memoryview, places: I64, kind: str) -> I64:
    """The number of this kind at each place; all of them lie within `data`."""
    width = np.dtype(kind).itemsize
    if not len(places):
        return _NONE
    rows = np.ascontiguousarray(windows(data, width)[places])
    return rows.view(kind)[:, 0].astype(np.int64)


def _number(view: memoryview, position: int, size: int) -> int:
    return int.from_bytes(view[position : position + size], "big")


def queue_offset_of(head: bytes | memoryview) -> int:
    """From the first 28 bytes of a record."""
    return _number(memoryview(head), layout.QUEUE_OFFSET_POSITION, 8)


STORE_TIME_BYTES = layout.BORN_HOST_POSITION + 20 + 8
"""The first bytes of a record that have its store time, whatever its born host: no record is
shorter."""
assert STORE_TIME_BYTES <= layout.MIN_FRAME_BYTES


def store_time_of(head: bytes | memoryview) -> int:
    """From the first `STORE_TIME_BYTES` of a record; an IPv6 born host is honoured."""
    view = memoryview(head)
    flags = _number(view, layout.SYS_FLAG_POSITION, 4)
    return _number(view, layout.BORN_HOST_POSITION + host_bytes(flags)[0], 8)
