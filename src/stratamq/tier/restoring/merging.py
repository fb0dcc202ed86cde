"""The messages of many queues in the order of their store times, a bounded part of them in memory.

A queue is read a chunk at a time, when the time of its next message has come: those that had no
message for a while hold nothing. Checksums of every part and every record are verified before a
record is passed on.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import CorruptionError, CorruptRecordError
from stratamq.formats.columns import columns_at
from stratamq.formats.crc import crc32
from stratamq.formats.frame_verify import first_damaged
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.queue_units import UnitArray, decode_units
from stratamq.formats.tier_manifest import ManifestPart, RecordSegment
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.containers.queue import spans
from stratamq.tier.driver.calls import Block, Procedure
from stratamq.tier.reading.manifests import ManifestQueue

I64 = NDArray[np.int64]

BUDGET_BYTES = 256 << 20
LEAST_CHUNK_BYTES, LARGEST_CHUNK_BYTES = 64 << 10, 4 << 20
_NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Consecutive messages of a queue: their records, one behind the other, and sizes."""

    records: memoryview
    sizes: I64
    last_ms: int


class QueueCursor:
    """The messages of a queue from queue offset `first` on. A part that begins before it is held
    against its checksums as a whole."""

    def __init__(
        self, place: QueuePlace, found: ManifestQueue, first: int, most_bytes: int
    ) -> None:
        self.first = first
        """Queue offset of the next message."""
        self.next_ms = 0
        """Its store time; before `load` none of it is earlier."""
        self._place = place
        self._queue = found.queue
        self._most_bytes = most_bytes
        self._parts: Iterator[tuple[RecordSegment, ManifestPart]] = (
            (segment, part)
            for segment, parts in found.parts
            for part in parts
            if part.first + part.count > first
        )
        self._part: tuple[RecordSegment, ManifestPart] | None = None
        self._at = first
        """Queue offset of the next message that is read."""
        self._units: UnitArray = decode_units(b"")
        self._read = 0
        """Bytes of the part that were read, and their checksum."""
        self._crc = 0
        self._records = memoryview(b"")
        self._sizes: I64 = np.empty(0, np.int64)
        self._times: I64 = self._sizes
        self._next_part()

    @property
    def ended(self) -> bool:
        return self._part is None and not len(self._sizes)

    @property
    def loaded(self) -> bool:
        return bool(len(self._sizes))

    def load(self) -> Procedure[None]:
        """The next chunk. CorruptionError for what is not as it was uploaded."""
        assert self._part is not None
        segment, part = self._part
        if not len(self._units):
            yield from self._load_units(part)
        start = segment.base + part.position + self._read
        count = spans(self._units, self._most_bytes)
        units, self._units = self._units[:count], self._units[count:]
        sizes = units["size"].astype(np.int64)
        places = units["physical_offset"].astype(np.int64)
        size = int(sizes.sum())
        ends = np.cumsum(sizes)
        if int(sizes.min()) <= 0 or (places != start + ends - sizes).any():
            raise self._damage("the units do not name one record behind the other")
        data = yield from self._queue.records.read(start, size)
        self._crc = crc32(data, self._crc)
        self._read += size
        if not len(self._units) and (self._read != part.size or self._crc != part.crc):
            raise self._damage("the records differ from their checksum")
        self._take(data, sizes, ends - sizes)
        if not len(self._units):
            self._next_part()

    def until(self, limit_ms: int) -> RecordRun:
        """The messages of the chunk up to that store time, at least one."""
        count = max(1, int(np.searchsorted(self._times, limit_ms, "right")))
        size = int(self._sizes[:count].sum())
        run = RecordRun(self._records[:size], self._sizes[:count], int(self._times[count - 1]))
        self._records = self._records[size:]
        self._sizes, self._times = self._sizes[count:], self._times[count:]
        self.first += count
        self.next_ms = int(self._times[0]) if len(self._times) else max(self.next_ms, run.last_ms)
        if not len(self._sizes):
            self._records = memoryview(b"")
        return run

    def _load_units(self, part: ManifestPart) -> Procedure[None]:
        raw = yield from self._queue.units.read(
            part.first * QUEUE_UNIT_BYTES, part.count * QUEUE_UNIT_BYTES
        )
        if crc32(raw) != part.units_crc:
            raise self._damage("the units differ from their checksum")
        self._units = decode_units(raw)

    def _take(self, data: Block, sizes: I64, starts: I64) -> None:
        damaged = first_damaged(data, starts, sizes)
        if damaged is not None:
            number, reason = damaged
            raise self._damage(f"the record of queue offset {self._at + number} ({reason})")
        try:
            columns = columns_at(np.frombuffer(data, np.uint8), starts, sizes)
        except CorruptRecordError as error:
            raise self._damage(error.message) from error
        offsets = np.arange(self._at, self._at + len(sizes))
        if (columns.queue_offset != offsets).any() or (
            columns.queue_id != self._place.queue_id
        ).any():
            raise self._damage("a record is another message than its unit names")
        below = min(len(sizes), max(0, self.first - self._at))
        self._at += len(sizes)
        self._records = memoryview(data)[int(sizes[:below].sum()) :]
        self._sizes = sizes[below:]
        self._times = columns.store_timestamp_ms[below:].astype(np.int64)
        if len(self._times):
            self.next_ms = int(self._times[0])

    def _next_part(self) -> None:
        self._part = next(self._parts, None)
        self._read = self._crc = 0
        if self._part is not None:
            self._at = self._part[1].first
            if not len(self._sizes):
                self.next_ms = max(self.next_ms, self._part[1].begin_ms)

    def _damage(self, what: str) -> CorruptionError:
        return CorruptionError(
            f"{self._place.path}, from queue offset {self._at} on: {what}. `stratamq tier "
            "verify` lists what is damaged"
        )


class Merge:
    """`following` until it returns None."""

    def __init__(self, cursors: Sequence[QueueCursor]) -> None:
        self._cursors = cursors
        self._heap = [
            (cursor.next_ms, number) for number, cursor in enumerate(cursors) if not cursor.ended
        ]
        heapq.heapify(self._heap)

    def following(self) -> Procedure[RecordRun | None]:
        """The next messages of one queue: none of another queue is of an earlier time."""
        while self._heap:
            _, number = heapq.heappop(self._heap)
            cursor = self._cursors[number]
            if not cursor.loaded:
                yield from cursor.load()
                heapq.heappush(self._heap, (cursor.next_ms, number))
                continue
            run = cursor.until(self._heap[0][0] if self._heap else _NEVER)
            if not cursor.ended:
                heapq.heappush(self._heap, (cursor.next_ms, number))
            return run
        return None


def chunk_bytes(queues: int) -> int:
    """For so many queues that are read together."""
    return min(LARGEST_CHUNK_BYTES, max(LEAST_CHUNK_BYTES, BUDGET_BYTES // max(1, queues)))
