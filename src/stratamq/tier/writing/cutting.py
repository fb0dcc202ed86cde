"""A queue's manifest without its last messages: what a new master's log does not have.

A broker that takes messages without waiting for its slaves may have uploaded some that the slave
promoted in its place never received. Their queue offsets are given to other messages there, so they
leave the tier before anything is added.
"""

from dataclasses import replace
from typing import Any

from stratamq.formats.crc import crc32
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.tier_manifest import (
    Dropped,
    Epoch,
    Manifest,
    ManifestPart,
    RecordSegment,
    UnitSegment,
)
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.containers.queue import TierQueue
from stratamq.tier.driver.calls import Create, Procedure, StorageCall
from stratamq.tier.reading.manifests import ManifestQueue, queue_of


def shortened(
    place: QueuePlace, manifest: Manifest, end: int, epoch: Epoch, attempt: str, now_ms: int
) -> Procedure[tuple[Manifest, list[StorageCall[Any]]]]:
    """Return the next manifest, of `epoch`, without the messages from queue offset `end` on, and
    the calls that must precede it. `attempt` is part of the name of an object that is rewritten. If
    retention had deleted beyond `end`, the queue restarts there: its offsets are given to other
    messages.

    What is added to it later begins a new segment; if the cut is at the beginning of a file, in
    that file.
    """
    if end >= manifest.end_offset:
        return replace(manifest, revision=manifest.revision + 1, epoch=epoch), []
    found = yield from queue_of(place, manifest)
    end = next((hole.start for hole in manifest.holes if hole.start < end <= hole.end), end)
    stop = yield from _place_of(found.queue, manifest, end)
    kept: list[RecordSegment] = []
    gone: list[str] = []
    calls: list[StorageCall[Any]] = []
    for segment, parts in found.parts:
        if segment.size and segment.end <= stop:
            kept.append(segment)
            continue
        staying = [part for part in parts if segment.base + part.end <= stop]
        going = parts[len(staying) :]
        if going and segment.base + going[0].position < stop:
            part, data = yield from _first_half(found, segment, going[0], stop)
            if part.name:
                name = place.part(segment.base, part.position, epoch, f"{attempt}-cut")
                part = replace(part, name=name)
                calls.append(Create(name, data))
            staying.append(part)
        gone += [part.name for part in going if part.name]
        gone += [segment.details] if segment.details else []
        if staying:
            kept.append(_of_parts(segment, tuple(staying)))
        elif manifest.positions and segment.base != stop:
            gone.append(place.record_segment(segment.base))
    kept.append(_empty(manifest, stop, end))
    units, unit_files = _shorter_units(place, manifest, end)
    return replace(
        manifest,
        revision=manifest.revision + 1,
        epoch=epoch,
        minimum=min(end, manifest.minimum),
        other_log=min(end, manifest.other_log),
        records=tuple(kept),
        units=units,
        holes=tuple(hole for hole in manifest.holes if hole.end <= end),
        dropped=(*manifest.dropped, *(Dropped(path, now_ms) for path in gone + unit_files)),
    ), calls


def first_not_shared(found: ManifestQueue, shared: int) -> int:
    """A queue offset below which every message of the tier lies below log offset `shared`: whole
    parts of which that is known. For where the log has deleted the messages that would tell."""
    for _, parts in found.parts:
        for part in parts:
            if part.first + part.count > found.manifest.other_log and part.place >= shared:
                return max(part.first, found.manifest.minimum)
    return found.manifest.end_offset


def _place_of(queue: TierQueue, manifest: Manifest, offset: int) -> Procedure[int]:
    """Where the record of a queue offset begins; the first place of all when nothing stays."""
    if offset <= manifest.minimum:
        return manifest.records[0].base
    unit = yield from queue.read_units(offset - 1, 1)
    return int(unit["physical_offset"][0]) + int(unit["size"][0])


def _first_half(
    found: ManifestQueue, segment: RecordSegment, part: ManifestPart, stop: int
) -> Procedure[tuple[ManifestPart, bytes]]:
    """The part up to `stop`: its records, then their units."""
    start = segment.base + part.position
    records = yield from found.queue.records.read(start, stop - start)
    units = yield from found.queue.units.read(
        part.first * QUEUE_UNIT_BYTES, part.count * QUEUE_UNIT_BYTES
    )
    count, position = 0, 0
    while position < len(records):
        position += int.from_bytes(records[position : position + 4], "big")
        count += 1
    units = units[: count * QUEUE_UNIT_BYTES]
    half = replace(
        part,
        size=len(records),
        crc=crc32(records),
        units_crc=crc32(units),
        count=count,
        place=-1,
    )
    return half, b"".join((records, units))


def _of_parts(segment: RecordSegment, parts: tuple[ManifestPart, ...]) -> RecordSegment:
    return replace(
        segment,
        size=parts[-1].end,
        end_ms=max(part.end_ms for part in parts),
        count=sum(part.count for part in parts),
        parts=parts,
        details="",
    )


def _empty(manifest: Manifest, stop: int, end: int) -> RecordSegment:
    """Keeps the queue's end."""
    last = manifest.records[-1]
    return RecordSegment(stop, 0, last.end_ms, last.end_ms, end, 0)


def _shorter_units(
    place: QueuePlace, manifest: Manifest, end: int
) -> tuple[tuple[UnitSegment, ...], list[str]]:
    """The units' files below queue offset `end`, and the files that go; one that the next unit will
    be the first of stays."""
    limit = end * QUEUE_UNIT_BYTES
    kept = tuple(
        replace(unit, size=min(unit.size, limit - unit.base))
        for unit in manifest.units
        if unit.base < limit
    )
    gone = [place.unit_segment(unit.base) for unit in manifest.units if unit.base > limit]
    return kept, gone
