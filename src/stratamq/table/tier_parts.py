"""A tier of ours as record batches: what of it is wanted, as parts that can be read independently.

A part is what a queue's manifest names as one: records of consecutive messages, committed together.
Physical offsets are of the log, which a message in the tier has left: the column has
`NOT_IN_THE_LOG`.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from stratamq.errors import (
    CorruptionError,
    CorruptRecordError,
    InvalidRequestError,
    LostMessagesError,
    NotFoundError,
)
from stratamq.formats.columns import FrameColumns, columns_at
from stratamq.formats.crc import crc32
from stratamq.formats.dispatch import scan_lengths
from stratamq.formats.frame_verify import damage_in, first_damaged
from stratamq.formats.log_damage import Damage
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.queue_units import decode_units
from stratamq.formats.tier_manifest import ManifestPart
from stratamq.formats.tier_progress import QueueName
from stratamq.table.decode import Decoder, Packed
from stratamq.table.part_reader import OnDamage
from stratamq.table.selection import Covered, Selection
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.driver.calls import Procedure, Read, Together, ask
from stratamq.tier.reading.contents import brokers
from stratamq.tier.reading.manifests import ManifestQueue, open_queue
from stratamq.tier.reading.queue_list import load_queue_list, missing, missing_queues
from stratamq.tier.reading.records import cut_records
from stratamq.tier.reading.verify import queues_of

NOT_IN_THE_LOG = -1
AT_ONCE_BYTES = 16 << 20
AT_ONCE_PARTS = 64
_FOR_EVER_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class TierName:
    """A broker's tier. `target`: a directory, or an object store's URL. None: the only one there
    is."""

    target: str
    cluster: str | None = None
    broker: str | None = None


@dataclass(frozen=True, slots=True)
class TierPart:
    """Can be pickled. `start`: place of the first record in the queue's tier file. `records` and
    `units` are joined."""

    place: QueuePlace
    start: int
    part: ManifestPart
    records: tuple[Read, ...]
    units: tuple[Read, ...]


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """For one queue: the parts that can hold selected messages, and what the tier has of the
    queue.
    """

    place: QueuePlace
    parts: tuple[TierPart, ...]
    covered: Covered
    lost: tuple[tuple[int, int], ...] = ()
    """Queue offsets [from, to) that may hold something wanted, and are in neither tier nor log."""

    def require_not_lost(self, on_damage: OnDamage | None) -> None:
        """LostMessagesError, unless `on_damage` is told."""
        for start, end in self.lost:
            if on_damage is None:
                raise LostMessagesError.of_queue(self.place.topic, self.place.queue_id, start, end)
            on_damage(self.place.manifest, Damage(start, end, "lost"))


def chosen_broker(name: TierName) -> Procedure[tuple[str, str]]:
    """Cluster and broker. NotFoundError, or InvalidRequestError where there are several."""
    found = yield from brokers()
    fitting = [
        (cluster, broker)
        for cluster, broker in found
        if name.cluster in (None, cluster) and name.broker in (None, broker)
    ]
    if len(fitting) == 1:
        return fitting[0]
    known = ", ".join(f"{broker} of {cluster}" for cluster, broker in found[:20])
    if not fitting:
        there = f"there are: {known}" if found else "it is empty"
        raise NotFoundError(f"{name.target} has no such tier; {there}")
    raise InvalidRequestError(
        f"{name.target} has the tiers of several brokers ({known}): name cluster and broker"
    )


def plan_queue(
    place: QueuePlace,
    selection: Selection,
    first: int = 0,
    *,
    listed: Collection[QueueName] = (),
) -> Procedure[QueuePlan | None]:
    """Plan from queue offset `first` on, from the tier's present state; None: the tier has nothing
    of the queue.

    Raises CorruptRecordError, also if the tier has nothing of a queue that is `listed`.
    """
    found = yield from open_queue(place)
    if found is None and (place.topic, place.queue_id) in listed:
        raise missing(place)
    if found is None or not (found.queue.end or found.manifest.lost):
        return None
    segments = [segment for segment in found.manifest.records if segment.count]
    last_ms = max((segment.end_ms for segment in segments), default=0)
    begin, end = max(first, found.queue.minimum), found.queue.end
    return QueuePlan(
        place,
        tuple(_wanted_parts(place, found, selection, begin)) if begin < end else (),
        Covered(begin, max(begin, end), last_ms),
        tuple(_lost(found, selection, begin)),
    )


def wanted_queues(
    cluster: str, broker: str, selection: Selection
) -> Procedure[tuple[list[QueuePlace], set[QueueName]]]:
    """Queues of the wanted topics, also those of which the manifest is gone; and the list of queues
    that the tier has had."""
    listed = yield from load_queue_list(cluster, broker)
    there = yield from queues_of(cluster, broker, selection.wants_topic)
    gone = missing_queues(cluster, broker, listed, there)
    return [*there, *(one for one in gone if selection.wants_topic(one.topic))], listed


def _lost(found: ManifestQueue, selection: Selection, begin: int) -> Iterator[tuple[int, int]]:
    """Holes of lost messages that may be wanted, by the times of the parts around them."""
    low, high = selection.span_of(found.manifest.topic, found.manifest.queue_id) or (0, 0)
    parts = [part for _, parts in found.parts for part in parts]
    for hole in found.manifest.lost:
        first, end = max(begin, low, hole.start), min(high, hole.end)
        earliest = max((one.end_ms for one in parts if one.first < hole.start), default=0)
        latest = min((one.begin_ms for one in parts if one.first >= hole.end), default=_FOR_EVER_MS)
        later = selection.since_ms is None or selection.since_ms <= latest
        earlier = selection.until_ms is None or selection.until_ms > earliest
        if first < end and later and earlier:
            yield first, end


def _wanted_parts(
    place: QueuePlace, found: ManifestQueue, selection: Selection, begin: int
) -> Iterator[TierPart]:
    span = selection.span_of(place.topic, place.queue_id)
    if span is None:
        return
    low, high = max(begin, span[0]), span[1]
    since, until = selection.since_ms, selection.until_ms
    for segment, parts in found.parts:
        for part in parts:
            if part.first >= high or part.first + part.count <= low:
                continue
            if since is not None and part.end_ms < since:
                continue
            if until is not None and part.begin_ms >= until:
                continue
            start = segment.base + part.position
            records = found.queue.records.calls(start, part.size)
            units = found.queue.units.calls(
                part.first * QUEUE_UNIT_BYTES, part.count * QUEUE_UNIT_BYTES
            )
            yield TierPart(place, start, part, tuple(records), tuple(units))


def in_groups(
    parts: Iterable[TierPart], most_bytes: int, most_parts: int = AT_ONCE_PARTS
) -> Iterator[list[TierPart]]:
    """One behind the other, up to so many bytes together, or one part."""
    group: list[TierPart] = []
    size = 0
    for part in parts:
        if group and (size + part.part.size > most_bytes or len(group) == most_parts):
            yield group
            group, size = [], 0
        group.append(part)
        size += part.part.size
    if group:
        yield group


@dataclass(frozen=True, slots=True)
class TierDecoder:
    """`verify` holds parts and records against their checksums. `on_damage` gets object and
    stretch of what is passed over; without it the first damage is a CorruptionError."""

    decoder: Decoder
    selection: Selection
    verify: bool = True
    on_damage: OnDamage | None = None

    def read(
        self, parts: Sequence[TierPart], first: int = 0
    ) -> Procedure[Iterator[pa.RecordBatch]]:
        """Batches of each part that has something wanted, from queue offset `first` on; bodies are
        decompressed as they are asked for. AbsentError when retention has taken a part."""
        calls = [call for part in parts for call in part.records]
        raw = iter((yield from ask(Together(calls))))
        found: list[Packed] = []
        for part in parts:
            data = b"".join([next(raw) for _ in part.records])
            try:
                packed = self._packed(data, first, part.part.crc)
            except CorruptRecordError as error:
                data = yield from self._good(part, data, error.reason)
                packed = self._packed(data, first, None)
            if packed is not None:
                found.append(packed)
        return (_placeless(batch) for one in found for batch in self.decoder.unpacked(one))

    def _packed(self, data: bytes, first: int, crc: int | None) -> Packed | None:
        if self.verify and crc is not None and crc32(data) != crc:
            raise CorruptRecordError("the part differs from its checksum", 0, "part_crc")
        if not data:
            return None
        sizes = scan_lengths(data, 0, len(data)).astype(np.int64)
        starts = sizes.cumsum() - sizes
        if self.verify and (found := first_damaged(data, starts, sizes)) is not None:
            raise CorruptRecordError("a record is damaged", int(starts[found[0]]), found[1])
        raw = np.frombuffer(data, np.uint8)
        frames = self._wanted(raw, columns_at(raw, starts, sizes), first)
        return self.decoder.packed(raw, frames) if len(frames) else None

    def _wanted(self, raw: "np.ndarray", frames: FrameColumns, first: int) -> FrameColumns:
        # Log offsets say nothing about what is in the tier.
        rows = replace(self.selection, physical=None, elsewhere={}).rows(raw, frames)
        mask = frames.queue_offset >= first
        if rows is not None:
            chosen = np.zeros(len(frames), np.bool_)
            chosen[rows] = True
            mask &= chosen
        if mask.all():
            return frames
        return columns_at(raw, frames.start[mask], frames.size[mask])

    def _good(self, part: TierPart, data: bytes, reason: str) -> Procedure[bytes]:
        """The records of a damaged part that are whole."""
        path, start = part.records[0].path, part.records[0].start
        first, end = part.part.first, part.part.first + part.part.count
        if self.on_damage is None:
            raise CorruptionError(
                f"{path}: queue {part.place.queue_id} of {part.place.topic} is damaged in the "
                f"tier, at byte {start}, in the part of queue offsets {first} to {end} ({reason}): "
                "restore the queue from the broker's log or a backup, or read on behind it",
                path,
                start,
            )
        units = b"".join((yield from ask(Together(part.units))))
        messages = cut_records(decode_units(units), first, data, part.start)
        good = [bytes(one.record) for one in messages if not damage_in(one.record)]
        self.on_damage(path, Damage(start, start + part.part.size, reason))
        return b"".join(good)


def _placeless(batch: pa.RecordBatch) -> pa.RecordBatch:
    number = batch.schema.get_field_index("physicalOffset")
    if number < 0:
        return batch
    places = pa.array(np.full(batch.num_rows, NOT_IN_THE_LOG, np.int64))
    return batch.set_column(number, batch.schema.field(number), places)
