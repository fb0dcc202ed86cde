"""A queue of a tier of ours, by its manifest."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stratamq.errors import CorruptRecordError
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.tier_manifest import (
    Manifest,
    ManifestPart,
    RecordSegment,
    decode_manifest,
    decode_parts,
)
from stratamq.tier.containers.chain import Chain, Extent, TierSegment
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.containers.queue import TierQueue
from stratamq.tier.driver.calls import AbsentError, Load, Procedure, Together, ask
from stratamq.tier.reading.times import TimePoint

ANOTHERS = "queue"
"""The reason where a manifest is another queue's."""


@dataclass(frozen=True, slots=True)
class ManifestQueue:
    """`points`: the first message of each part."""

    manifest: Manifest
    queue: TierQueue
    points: tuple[TimePoint, ...]
    parts: tuple[tuple[RecordSegment, tuple[ManifestPart, ...]], ...]


def open_queue(place: QueuePlace) -> Procedure[ManifestQueue | None]:
    """Open the queue in its present state; None: the tier has nothing of it. CorruptRecordError."""
    manifest = yield from load_manifest(place)
    if manifest is None or not manifest.records:
        return None
    return (yield from queue_of(place, manifest))


def load_manifest(place: QueuePlace) -> Procedure[Manifest | None]:
    """None: the queue has none. CorruptRecordError."""
    try:
        raw, _ = yield from ask(Load(place.manifest))
    except AbsentError:
        return None
    return manifest_at(place, raw)


def manifest_at(place: QueuePlace, raw: bytes) -> Manifest:
    """What was loaded from the place of a queue's manifest. CorruptRecordError, which names the
    queue and the path: it is none, or another queue's."""
    where = f"{place.manifest} (queue {place.queue_id} of {place.topic})"
    try:
        manifest = decode_manifest(raw)
    except CorruptRecordError as error:
        raise CorruptRecordError(f"{where}: {error.message}", 0, error.reason) from error
    whose = QueuePlace(manifest.cluster, manifest.broker, manifest.topic, manifest.queue_id)
    if whose != place:
        raise CorruptRecordError(
            f"{where}: the manifest of another queue, {whose.queue_id} of {whose.topic} of the "
            f"broker {whose.cluster}/{whose.broker}",
            0,
            ANOTHERS,
        )
    return manifest


def load_manifests(places: Sequence[QueuePlace]) -> Procedure[list[Manifest]]:
    """Load the manifests of all places, in parallel. CorruptRecordError."""
    found: list[Manifest] = []
    for one in (yield from load_readable(places)):
        if isinstance(one, CorruptRecordError):
            raise one
        found.append(one)
    return found


def load_readable(
    places: Sequence[QueuePlace],
) -> Procedure[list[Manifest | CorruptRecordError]]:
    """Load the manifests of all places, in parallel; unreadable ones are replaced by their
    error.
    """
    loaded = yield from ask(Together([Load(place.manifest) for place in places]))
    return [_read(place, raw) for place, (raw, _) in zip(places, loaded, strict=True)]


def _read(place: QueuePlace, raw: bytes) -> Manifest | CorruptRecordError:
    try:
        return manifest_at(place, raw)
    except CorruptRecordError as error:
        return error


def queue_of(
    place: QueuePlace, manifest: Manifest, known: ManifestQueue | None = None
) -> Procedure[ManifestQueue]:
    """The parts of full segments are loaded, too, but those that `known`, an earlier state of the
    queue, has. CorruptRecordError."""
    earlier = known.parts if known is not None else ()
    listed = {segment.details: parts for segment, parts in earlier if segment.details}
    parts_of = yield from parts_by_base(manifest.records, listed)
    segments = tuple((segment, parts_of[segment.base]) for segment in manifest.records)
    parts = [part for _, parts in segments for part in parts]
    records = Chain(
        [
            TierSegment(
                segment.base,
                segment.size,
                segment.begin_ms,
                segment.end_ms,
                tuple(_record_extents(place, manifest, segment, parts)),
            )
            for segment, parts in segments
        ]
    )
    queue = TierQueue(
        manifest.topic,
        manifest.queue_id,
        records,
        Chain(list(_unit_segments(place, manifest, parts))),
        manifest.minimum,
        tuple((hole.start, hole.end) for hole in manifest.holes),
        tuple((hole.start, hole.end) for hole in manifest.lost),
    )
    points = tuple(TimePoint(part.first, part.begin_ms) for part in parts)
    return ManifestQueue(manifest, queue, points, segments)


def parts_by_base(
    segments: Sequence[RecordSegment], known: Mapping[str, tuple[ManifestPart, ...]] | None = None
) -> Procedure[dict[int, tuple[ManifestPart, ...]]]:
    """The parts of each segment; those of full ones are loaded, unless they are `known` by the
    names of their lists, which never change. CorruptRecordError."""
    known = known or {}
    full = [segment for segment in segments if segment.details and segment.details not in known]
    loaded = yield from ask(Together([Load(segment.details) for segment in full]))
    found = {segment.base: known.get(segment.details, segment.parts) for segment in segments}
    for segment, (raw, _) in zip(full, loaded, strict=True):
        found[segment.base] = _parts_of(segment, raw)
    return found


def _parts_of(segment: RecordSegment, raw: bytes) -> tuple[ManifestPart, ...]:
    try:
        return decode_parts(raw, segment)
    except CorruptRecordError as error:
        raise CorruptRecordError(f"{segment.details}: {error.message}", 0, error.reason) from error


def _record_extents(
    place: QueuePlace, manifest: Manifest, segment: RecordSegment, parts: tuple[ManifestPart, ...]
) -> Iterator[Extent]:
    if manifest.positions:
        yield Extent(0, segment.size, place.record_segment(segment.base))
        return
    for part in parts:
        yield Extent(part.position, part.size, part.name)


def _unit_segments(
    place: QueuePlace, manifest: Manifest, parts: list[ManifestPart]
) -> Iterator[TierSegment]:
    if manifest.positions:
        for unit in manifest.units:
            extent = Extent(0, unit.size, place.unit_segment(unit.base))
            yield TierSegment(unit.base, unit.size, unit.begin_ms, unit.end_ms, (extent,))
        return
    for part in parts:
        size = part.count * QUEUE_UNIT_BYTES
        extent = Extent(0, size, part.name, part.size)
        yield TierSegment(
            part.first * QUEUE_UNIT_BYTES, size, part.begin_ms, part.end_ms, (extent,)
        )
