"""A queue's manifest: what of it is in the tier, and where. JSON, one object per queue.

    {"format": 1, "cluster", "broker", "topic", "queueId",
     "revision": 12, "epoch": [generation, start], "positions": true, "minimum": 0, "otherLog": 0,
     "records": [segment…], "units": [[base, size, begin, end]…],
     "holes": [[from, to, at] or [from, to, at, true]…],
     "dropped": [[path, at]…]}

    segment   {"base", "size", "begin", "end", "first", "count", "parts": [part…]}
              when it is full: "details", the path of an object with its parts, for "parts"
    part      [position, size, crc, unitsCrc, first, count, begin, end, name, place]

`position` is in the segment; `first` and `count` are queue offsets; times are milliseconds; `crc`
is the CRC-32 of the records, `unitsCrc` of their units; `place` the log offset of the last message,
or -1, in the log that wrote the queue offsets from `otherLog` on. The messages of a hole with
`true` were in the tier, or should have been: they are lost. `units` is empty and `name` set where
the storage has no positions: the object `name` has the records, then their units.
"""

import json
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from stratamq.errors import CorruptRecordError
from stratamq.formats.numbers import INT32_MAX, INT64_MAX
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES

FORMAT = 1
MANIFEST_NAME = "stratamq-manifest.json"

Epoch = tuple[int, int]
"""[generation of the log, starts of the writer in it]: later ones are above earlier ones."""


@dataclass(frozen=True, slots=True)
class ManifestPart:
    """Records of consecutive messages that were committed together."""

    position: int
    size: int
    crc: int
    units_crc: int
    first: int
    count: int
    begin_ms: int
    end_ms: int
    name: str = ""
    place: int = -1
    """The log offset of the last message; -1: not known."""

    @property
    def end(self) -> int:
        return self.position + self.size


_part_row = attrgetter(*(one.name for one in fields(ManifestPart)))


@dataclass(frozen=True, slots=True)
class RecordSegment:
    """`parts` and `details`: one of the two; neither in one that retention has left empty, which
    keeps the place of the next record and its queue offset."""

    base: int
    size: int
    begin_ms: int
    end_ms: int
    first: int
    count: int
    parts: tuple[ManifestPart, ...] = ()
    details: str = ""

    @property
    def end(self) -> int:
        return self.base + self.size

    @property
    def end_offset(self) -> int:
        return self.first + self.count


@dataclass(frozen=True, slots=True)
class UnitSegment:
    """Bytes of the consume queue; 20 for each message."""

    base: int
    size: int
    begin_ms: int
    end_ms: int

    @property
    def end(self) -> int:
        return self.base + self.size


