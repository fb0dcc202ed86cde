"""What leaves a queue's tier by its age, and what is deleted of it when.

Two steps. A swap takes whole segments out of the front of the manifest and lists their objects in
`dropped`; after a grace time, in which readers of older manifests end, the objects are deleted, and
then leave the list. A crash between deletes them again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.tier_manifest import Dropped, Epoch, Manifest, ManifestPart, RecordSegment
from stratamq.tier.containers.place import QueuePlace


@dataclass(frozen=True, slots=True)
class SegmentFate:
    """One segment of the records, in order, and why it goes or stays."""

    segment: RecordSegment
    goes: bool
    reason: str


def plan_expiry(manifest: Manifest, older_than_ms: int, purged_below: int = 0) -> list[SegmentFate]:
    """Segments go from the front, as long as their last message was stored before that time, or is
    below queue offset `purged_below`."""
    fates: list[SegmentFate] = []
    for segment in manifest.records:
        if segment.size == 0:
            fates.append(SegmentFate(segment, False, "empty: keeps the queue's place"))
        elif fates and not fates[-1].goes:
            fates.append(SegmentFate(segment, False, "behind one that stays"))
        elif segment.end_offset <= purged_below:
            fates.append(SegmentFate(segment, True, f"was purged, below offset {purged_below}"))
        elif segment.end_ms >= older_than_ms:
            fates.append(SegmentFate(segment, False, f"has a message of {segment.end_ms}"))
        else:
            fates.append(SegmentFate(segment, True, f"its last message is of {segment.end_ms}"))
    return fates


def without_first(
    manifest: Manifest,
    count: int,
    place: QueuePlace,
    parts_of: Mapping[int, Iterable[ManifestPart]],
    epoch: Epoch,
    now_ms: int,
) -> Manifest:
    """The next manifest, without its first `count` segments (1 or more). `parts_of`: by base, of
    those that go.

    Of a queue of which everything goes an empty segment stays, which keeps its place and offset.
    """
    gone, kept = manifest.records[:count], manifest.records[count:]
    if not kept:
        last = gone[-1]
        kept = (RecordSegment(last.end, 0, last.end_ms, last.end_ms, last.end_offset, 0),)
    first = kept[0].first
    minimum = max(first, manifest.minimum)
    units = [unit for unit in manifest.units if unit.end <= first * QUEUE_UNIT_BYTES]
    paths = [segment.details for segment in gone if segment.details]
    if manifest.positions:
        paths += [place.record_segment(segment.base) for segment in gone]
        paths += [place.unit_segment(unit.base) for unit in units]
    else:
        paths += [part.name for segment in gone for part in parts_of[segment.base]]
    return replace(
        manifest,
        revision=manifest.revision + 1,
        epoch=epoch,
        minimum=minimum,
        records=kept,
        units=manifest.units[len(units) :],
        holes=tuple(hole for hole in manifest.holes if hole.end > minimum),
        dropped=(*manifest.dropped, *(Dropped(path, now_ms) for path in paths)),
    )
