"""How a batch falls into a queue's files: the next manifest, and what is written before it.

No call is made and no state is changed here: the same batch behind the same manifest gives the same
bytes at the same places.
"""

from dataclasses import replace

from stratamq.formats.crc import crc32
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.tier_manifest import (
    Epoch,
    Manifest,
    ManifestPart,
    RecordSegment,
    UnitSegment,
    encode_parts,
)
from stratamq.tier.containers.place import QueuePlace, TierLimits
from stratamq.tier.driver.calls import Create, StorageCall, WriteAt
from stratamq.tier.writing.batch import SegmentPiece, unit_ranges


class ManifestLayout:
    """The next manifest while pieces are added, and what has to be written before it."""

    def __init__(
        self, place: QueuePlace, limits: TierLimits, old: Manifest, epoch: Epoch, attempt: int
    ) -> None:
        self._place = place
        self._limits = limits
        self._attempt = attempt
        self.manifest = replace(old, revision=old.revision + 1, epoch=epoch)
        self._records: list[StorageCall[object]] = []
        self._units: list[StorageCall[object]] = []
        self._details: list[StorageCall[object]] = []

    @property
    def before(self) -> list[StorageCall[object]]:
        """In this order: records, their units, the lists of parts of segments that are full."""
        return [*self._records, *self._units, *self._details]

    def is_due(self, now_ms: int) -> bool:
        """Whether the last segment is old, and large enough to be left, or older still."""
        last, limits = self.manifest.records[-1], self._limits
        small = last.size < limits.roll_min_bytes
        after_ms = limits.roll_small_after_ms if small else limits.roll_after_ms
        never = small and not limits.roll_small_after_ms
        return not never and last.begin_ms + after_ms < now_ms

    def room(self) -> int:
        """Bytes that the last segment may still take."""
        last = self.manifest.records[-1]
        return max(0, self._limits.record_segment_bytes - last.size) if last.size else 0

    def units_go_on_at(self, first: int) -> bool:
        """Whether the unit of that queue offset is the next one of the last file."""
        units = self.manifest.units
        return not units or units[-1].end == first * QUEUE_UNIT_BYTES

    def keep_place(self, end: int, now_ms: int) -> "ManifestLayout":
        """The queue ends at queue offset `end`, behind a hole."""
        self._close_last()
        records = self.manifest.records
        base, last_ms = (records[-1].end, records[-1].end_ms) if records else (0, now_ms)
        empty = RecordSegment(base, 0, last_ms, last_ms, end, 0)
        self.manifest = replace(self.manifest, records=(*records, empty))
        return self

    def add_records(self, piece: SegmentPiece) -> None:
        if piece.begins:
            self._close_last()
            segment = RecordSegment(piece.start, 0, piece.begin_ms, piece.end_ms, piece.first, 0)
            earlier = self.manifest.records
        else:
            segment, earlier = self.manifest.records[-1], self.manifest.records[:-1]
        position = piece.start - segment.base
        if self.manifest.positions:
            name = ""
            path = self._place.record_segment(segment.base)
            self._records.append(WriteAt(path, position, piece.records))
        else:
            name = self._place.part(segment.base, position, self.manifest.epoch, self._number())
            self._records.append(Create(name, piece.data))
        grown = _with_piece(segment, piece, name, self._limits.join_bytes)
        self.manifest = replace(self.manifest, records=(*earlier, grown))

    def add_units(self, piece: SegmentPiece, fresh: bool) -> None:
        """Into the files that they fall into; `fresh`: the first one begins with them."""
        start = piece.first * QUEUE_UNIT_BYTES
        files = list(self.manifest.units)
        open_base = start if fresh or not files else files[-1].base
        units, times = piece.units, piece.times
        limit = self._limits.unit_segment_bytes
        for base, count in unit_ranges(piece.first, piece.count, open_base, limit):
            size = count * QUEUE_UNIT_BYTES
            path = self._place.unit_segment(base)
            self._units.append(WriteAt(path, start - base, units[:size]))
            begin, end = int(times[:count].min()), int(times[:count].max())
            if files and files[-1].base == base:
                last = files.pop()
                size += last.size
                begin, end = min(begin, last.begin_ms), max(end, last.end_ms)
            files.append(UnitSegment(base, size, begin, end))
            start, units, times = base + size, units[count * QUEUE_UNIT_BYTES :], times[count:]
        self.manifest = replace(self.manifest, units=tuple(files))

    def _close_last(self) -> None:
        """The parts of the last segment leave the manifest; one that is empty goes."""
        *earlier, last = self.manifest.records or (None,)
        if last is None or last.details:
            return
        if last.size:
            details = self._place.details(last.base, self.manifest.epoch, self._number())
            self._details.append(Create(details, encode_parts(last.parts)))
            earlier.append(replace(last, parts=(), details=details))
        self.manifest = replace(self.manifest, records=tuple(earlier))

    def _number(self) -> str:
        """No two attempts of a writer share a name."""
        return f"{self.manifest.revision:x}-{self._attempt:x}"


def _with_piece(
    segment: RecordSegment, piece: SegmentPiece, name: str, join_bytes: int
) -> RecordSegment:
    """The segment, longer by a piece: a part of its own, or, where parts are no objects, joined to
    the last one up to `join_bytes`, whose checksums go on."""
    *earlier, last = segment.parts or (None,)
    if last is not None and (name or last.size + piece.size > join_bytes):
        earlier.append(last)
        last = None
    part = ManifestPart(
        last.position if last else piece.start - segment.base,
        piece.size + (last.size if last else 0),
        crc32(piece.records, last.crc if last else 0),
        crc32(piece.units, last.units_crc if last else 0),
        last.first if last else piece.first,
        piece.count + (last.count if last else 0),
        min(piece.begin_ms, last.begin_ms if last else piece.begin_ms),
        max(piece.end_ms, last.end_ms if last else piece.end_ms),
        name,
        piece.place,
    )
    return replace(
        segment,
        size=part.end,
        begin_ms=min(segment.begin_ms, piece.begin_ms),
        end_ms=max(segment.end_ms, piece.end_ms),
        count=segment.count + piece.count,
        parts=(*earlier, part),
    )
