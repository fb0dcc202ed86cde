"""A queue's manifest: what of it is in the tier, and where. JSON, one object per queue.

    {"format": 1, "cluster", "broker", "topic", "queueId",
     "revision": 12, "epoch": [generation, start], "positions": true, "minimum": 0, "otherLog": 0,
     "records": [segment…], "units": [[base, size, begin, end]…], "holes": [[from, to, at]…],
     "dropped": [[path, at]…]}

    segment   {"base", "size", "begin", "end", "first", "count", "parts": [part…]}
              when it is full: "details", the path of an object with its parts, for "parts"
    part      [position, size, crc, unitsCrc, first, count, begin, end, name, place]

`position` is in the segment; `first` and `count` are queue offsets; times are milliseconds; `crc`
is the CRC-32 of the records, `unitsCrc` of their units; `place` the log offset of the last message,
or -1, in the log that wrote the queue offsets from `otherLog` on. `units` is empty and `name` set
where the storage has no positions: the object `name` has the records, then their units.
"""

import json
from dataclasses import dataclass
from typing import Any

from stratamq.errors import CorruptRecordError

FORMAT = 1
MANIFEST_NAME = "stratamq-manifest.json"
WRITER_NAME = "stratamq-writer.json"
PROGRESS_NAME = "stratamq-progress.json"
CONSUMER_OFFSETS_NAME = "stratamq-consumer-offsets.json"

Epoch = tuple[int, int]
"""[generation of the log, starts of the writer in it]: later ones are above earlier ones."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a log's messages are in the tier; offsets are the log's, in bytes.

    `generation`: of the log that this was read from; `position`: every message below it that
    belongs in the tier is there; `reach`: none at or above it is. `revision` counts the changes.
    `history`: that generation and some before it, each with the log offset at which it began.
    """

    generation: int
    position: int
    reach: int
    epoch: Epoch
    revision: int = 0
    history: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
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
    parts: tuple[Part, ...] = ()
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
    """Queue offsets [start, end) that the log had no more when the tier came to them."""

    start: int
    end: int
    found_ms: int


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
        "holes": [[hole.start, hole.end, hole.found_ms] for hole in manifest.holes],
        "dropped": [[dropped.path, dropped.since_ms] for dropped in manifest.dropped],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode_manifest(raw: bytes) -> Manifest:
    """CorruptRecordError (reason `json`) for what is none, or is of a later format."""
    try:
        document = json.loads(raw)
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']}, and this release knows {FORMAT}")
        generation, start = document["epoch"]
        return Manifest(
            str(document["cluster"]),
            str(document["broker"]),
            str(document["topic"]),
            int(document["queueId"]),
            int(document["revision"]),
            (int(generation), int(start)),
            bool(document["positions"]),
            int(document["minimum"]),
            tuple(_segment(segment) for segment in document["records"]),
            tuple(UnitSegment(*map(int, unit)) for unit in document["units"]),
            tuple(Hole(*map(int, hole)) for hole in document["holes"]),
            tuple(Dropped(str(path), int(since)) for path, since in document["dropped"]),
            int(document.get("otherLog", 0)),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CorruptRecordError(f"no manifest of a tier: {error}", 0, "json") from error


def encode_parts(parts: tuple[Part, ...]) -> bytes:
    """The object of a full segment's parts."""
    return json.dumps([_part_row(part) for part in parts], separators=(",", ":")).encode()


def decode_parts(raw: bytes) -> tuple[Part, ...]:
    """CorruptRecordError (reason `json`)."""
    try:
        return tuple(_part(row) for row in json.loads(raw))
    except (TypeError, ValueError, RecursionError) as error:
        raise CorruptRecordError(f"no list of parts: {error}", 0, "json") from error


def encode_writer(epoch: Epoch) -> bytes:
    """The object by which a writer claims a broker's tier."""
    return json.dumps({"format": FORMAT, "epoch": list(epoch)}).encode()


def decode_writer(raw: bytes) -> Epoch:
    """CorruptRecordError (reason `json`)."""
    try:
        generation, start = json.loads(raw)["epoch"]
        return int(generation), int(start)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CorruptRecordError(f"no claim of a writer: {error}", 0, "json") from error


def encode_progress(progress: Progress) -> bytes:
    """The object that says how far a broker's log is in the tier."""
    document = {
        "format": FORMAT,
        "revision": progress.revision,
        "epoch": list(progress.epoch),
        "generation": progress.generation,
        "position": progress.position,
        "reach": progress.reach,
        "history": [list(one) for one in progress.history],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode_progress(raw: bytes) -> Progress:
    """CorruptRecordError (reason `json`)."""
    try:
        document = json.loads(raw)
        generation, start = document["epoch"]
        return Progress(
            int(document["generation"]),
            int(document["position"]),
            int(document["reach"]),
            (int(generation), int(start)),
            int(document["revision"]),
            tuple((int(number), int(begun)) for number, begun in document.get("history", ())),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CorruptRecordError(f"no progress of a tier: {error}", 0, "json") from error


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
        int(document["base"]),
        int(document["size"]),
        int(document["begin"]),
        int(document["end"]),
        int(document["first"]),
        int(document["count"]),
        tuple(_part(row) for row in document.get("parts", ())),
        str(document.get("details", "")),
    )


def _part_row(part: Part) -> list[Any]:
    return [
        part.position,
        part.size,
        part.crc,
        part.units_crc,
        part.first,
        part.count,
        part.begin_ms,
        part.end_ms,
        part.name,
        part.place,
    ]


def _part(row: list[Any]) -> Part:
    position, size, crc, units_crc, first, count, begin_ms, end_ms = map(int, row[:8])
    name, place = str(row[8]), int(row[9]) if len(row) > 9 else -1
    return Part(position, size, crc, units_crc, first, count, begin_ms, end_ms, name, place)
