"""One queue's way into the tier: bytes first, then the manifest that names them.

The writer's state is the manifest that it saw last, and its version. A commit computes the next
one, writes what it names, swaps it in, and only then takes it for its state. After an error it is
open whether the swap was done: the next commit loads the manifest, and finds there what is done.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from stratamq.formats.crc import crc32
from stratamq.formats.generation_number import term_of
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.tier_manifest import (
    Epoch,
    Hole,
    Manifest,
    Part,
    RecordSegment,
    UnitSegment,
    decode_manifest,
    encode_manifest,
    encode_parts,
)
from stratamq.tier.containers.place import QueuePlace, TierLimits
from stratamq.tier.driver.calls import (
    AbsentError,
    AlreadyThereError,
    Call,
    Create,
    Delete,
    Listed,
    Load,
    Procedure,
    Size,
    Swap,
    SwapLostError,
    Together,
    Version,
    WriteAt,
    ask,
)
from stratamq.tier.reading.manifests import parts_by_base
from stratamq.tier.writing.batch import Batch, Piece, pieces, unit_ranges
from stratamq.tier.writing.claim import FencedError
from stratamq.tier.writing.cutting import shortened
from stratamq.tier.writing.orphans import listed, orphans
from stratamq.tier.writing.overlap import OtherMessagesError, first_difference
from stratamq.tier.writing.retention import plan_expiry, without_first

_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class _Seen:
    """A manifest as it was loaded or swapped in. None: there is none yet."""

    manifest: Manifest | None
    version: Version | None


class QueueWriter:
    """`positions`: whether the storage writes at positions; `epoch`: from `claim`.

    One procedure of a writer at a time.
    """

    def __init__(
        self,
        place: QueuePlace,
        epoch: Epoch,
        positions: bool,
        limits: TierLimits,
        *,
        replaces: bool = False,
    ) -> None:
        """`replaces`: messages that are not those of the log that is written from leave the tier,
        from the first of a batch on."""
        self._replaces = replaces
        self._place = place
        self._epoch = epoch
        self._positions = positions
        self._limits = limits
        self._seen: _Seen | None = None
        self._longer: tuple[bool, bool] | None = None
        self._compared = False
        """What the manifest has is known to be of the log that is written from."""
        self._attempt = 0

    @property
    def manifest(self) -> Manifest | None:
        """What is committed, as far as this writer knows."""
        return self._seen.manifest if self._seen else None

    def open(self) -> Procedure[Manifest | None]:
        """Load the manifest. FencedError; CorruptRecordError when it cannot be read."""
        return (yield from self._look()).manifest

    def commit(self, batch: Batch, now_ms: int) -> Procedure[Manifest]:
        """Everything of the batch is in the tier when this returns, each message once.

        What was there already is left out; a gap between the last message and the batch is
        recorded. FencedError ends the writer; after any other error the same batch may come again.
        OtherMessagesError where the tier has others at its offsets, unless this writer replaces
        them.
        """
        for _ in range(_ATTEMPTS):
            seen = self._seen or (yield from self._look())
            manifest = seen.manifest
            if manifest is not None and self._is_of_earlier_term(manifest):
                yield from self.take_over(batch.first, now_ms)
                continue
            if manifest is not None and not self._compared:
                different = yield from first_difference(self._place, manifest, batch)
                if different is not None:
                    if not self._replaces:
                        raise OtherMessagesError(self._place, different)
                    yield from self.take_over(batch.first, now_ms)
                    continue
                self._compared = True
            rest = batch.behind(manifest.end_offset) if manifest else batch
            if manifest is not None and not len(rest.sizes):
                return manifest
            self._attempt += 1
            layout = self._lay_out(manifest, rest, now_ms)
            if (yield from self._swap(seen, layout.manifest, layout.before)):
                self._longer, self._compared = (False, False), True
                return layout.manifest
        raise self._outrun()

    def take_over(self, end: int, now_ms: int) -> Procedure[Manifest | None]:
        """No writer of an earlier epoch can commit to the queue any more, and nothing from queue
        offset `end` on is in the tier. The manifest; None: the tier has nothing. FencedError."""
        for _ in range(_ATTEMPTS):
            seen = self._seen or (yield from self._look())
            if seen.manifest is None:
                return None
            cuts = end < seen.manifest.end_offset
            if not cuts and seen.manifest.epoch == self._epoch:
                return seen.manifest
            self._attempt += 1
            attempt = f"{seen.manifest.revision + 1:x}-{self._attempt:x}"
            following, before = yield from shortened(
                self._place, seen.manifest, end, self._epoch, attempt, now_ms
            )
            if (yield from self._swap(seen, following, before)):
                if cuts:
                    self._longer = (True, True)
                return following
        raise self._outrun()

    def expire(self, older_than_ms: int, now_ms: int) -> Procedure[int]:
        """Take out the segments that `plan_expiry` names: how many. `collect` deletes what was in
        them. FencedError."""
        for _ in range(_ATTEMPTS):
            seen = self._seen or (yield from self._look())
            if seen.manifest is None:
                return 0
            gone = [fate.segment for fate in plan_expiry(seen.manifest, older_than_ms) if fate.goes]
            if not gone:
                return 0
            parts_of = yield from parts_by_base(gone)
            following = without_first(
                seen.manifest, len(gone), self._place, parts_of, self._epoch, now_ms
            )
            if (yield from self._swap(seen, following, [])):
                return len(gone)
        raise self._outrun()

    def collect(self, before_ms: int) -> Procedure[int]:
        """Delete the objects that were taken out before that time: how many. FencedError."""
        for _ in range(_ATTEMPTS):
            seen = self._seen or (yield from self._look())
            if seen.manifest is None:
                return 0
            due = [one for one in seen.manifest.dropped if one.since_ms < before_ms]
            if not due:
                return 0
            deletions = [Delete(one.path) for one in due]
            following = replace(
                seen.manifest,
                revision=seen.manifest.revision + 1,
                epoch=self._epoch,
                dropped=tuple(one for one in seen.manifest.dropped if one.since_ms >= before_ms),
            )
            if (yield from self._swap(seen, following, deletions)):
                return len(due)
        raise self._outrun()

    def fence(self) -> Procedure[Manifest]:
        """Let no writer before this one commit any more, also one that has written its parts
        already: the manifest, of a queue that has none an empty one, gets this writer's epoch.
        FencedError."""
        for _ in range(_ATTEMPTS):
            seen = yield from self._look()
            if seen.manifest is not None and seen.manifest.epoch == self._epoch:
                return seen.manifest
            before = seen.manifest or self._empty_manifest()
            following = replace(before, revision=before.revision + 1, epoch=self._epoch)
            if (yield from self._swap(seen, following, [])):
                return following
        raise self._outrun()

    def sweep(self, before_ms: int, *, dry_run: bool = False) -> Procedure[list[Listed]]:
        """Delete what nothing names and was last written before that time: what it was. Nothing may
        be committed meanwhile. FencedError."""
        objects = yield from listed(self._place)
        seen = yield from self._look()
        found = yield from orphans(objects, self._place, seen.manifest, before_ms)
        if not dry_run:
            for one in found:
                yield from ask(Delete(one.path))
        return found

    def _swap(
        self, seen: _Seen, following: Manifest, before: Sequence[Call[Any]]
    ) -> Procedure[bool]:
        """Make the calls, then the manifest. False: another writer has changed it, or has an
        object of that name. Until it is swapped in nothing is known of the queue."""
        self._seen = None
        try:
            for call in before:
                yield from ask(call)
            version = yield from ask(
                Swap(self._place.manifest, encode_manifest(following), seen.version)
            )
        except (SwapLostError, AlreadyThereError):
            return False
        self._seen = _Seen(following, version)
        return True

    def _is_of_earlier_term(self, manifest: Manifest) -> bool:
        """Committed by a master before a promotion, after this writer took over: its messages may
        be others than those of this log. A copy that was made offline is of this log."""
        generation = manifest.epoch[0]
        return generation > 0 and term_of(generation) < term_of(self._epoch[0])

    def _outrun(self) -> FencedError:
        return FencedError(f"{self._place.manifest}: other writers change it all the time")

    def _look(self) -> Procedure[_Seen]:
        try:
            raw, version = yield from ask(Load(self._place.manifest))
        except AbsentError:
            self._seen = _Seen(None, None)
            return self._seen
        manifest = decode_manifest(raw)
        if manifest.epoch > self._epoch:
            raise FencedError(
                f"{self._place.manifest} is of the writer {manifest.epoch}, and this one is "
                f"{self._epoch}: another broker, or another start of this one, writes the tier"
            )
        if self._longer is None:
            self._longer = yield from self._longer_files(manifest)
        self._seen, self._compared = _Seen(manifest, version), False
        return self._seen

    def _longer_files(self, manifest: Manifest) -> Procedure[tuple[bool, bool]]:
        """Whether the files of records and units go on behind what the manifest names: a writer
        before this one had written more."""
        if not self._positions or not manifest.units:
            return False, False
        records, units = manifest.records[-1], manifest.units[-1]
        records_size, units_size = yield from ask(
            Together(
                [
                    Size(self._place.record_segment(records.base)),
                    Size(self._place.unit_segment(units.base)),
                ]
            )
        )
        return (records_size or 0) > records.size, (units_size or 0) > units.size

    def _lay_out(self, old: Manifest | None, batch: Batch, now_ms: int) -> "_Layout":
        """The next manifest, and the calls before it. No call is made, no state is changed."""
        before = old or self._empty_manifest()
        if not before.records:
            before, old = replace(before, minimum=batch.first), None
        layout = _Layout(
            self._place,
            self._limits,
            before,
            self._epoch,
            self._attempt,
        )
        longer_records, longer_units = self._longer or (False, False)
        gap = old is not None and batch.first > old.end_offset
        if gap:
            layout.add_hole(batch.first, now_ms)
        fresh = old is None or longer_records or gap or layout.is_due(now_ms)
        fresh_units = longer_units or gap
        place = old.end if old is not None else 0
        room = 0 if fresh else layout.room()
        for piece in pieces(batch, place, room, self._limits.record_segment_bytes):
            layout.add_records(piece)
            if self._positions:
                layout.add_units(piece, fresh_units)
                fresh_units = False
        return layout

    def _empty_manifest(self) -> Manifest:
        place = self._place
        return Manifest(
            place.cluster,
            place.broker,
            place.topic,
            place.queue_id,
            0,
            self._epoch,
            self._positions,
            0,
        )


class _Layout:
    """The next manifest while pieces are added, and what has to be written before it."""

    def __init__(
        self, place: QueuePlace, limits: TierLimits, old: Manifest, epoch: Epoch, attempt: int
    ) -> None:
        self._place = place
        self._limits = limits
        self._attempt = attempt
        self.manifest = replace(old, revision=old.revision + 1, epoch=epoch)
        self._records: list[Call[object]] = []
        self._units: list[Call[object]] = []
        self._details: list[Call[object]] = []

    @property
    def before(self) -> list[Call[object]]:
        """In this order: records, their units, the lists of parts of segments that are full."""
        return [*self._records, *self._units, *self._details]

    def is_due(self, now_ms: int) -> bool:
        """Whether the last segment is old, and large enough to be left."""
        last = self.manifest.records[-1]
        return (
            last.size >= self._limits.roll_min_bytes
            and last.begin_ms + self._limits.roll_after_ms < now_ms
        )

    def room(self) -> int:
        """Bytes that the last segment may still take."""
        last = self.manifest.records[-1]
        return max(0, self._limits.record_segment_bytes - last.size) if last.size else 0

    def add_hole(self, end: int, now_ms: int) -> None:
        hole = Hole(self.manifest.end_offset, end, now_ms)
        self.manifest = replace(self.manifest, holes=(*self.manifest.holes, hole))

    def add_records(self, piece: Piece) -> None:
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
            self._records.append(Create(name, piece.records + piece.units))
        grown = _with_piece(segment, piece, name, self._limits.join_bytes)
        self.manifest = replace(self.manifest, records=(*earlier, grown))

    def add_units(self, piece: Piece, fresh: bool) -> None:
        """Into the files that they fall into; `fresh`: the first one begins with them."""
        start = piece.first * QUEUE_UNIT_BYTES
        files = list(self.manifest.units)
        open_base = start if fresh or not files else files[-1].base
        units, times = memoryview(piece.units), piece.times
        limit = self._limits.unit_segment_bytes
        for base, count in unit_ranges(piece.first, piece.count, open_base, limit):
            size = count * QUEUE_UNIT_BYTES
            path = self._place.unit_segment(base)
            self._units.append(WriteAt(path, start - base, bytes(units[:size])))
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


def _with_piece(segment: RecordSegment, piece: Piece, name: str, join_bytes: int) -> RecordSegment:
    """The segment, longer by a piece: a part of its own, or, where parts are no objects, joined to
    the last one up to `join_bytes`, whose checksums go on."""
    *earlier, last = segment.parts or (None,)
    if last is not None and (name or last.size + len(piece.records) > join_bytes):
        earlier.append(last)
        last = None
    part = Part(
        last.position if last else piece.start - segment.base,
        len(piece.records) + (last.size if last else 0),
        crc32(piece.records, last.crc if last else 0),
        crc32(piece.units, last.units_crc if last else 0),
        last.first if last else piece.first,
        piece.count + (last.count if last else 0),
        min(piece.begin_ms, last.begin_ms if last else piece.begin_ms),
        max(piece.end_ms, last.end_ms if last else piece.end_ms),
        name,
    )
    return replace(
        segment,
        size=part.end,
        begin_ms=min(segment.begin_ms, piece.begin_ms),
        end_ms=max(segment.end_ms, piece.end_ms),
        count=segment.count + piece.count,
        parts=(*earlier, part),
    )
