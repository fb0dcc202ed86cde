"""Whether a tier of ours is whole: every part, record and unit of a queue, against its manifest."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from stratamq.errors import CorruptionError, OffsetOutOfRangeError
from stratamq.formats.crc import crc32
from stratamq.formats.frame_verify import damage_in
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.queue_units import UnitArray, decode_units
from stratamq.formats.tier_manifest import ManifestPart, RecordSegment
from stratamq.formats.tier_names import INDEX_TOPIC, cluster_folder
from stratamq.formats.tier_records import physical_offset_of
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.driver.calls import AbsentError, Block, Folders, Procedure, Size, ask
from stratamq.tier.reading.manifests import ManifestQueue, open_queue
from stratamq.tier.reading.queue_list import missing
from stratamq.tier.reading.records import cut_records

OnPart = Callable[[int, ManifestPart, Block, UnitArray], None]
_FOREVER = 1 << 62


def _pass_on(start: int, part: ManifestPart, records: Block, units: UnitArray) -> None:
    """Nothing else is asked."""


@dataclass(frozen=True, slots=True)
class Verified:
    """One queue. `faults`: a sentence each."""

    place: QueuePlace
    first: int
    end: int
    messages: int
    bytes: int
    lost: int
    """Messages that never came into the tier."""
    faults: tuple[str, ...]


def queues_of(
    cluster: str,
    broker: str,
    wanted: Callable[[str], bool] = lambda topic: True,
    skips: Callable[[str, int], bool] = lambda topic, queue_id: False,
) -> Procedure[list[QueuePlace]]:
    """Every queue of the broker, of the topics that are `wanted`, that has a manifest; without the
    queues that it `skips`, for which nothing is asked."""
    root = f"{cluster_folder(cluster)}/{broker}"
    found = []
    for topic in (yield from ask(Folders(root))):
        if topic == INDEX_TOPIC or not wanted(topic):
            continue
        for name in (yield from ask(Folders(f"{root}/{topic}"))):
            if not (name.isascii() and name.isdigit()) or skips(topic, int(name)):
                continue
            place = QueuePlace(cluster, broker, topic, int(name))
            if (yield from ask(Size(place.manifest))) is not None:
                found.append(place)
    return sorted(found, key=lambda place: (place.topic, place.queue_id))


def verify_queue(place: QueuePlace, *, listed: bool = False) -> Procedure[Verified]:
    """A part at a time. What cannot be read is a fault, and that nothing is there of a queue that
    is `listed`; StorageUnavailableError is raised."""
    try:
        found = yield from open_queue(place)
    except CorruptionError as error:
        return Verified(place, 0, 0, 0, 0, 0, (error.message,))
    if found is None:
        return Verified(place, 0, 0, 0, 0, 0, (missing(place).message,) if listed else ())
    faults = chain_faults(found)
    parts = yield from verify_parts(found)
    lost = sum(hole.end - hole.start for hole in found.manifest.holes)
    queue = found.queue
    return Verified(
        place,
        queue.minimum,
        queue.end,
        parts.messages,
        parts.bytes,
        lost,
        (*faults, *(fault.sentence for fault in parts.faults)),
    )


@dataclass(frozen=True, slots=True)
class PartFault:
    """`offset`: the first queue offset of the part."""

    offset: int
    sentence: str


@dataclass(frozen=True, slots=True)
class VerifiedParts:
    messages: int
    bytes: int
    faults: tuple[PartFault, ...]


def chain_faults(found: ManifestQueue) -> list[str]:
    """Queue offsets that are lost, and those in no part and in no hole, by the manifest alone."""
    faults = [f"offsets {one.start} to {one.end} are lost" for one in found.manifest.lost]
    reached, ends = None, {hole.end for hole in found.manifest.holes}
    for _, parts in found.parts:
        for part in parts:
            if reached not in (None, part.first) and part.first not in ends:
                faults.append(f"offsets {reached} to {part.first} are in no part and no hole")
            reached = part.first + part.count
    return faults


def verify_parts(
    found: ManifestQueue, begin: int = 0, end: int = _FOREVER, seen: OnPart = _pass_on
) -> Procedure[VerifiedParts]:
    """The parts that begin at queue offsets [begin, end), one at a time. `seen` gets the place, the
    part, its records and its units where both could be read."""
    faults: list[PartFault] = []
    messages = size = 0
    for segment, parts in found.parts:
        for part in parts:
            if begin <= part.first < end:
                sentences = yield from _part_faults(found, segment, part, seen)
                faults += [PartFault(part.first, sentence) for sentence in sentences]
                messages, size = messages + part.count, size + part.size
    return VerifiedParts(messages, size, tuple(faults))


def _part_faults(
    found: ManifestQueue, segment: RecordSegment, part: ManifestPart, seen: OnPart
) -> Procedure[list[str]]:
    what = f"offsets {part.first} to {part.first + part.count}"
    queue, base = found.queue, segment.base + part.position
    try:
        data = yield from queue.records.read(base, part.size)
        raw = yield from queue.units.read(
            part.first * QUEUE_UNIT_BYTES, part.count * QUEUE_UNIT_BYTES
        )
    except (AbsentError, CorruptionError, OffsetOutOfRangeError) as error:
        return [f"{what}: {error.message}"]
    faults = []
    if crc32(data) != part.crc:
        faults.append(f"{what}: the records differ from their checksum")
    if crc32(raw) != part.units_crc:
        faults.append(f"{what}: the units differ from their checksum")
    units = decode_units(raw)
    seen(base, part, data, units)
    faults += [f"{what}: {fault}" for fault in _record_faults(part, data, base, units)]
    return faults


def _record_faults(part: ManifestPart, data: Block, base: int, units: UnitArray) -> Iterator[str]:
    places = units["physical_offset"].astype(np.int64)
    ends = places + units["size"]
    if len(units) and (places[0] != base or (places[1:] != ends[:-1]).any()):
        yield "the units do not name one record behind the other"
    there = 0
    for message in cut_records(units, part.first, data, base):
        there += 1
        place = int(places[message.offset - part.first])
        if physical_offset_of(message.record) != place:
            yield f"the record of offset {message.offset} names another place than its own"
        reason = damage_in(message.record)
        if reason:
            yield f"the record of offset {message.offset} is damaged ({reason})"
    if there != part.count:
        yield f"{part.count - there} records are not what their units name"