@dataclass(frozen=True, slots=True)
class Hole:
    """Queue offsets [start, end) that the log had no more when the tier came to them. `lost`: not
    for a reason that is known, so that the tier had them once, or should have."""

    start: int
    end: int
    found_ms: int
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Dropped:
    """An object that no reader of this manifest needs; deleted some time after `since_ms`."""

    path: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """`records` has at least one segment; none while the first is laid out, and where the manifest
    only keeps earlier writers away (`QueueWriter.fence`)."""

    cluster: str
    broker: str
    topic: str
    queue_id: int
    revision: int
    epoch: Epoch
    positions: bool
    minimum: int
    records: tuple[RecordSegment, ...] = ()
    units: tuple[UnitSegment, ...] = ()
    holes: tuple[Hole, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    other_log: int = 0
    """Places of parts below this queue offset are those of another log: the broker was restored."""

    @property
    def key(self) -> tuple[str, int]:
        """Topic and queue."""
        return self.topic, self.queue_id

    @property
    def lost(self) -> tuple[Hole, ...]:
        """Those holes that were in the tier once, or should have been."""
        return tuple(hole for hole in self.holes if hole.lost)

    @property
    def end_offset(self) -> int:
        """One past the last queue offset that is committed."""
        return self.records[-1].end_offset if self.records else self.minimum

    @property
    def end(self) -> int:
        """One past the last byte of the records."""
        return self.records[-1].end if self.records else 0


def encode_manifest(manifest: Manifest) -> bytes:
    document = {
        "format": FORMAT,
        "cluster": manifest.cluster,
        "broker": manifest.broker,
        "topic": manifest.topic,
        "queueId": manifest.queue_id,
        "revision": manifest.revision,
        "epoch": list(manifest.epoch),
        "positions": manifest.positions,
        "minimum": manifest.minimum,
        "otherLog": manifest.other_log,
        "records": [_segment_document(segment) for segment in manifest.records],
        "units": [[unit.base, unit.size, unit.begin_ms, unit.end_ms] for unit in manifest.units],
        "holes": [_hole_row(hole) for hole in manifest.holes],
        "dropped": [[dropped.path, dropped.since_ms] for dropped in manifest.dropped],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode_manifest(raw: bytes) -> Manifest:
    """CorruptRecordError (reason `json`) for what is none, or is of a later format; for numbers
    that none of its fields can have, and for segments, parts, units and holes that cannot all be
    there."""
    try:
        document = json.loads(raw)
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']}, and this release knows {FORMAT}")
        generation, start = document["epoch"]
        manifest = Manifest(
            _text(document["cluster"]),
            _text(document["broker"]),
            _text(document["topic"]),
            _number(document["queueId"], most=INT32_MAX),
            _number(document["revision"]),
            (_number(generation), _number(start)),
            bool(document["positions"]),
            _number(document["minimum"], most=_MAX_MESSAGES),
            tuple(_segment(segment) for segment in document["records"]),
            tuple(_unit_segment(*unit) for unit in document["units"]),
            tuple(_hole(*hole) for hole in document["holes"]),
            tuple(Dropped(_text(path), _time(since)) for path, since in document["dropped"]),
            _number(document.get("otherLog", 0)),
        )
        _require_consistent(manifest)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CorruptRecordError(f"no manifest of a tier: {_named(error)}", 0, "json") from error
    return manifest


def encode_parts(parts: tuple[ManifestPart, ...]) -> bytes:
    """The object of a full segment's parts."""
    return json.dumps([_part_row(part) for part in parts], separators=(",", ":")).encode()


def decode_parts(raw: bytes, segment: RecordSegment) -> tuple[ManifestPart, ...]:
    """The parts of a full segment. CorruptRecordError (reason `json`), also where they are not all
    of the segment."""
    try:
        parts = tuple(_part(row) for row in json.loads(raw))
        _require_all_of(segment, parts)
        return parts
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CorruptRecordError(f"no list of parts: {_named(error)}", 0, "json") from error


def _segment_document(segment: RecordSegment) -> dict[str, Any]:
    document: dict[str, Any] = {
        "base": segment.base,
        "size": segment.size,
        "begin": segment.begin_ms,
        "end": segment.end_ms,
        "first": segment.first,
        "count": segment.count,
    }
    if segment.details:
        document["details"] = segment.details
    else:
        document["parts"] = [_part_row(part) for part in segment.parts]
    return document


def _segment(document: dict[str, Any]) -> RecordSegment:
    return RecordSegment(
        _number(document["base"]),
        _number(document["size"]),
        _time(document["begin"]),
        _time(document["end"]),
        _number(document["first"]),
        _number(document["count"]),
        tuple(_part(row) for row in document.get("parts", ())),
        _text(document.get("details", "")),
    )


def _unit_segment(base: object, size: object, begin_ms: object, end_ms: object) -> UnitSegment:
    return UnitSegment(_number(base), _number(size), _time(begin_ms), _time(end_ms))


def _hole(start: object, end: object, found_ms: object, lost: object = False) -> Hole:
    return Hole(_number(start), _number(end), _time(found_ms), bool(lost))


def _hole_row(hole: Hole) -> list[Any]:
    return [hole.start, hole.end, hole.found_ms, *([True] if hole.lost else [])]


def _part(row: list[Any]) -> ManifestPart:
    *numbers, begin_ms, end_ms, name = row[:9]
    position, size, crc, units_crc, first, count = map(_number, numbers)
    begin_ms, end_ms, name = _time(begin_ms), _time(end_ms), _text(name)
    place = _number(row[9], least=-1) if len(row) > 9 else -1
    return ManifestPart(position, size, crc, units_crc, first, count, begin_ms, end_ms, name, place)


_MAX_MESSAGES = INT64_MAX // QUEUE_UNIT_BYTES
"""The most messages in a queue: the bytes of the consume queue are counted in 64 bits."""


def _number(value: object, least: int = 0, most: int = INT64_MAX) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is not a whole number")
    if not least <= value <= most:
        raise ValueError(f"{value} is not in {least} to {most}")
    return value


def _time(value: object) -> int:
    return _number(value, least=-INT64_MAX)


def _text(value: object) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r} is not a text")
    return value


def _named(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _require_consistent(manifest: Manifest) -> None:
    """ValueError for what contradicts itself."""
    end = manifest.end_offset
    if end > _MAX_MESSAGES:
        raise ValueError(f"the queue ends at offset {end}")
    if manifest.minimum > end:
        raise ValueError(f"it begins at offset {manifest.minimum} and ends at {end}")
    records = [(one.base, one.end) for one in manifest.records]
    _require_apart("segments of records", records, INT64_MAX)
    offsets = [(one.first, one.end_offset) for one in manifest.records]
    _require_apart("queue offsets of segments", offsets, end)
    holes = [(one.start, one.end) for one in manifest.holes]
    _require_apart("segments and gaps", sorted([*offsets, *holes]), end)
    for segment in manifest.records:
        if not segment.details:
            _require_all_of(segment, segment.parts)
        if any(bool(part.name) is manifest.positions for part in segment.parts):
            raise ValueError("parts are objects where there are no positions, and only there")
    units = [(one.base, one.end) for one in manifest.units]
    _require_apart("segments of units", units, end * QUEUE_UNIT_BYTES)
    if any(low % QUEUE_UNIT_BYTES or high % QUEUE_UNIT_BYTES for low, high in units):
        raise ValueError("a unit is not whole")
    if manifest.positions and manifest.records and manifest.records[-1].count:
        last = units[-1][1] // QUEUE_UNIT_BYTES if units else 0
        if last != end:
            raise ValueError(f"the records end at offset {end}, their units at {last}")


def _require_all_of(segment: RecordSegment, parts: tuple[ManifestPart, ...]) -> None:
    """ValueError unless the parts are the segment, one behind the other."""
    position, offset = 0, segment.first
    for part in parts:
        if (part.position, part.first) != (position, offset):
            raise ValueError(
                f"a part at {part.position} of offset {part.first}, behind {position} and {offset}"
            )
        position, offset = part.end, offset + part.count
    if (position, offset) != (segment.size, segment.end_offset):
        raise ValueError(
            f"the parts of a segment end at {position} and offset {offset}, and it ends at "
            f"{segment.size} and {segment.end_offset}"
        )


def _require_apart(what: str, ranges: list[tuple[int, int]], most: int) -> None:
    """ValueError unless each of them is behind the one before it, all in [0, most]."""
    reached = 0
    for low, high in ranges:
        if not reached <= low <= high <= most:
            raise ValueError(
                f"{what}: [{low}, {high}) is not behind {reached}, or goes beyond {most}"
            )
        reached = high
