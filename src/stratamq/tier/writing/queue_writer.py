"""One queue's way into the tier: bytes first, then the manifest that names them.

The writer's state is the manifest that it saw last, and its version. A commit computes the next
one, writes what it names, swaps it in, and only then takes it for its state. After an error it is
open whether the swap was done: the next commit loads the manifest, and finds there what is done.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stratamq.formats.tier_manifest import Epoch, Hole, Manifest, encode_manifest
from stratamq.tier.containers.place import QueuePlace, TierLimits
from stratamq.tier.driver.calls import (
    AbsentError,
    AlreadyThereError,
    Delete,
    Listed,
    Load,
    Procedure,
    Size,
    StorageCall,
    Swap,
    SwapLostError,
    Together,
    Unchanged,
    Version,
    WriteAt,
    ask,
)
from stratamq.tier.reading.manifests import manifest_at, parts_by_base
from stratamq.tier.writing.batch import TierBatch, pieces
from stratamq.tier.writing.claim import FencedError, PutBackError
from stratamq.tier.writing.cutting import shortened
from stratamq.tier.writing.holes import Gaps, begins_here, holes_before, recorded
from stratamq.tier.writing.layout import ManifestLayout
from stratamq.tier.writing.merging import merged, run_to_merge
from stratamq.tier.writing.orphans import listed, orphans, taken_out
from stratamq.tier.writing.overlap import OtherMessagesError, first_difference
from stratamq.tier.writing.progress import came_late
from stratamq.tier.writing.retention import plan_expiry, without_first

_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class _Seen:
    """A manifest as it was loaded or swapped in. None: there is none yet."""

    manifest: Manifest | None
    version: Version | None


class TierQueueWriter:
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
        listed: bool = False,
        gaps: Gaps = recorded,
    ) -> None:
        """`replaces`: messages that are not those of the log that is written from leave the tier,
        from the first of a batch on. `listed`: the tier had messages of the queue when it was taken
        over. `gaps`: what is recorded where the log does not go on at the queue's end."""
        self._replaces = replaces
        self._listed = listed
        self._gaps = gaps
        self._revision = 0
        """The highest that was seen."""
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

    def is_of_earlier_term(self, manifest: Manifest) -> bool:
        """Committed by a master before a promotion, after this writer took over: its messages may
        be others than those of this log. Until they are compared nothing else is done to the queue,
        which would give it this writer's epoch. A copy that was made offline is of this log; one
        of a queue that was taken over is an older state of it, which was put back."""
        return not self._listed and came_late(manifest, self._epoch[0])

    def open(self) -> Procedure[Manifest | None]:
        """Load the manifest. FencedError; CorruptRecordError when it cannot be read."""
        return (yield from self._look()).manifest

    def commit(self, batch: TierBatch, now_ms: int, *, may_cut: bool = True) -> Procedure[Manifest]:
        """Everything of the batch is in the tier when this returns, each message once.

        What was there already is left out; a gap between the last message and the batch is
        recorded. FencedError ends the writer; after any other error the same batch may come again.
        OtherMessagesError where the tier has others at its offsets, unless this writer replaces
        them and `may_cut`.
        """
        for _ in range(_ATTEMPTS):
            seen = self._seen or (yield from self._look())
            manifest = seen.manifest
            if manifest is not None and self.is_of_earlier_term(manifest):
                if not may_cut and manifest.records:
                    raise OtherMessagesError(self._place, manifest.minimum, leaves=0)
                yield from self.cut(batch.first, now_ms)
                continue
            if self._positions and self._may_be_written_by_another(manifest):
                # Only then is it looked whether there is more in the files than is named.
                yield from self._sign(seen)
                self._seen = self._longer = None
                continue
            if manifest is not None and not self._compared:
                different = yield from first_difference(self._place, manifest, batch)
                if different is not None:
                    if not (self._replaces and may_cut):
                        raise OtherMessagesError(self._place, different, leaves=batch.first)
                    yield from self.cut(batch.first, now_ms)
                    continue
                # A later batch may be the first that differs: it is compared, too.
                self._compared = batch.end >= manifest.end_offset
            rest = batch.behind(manifest.end_offset) if manifest else batch
            if manifest is not None and not len(rest.sizes):
                return manifest
            self._attempt += 1
            layout = self._lay_out(manifest, rest, now_ms)
            if (yield from self._swap(seen, layout.manifest, layout.before)):
                self._longer, self._compared = (False, False), True
                return layout.manifest
        raise FencedError.of_conflicts(self._place.manifest)

    def cut(self, end: int, now_ms: int) -> Procedure[Manifest | None]:
        """Like `take_over`, after the tier was taken over: a queue of an earlier term has arrived
        late and is removed completely. What it has below `end` may be of another log."""
        return (yield from self.take_over(end, now_ms, self._epoch[0]))

    def take_over(
        self,
        end: int,
        now_ms: int,
        generation_before: int = 0,
        *,
        other_log: bool = False,
        end_of: Callable[[Manifest], Procedure[int]] | None = None,
    ) -> Procedure[Manifest | None]:
        """No writer of an earlier epoch can commit to the queue any more, and nothing from queue
        offset `end` on is in the tier; nothing at all of a queue that came late, behind the
        take-over of the progress's `generation_before`. The manifest; None: the tier has nothing.
        `end_of`: nothing from there on either, by what the manifest has that is replaced.
        `other_log`: what stays was written from a log whose places are not this one's. FencedError.
        """
        for _ in range(_ATTEMPTS):
            seen = self._seen or (yield from self._look())
            if seen.manifest is None:
                return None
            stop = end
            if not self._listed and came_late(seen.manifest, generation_before):
                stop = 0
            elif end_of is not None:
                stop = min(end, (yield from end_of(seen.manifest)))
            cuts = stop < seen.manifest.end_offset
            if not cuts and seen.manifest.epoch == self._epoch:
                return seen.manifest
            following, before = yield from shortened(
                self._place, seen.manifest, stop, self._epoch, self._next_attempt(seen), now_ms
            )
            if other_log:
                following = replace(following, other_log=following.end_offset)
            if (yield from self._swap(seen, following, before)):
                if cuts:
                    self._longer = (True, True)
                return following
        raise FencedError.of_conflicts(self._place.manifest)

    def account(self, end: int, now_ms: int) -> Procedure[Manifest | None]:
        """Every queue offset below `end`, the queue's end, is in the tier or a gap. FencedError."""
        for _ in range(_ATTEMPTS):
            seen = self._seen or (yield from self._look())
            manifest = seen.manifest
            if manifest is not None and self.is_of_earlier_term(manifest):
                return manifest
            holes = holes_before(self._gaps, self._place, manifest, end, now_ms)
            if not holes:
                return manifest
            self._attempt += 1
            layout = self._begin(manifest, holes, end).keep_place(end, now_ms)
            if (yield from self._swap(seen, layout.manifest, layout.before)):
                return layout.manifest
        raise FencedError.of_conflicts(self._place.manifest)

    def merge(self, now_ms: int) -> Procedure[Manifest | None]:
        """Make the last parts one, where there are many small ones. `collect` deletes them later.
        FencedError."""
        for _ in range(_ATTEMPTS):
            seen = self._seen or (yield from self._look())
            if seen.manifest is None or self.is_of_earlier_term(seen.manifest):
                return seen.manifest
            if not (count := run_to_merge(seen.manifest)):
                return seen.manifest
            following, before = yield from merged(
                self._place, seen.manifest, count, self._epoch, self._next_attempt(seen), now_ms
            )
            if (yield from self._swap(seen, following, before)):
                return following
        raise FencedError.of_conflicts(self._place.manifest)

    def expire(self, older_than_ms: int, now_ms: int) -> Procedure[int]:
        """Take out the segments that `plan_expiry` names: how many. `collect` deletes what was in
        them. FencedError."""
        for _ in range(_ATTEMPTS):
            seen = self._seen or (yield from self._look())
            if seen.manifest is None or self.is_of_earlier_term(seen.manifest):
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
        raise FencedError.of_conflicts(self._place.manifest)

    def purge(self, below: int, now_ms: int) -> Procedure[int]:
        """Messages below that queue offset are read no more; segments of no others are taken out:
        how many. FencedError."""
        for _ in range(_ATTEMPTS):
            seen = self._seen or (yield from self._look())
            if seen.manifest is None or self.is_of_earlier_term(seen.manifest):
                return 0
            below = min(below, seen.manifest.end_offset)
            if below <= seen.manifest.minimum:
                return 0
            fates = plan_expiry(seen.manifest, 0, below)
            gone = [fate.segment for fate in fates if fate.goes]
            following = replace(
                seen.manifest, minimum=below, revision=seen.manifest.revision + 1, epoch=self._epoch
            )
            if gone:
                parts_of = yield from parts_by_base(gone)
                following = without_first(
                    replace(seen.manifest, minimum=below),
                    len(gone),
                    self._place,
                    parts_of,
                    self._epoch,
                    now_ms,
                )
            if (yield from self._swap(seen, following, [])):
                return len(gone)
        raise FencedError.of_conflicts(self._place.manifest)

    def collect(self, before_ms: int) -> Procedure[int]:
        """Delete the objects that were taken out before that time: how many. FencedError."""
        for _ in range(_ATTEMPTS):
            seen = self._seen or (yield from self._look())
            if seen.manifest is None or self.is_of_earlier_term(seen.manifest):
                return 0
            due = [one for one in seen.manifest.dropped if one.since_ms < before_ms]
            if not due:
                return 0
            paths = taken_out(self._place, seen.manifest, before_ms)
            deletions = [Delete(path) for path in paths]
            following = replace(
                seen.manifest,
                revision=seen.manifest.revision + 1,
                epoch=self._epoch,
                dropped=tuple(one for one in seen.manifest.dropped if one.since_ms >= before_ms),
            )
            if (yield from self._swap(seen, following, deletions)):
                return len(paths)
        raise FencedError.of_conflicts(self._place.manifest)

    def fence(self) -> Procedure[Manifest]:
        """Let no writer before this one commit any more, also one that has written its parts
        already: the manifest, of a queue that has none an empty one, gets this writer's epoch. Not
        one of an earlier term, which is answered as it is. FencedError."""
        for _ in range(_ATTEMPTS):
            seen = yield from self._look()
            manifest = seen.manifest
            if manifest is not None and (
                manifest.epoch == self._epoch or self.is_of_earlier_term(manifest)
            ):
                return manifest
            signed = yield from self._sign(seen)
            if signed is not None:
                return signed
        raise FencedError.of_conflicts(self._place.manifest)

    def tidy(self, before_ms: int) -> Procedure[list[Listed]]:
        """Like `sweep`, beside earlier writers that may still name what they wrote: they are fenced
        before anything is deleted. Leaves a queue whose messages were not compared with the log
        yet. FencedError."""
        manifest = yield from self.open()
        if manifest is not None and self.is_of_earlier_term(manifest):
            return []
        if not (yield from self.sweep(before_ms, dry_run=True)):
            return []
        if self.is_of_earlier_term((yield from self.fence())):
            return []
        return (yield from self.sweep(before_ms))

    def sweep(self, before_ms: int, *, dry_run: bool = False) -> Procedure[list[Listed]]:
        """Delete what nothing names and was last written before that time: what it was. Nothing may
        be committed meanwhile: FencedError, SwapLostError."""
        objects = yield from listed(self._place)
        seen = yield from self._look()
        found = yield from orphans(objects, self._place, seen.manifest, before_ms)
        if not dry_run:
            unchanged = Unchanged(self._place.manifest, seen.version)
            for one in found:
                yield from ask(Delete(one.path, unchanged))
        return found

    def _swap(
        self, seen: _Seen, following: Manifest, before: Sequence[StorageCall[Any]]
    ) -> Procedure[bool]:
        """Make the calls, then the manifest. False: another writer has changed it, or has an
        object of that name. Until it is swapped in nothing is known of the queue.

        Where names are used again the calls are done only as long as the manifest is the one that
        was seen: a writer that was stopped for long touches no file of its successors.
        """
        self._seen = None
        unchanged = Unchanged(self._place.manifest, seen.version)
        try:
            for call in before:
                if isinstance(call, WriteAt | Delete):
                    call = replace(call, only_if=unchanged)
                yield from ask(call)
            version = yield from ask(
                Swap(self._place.manifest, encode_manifest(following), seen.version)
            )
        except (SwapLostError, AlreadyThereError):
            return False
        self._seen, self._revision = _Seen(following, version), following.revision
        return True

    def _sign(self, seen: _Seen) -> Procedure[Manifest | None]:
        """The manifest as it was seen, or an empty one, with this writer's epoch; None: another
        writer was first."""
        before = seen.manifest or self._empty_manifest()
        following = replace(before, revision=before.revision + 1, epoch=self._epoch)
        return following if (yield from self._swap(seen, following, [])) else None

    def _may_be_written_by_another(self, manifest: Manifest | None) -> bool:
        """Whether an earlier writer, which was stopped, can still write at the places at which this
        one is going to, and commit: until the manifest has this one's epoch."""
        if manifest is None:
            return self._epoch[0] > 0
        return manifest.epoch != self._epoch

    def _next_attempt(self, seen: _Seen) -> str:
        """No two attempts of a writer share a name."""
        self._attempt += 1
        revision = seen.manifest.revision if seen.manifest else 0
        return f"{revision + 1:x}-{self._attempt:x}"

    def _look(self) -> Procedure[_Seen]:
        try:
            raw, version = yield from ask(Load(self._place.manifest))
        except AbsentError:
            if self._revision:
                raise PutBackError.of_revision(self._place.manifest, 0, self._revision) from None
            self._seen = _Seen(None, None)
            return self._seen
        manifest = manifest_at(self._place, raw)
        if manifest.revision < self._revision:
            raise PutBackError.of_revision(self._place.manifest, manifest.revision, self._revision)
        self._revision = manifest.revision
        if manifest.epoch > self._epoch:
            raise FencedError(
                f"{self._place.manifest} was written by writer {manifest.epoch}; this one is "
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

    def _lay_out(self, old: Manifest | None, batch: TierBatch, now_ms: int) -> ManifestLayout:
        """The next manifest, and the calls before it. No call is made, no state is changed."""
        holes = holes_before(self._gaps, self._place, old, batch.first, now_ms)
        layout = self._begin(old, holes, batch.first)
        longer_records, longer_units = self._longer or (False, False)
        begins = begins_here(old)
        fresh = begins or longer_records or bool(holes) or layout.is_due(now_ms)
        fresh_units = longer_units or begins or not layout.units_go_on_at(batch.first)
        place = old.end if old is not None and old.records else 0
        room = 0 if fresh else layout.room()
        for piece in pieces(batch, place, room, self._limits.record_segment_bytes):
            layout.add_records(piece)
            if self._positions:
                layout.add_units(piece, fresh_units)
                fresh_units = False
        return layout

    def _begin(self, old: Manifest | None, holes: tuple[Hole, ...], end: int) -> ManifestLayout:
        """The next manifest, which goes on at queue offset `end`."""
        before = old or self._empty_manifest()
        if begins_here(old):
            before = replace(before, minimum=holes[0].start if holes else end)
        grown = replace(before, holes=(*before.holes, *holes))
        return ManifestLayout(self._place, self._limits, grown, self._epoch, self._attempt)

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
