"""`config/tieredStoreMetadata.json`: RocketMQ's list of topics, queues and segments in its tier.

The tables, by their keys in the file (fastjson; whole-number keys without quotes):

    topicSerialNumber               the last topic id given; −1 before the first
    topicMetadataTable              topic → {topicId, topic, status, reserveTime, updateTimestamp}
    queueMetadataTable              topic → {queue id → {queue: {brokerName, queueId, topic},
                                    minOffset, maxOffset, updateTimestamp}}
    commitLogFileSegmentTable       logical path → {base → {path, type, baseOffset, status, size,
    consumeQueueFileSegmentTable    createTimestamp, beginTimestamp, endTimestamp, sealTimestamp}}
    indexFileSegmentTable

Read with or without quotes, with absent tables and unknown fields; written as RocketMQ 5.3.3 does.
Spec tier 8.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stratamq.errors import CorruptRecordError
from stratamq.formats.json_files import parse_json_object
from stratamq.formats.numbers import INT64_MAX
from stratamq.formats.tier_names import SegmentType

METADATA_NAME = "tieredStoreMetadata.json"
NO_TIME = INT64_MAX
"""The begin and end time of a segment that has no data."""
BROKERS_RETENTION = -1
"""The reserve time of a topic that has none of its own."""

_TABLES = {
    SegmentType.COMMIT_LOG: "commitLogFileSegmentTable",
    SegmentType.CONSUME_QUEUE: "consumeQueueFileSegmentTable",
    SegmentType.INDEX: "indexFileSegmentTable",
}


@dataclass(frozen=True, slots=True)
class TopicRecord:
    topic_id: int
    topic: str
    status: int = 0
    reserve_hours: int = BROKERS_RETENTION
    updated_ms: int = 0


@dataclass(frozen=True, slots=True)
class QueueRecord:
    topic: str
    broker: str
    queue_id: int
    minimum: int = -1
    """RocketMQ does not maintain it, nor `maximum`."""
    maximum: int = -1
    updated_ms: int = 0


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    path: str
    type: SegmentType
    base: int
    size: int
    status: int = 0
    created_ms: int = 0
    begin_ms: int = NO_TIME
    end_ms: int = NO_TIME
    sealed_ms: int = 0


@dataclass(slots=True)
class TierMetadata:
    """The file's content. The segments of a path are in the order of their bases."""

    topic_serial_number: int = -1
    topics: dict[str, TopicRecord] = field(default_factory=dict)
    queues: list[QueueRecord] = field(default_factory=list)
    segments: dict[SegmentType, dict[str, list[SegmentRecord]]] = field(
        default_factory=lambda: {kind: {} for kind in SegmentType}
    )

    def of(self, kind: SegmentType, path: str) -> list[SegmentRecord]:
        return self.segments[kind].get(path, [])


def parse_tier_metadata(raw: bytes) -> TierMetadata:
    """CorruptRecordError (reason `json`) for what is no such file. `{}` is an empty tier."""
    document = parse_json_object(raw)
    try:
        return TierMetadata(
            _number(document, "topicSerialNumber", -1),
            {name: _topic(name, value) for name, value in _table(document, "topicMetadataTable")},
            [
                _queue(topic, int(number), value)
                for topic, queues in _table(document, "queueMetadataTable")
                for number, value in _entries(queues, topic)
            ],
            {kind: _segments(document, kind) for kind in SegmentType},
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise CorruptRecordError(f"no metadata of a tier: {error}", 0, "json") from error


def format_tier_metadata(metadata: TierMetadata) -> bytes:
    """Format like RocketMQ 5.3.3: tabs, no space after a colon, integer keys without quotes."""
    tables: dict[str, Any] = {
        name: {
            path: {record.base: _segment_fields(record) for record in records}
            for path, records in metadata.segments[kind].items()
        }
        for kind, name in _TABLES.items()
    }
    queues: dict[str, dict[int, Any]] = {}
    for queue in metadata.queues:
        entry = {
            "queue": {
                "brokerName": queue.broker,
                "queueId": queue.queue_id,
                "topic": queue.topic,
            },
            "minOffset": queue.minimum,
            "maxOffset": queue.maximum,
            "updateTimestamp": queue.updated_ms,
        }
        queues.setdefault(queue.topic, {})[queue.queue_id] = entry
    tables["queueMetadataTable"] = queues
    tables["topicMetadataTable"] = {
        name: _topic_fields(topic) for name, topic in metadata.topics.items()
    }
    tables["topicSerialNumber"] = metadata.topic_serial_number
    return "".join(_formatted(dict(sorted(tables.items())), 0)).encode("utf-8", "replace")


def _topic_fields(topic: TopicRecord) -> dict[str, Any]:
    return {
        "topicId": topic.topic_id,
        "topic": topic.topic,
        "status": topic.status,
        "reserveTime": topic.reserve_hours,
        "updateTimestamp": topic.updated_ms,
    }


def _segment_fields(record: SegmentRecord) -> dict[str, Any]:
    return {
        "path": record.path,
        "type": int(record.type),
        "baseOffset": record.base,
        "status": record.status,
        "size": record.size,
        "createTimestamp": record.created_ms,
        "beginTimestamp": record.begin_ms,
        "endTimestamp": record.end_ms,
        "sealTimestamp": record.sealed_ms,
    }


def _formatted(value: Any, depth: int) -> Iterator[str]:
    if not isinstance(value, dict):
        yield json.dumps(value, ensure_ascii=False)
        return
    yield "{"
    separator = ""
    for key, member in value.items():
        yield separator
        # fastjson writes a key that is no text without the line of its own.
        yield f"{key}:" if isinstance(key, int) else f"\n{_tabs(depth + 1)}{json.dumps(key)}:"
        yield from _formatted(member, depth + 1)
        separator = ","
    yield f"\n{_tabs(depth)}}}" if value else "}"


def _tabs(depth: int) -> str:
    return "\t" * depth


def _table(document: Mapping[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    return _entries(document.get(name, {}), name)


def _entries(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is no object")
    yield from value.items()


def _number(value: Mapping[str, Any], name: str, default: int) -> int:
    found = value.get(name, default)
    if not isinstance(found, int) or isinstance(found, bool):
        raise ValueError(f"{name} is no whole number")
    return found


def _topic(name: str, value: Mapping[str, Any]) -> TopicRecord:
    return TopicRecord(
        _number(value, "topicId", -1),
        name,
        _number(value, "status", 0),
        _number(value, "reserveTime", BROKERS_RETENTION),
        _number(value, "updateTimestamp", 0),
    )


def _queue(topic: str, queue_id: int, value: Mapping[str, Any]) -> QueueRecord:
    queue = value.get("queue") or {}
    return QueueRecord(
        topic,
        str(queue.get("brokerName", "")),
        queue_id,
        _number(value, "minOffset", -1),
        _number(value, "maxOffset", -1),
        _number(value, "updateTimestamp", 0),
    )


def _segments(document: Mapping[str, Any], kind: SegmentType) -> dict[str, list[SegmentRecord]]:
    # Releases up to 5.2.0 separate with the platform's separator.
    return {
        path.replace("\\", "/"): sorted(
            (
                _segment(path.replace("\\", "/"), kind, int(base), value)
                for base, value in _entries(bases, path)
            ),
            key=lambda record: record.base,
        )
        for path, bases in _table(document, _TABLES[kind])
    }


def _segment(path: str, kind: SegmentType, base: int, value: Mapping[str, Any]) -> SegmentRecord:
    size = _number(value, "size", 0)
    if base < 0 or size < 0:
        raise ValueError(f"segment {base} of {path} has {size} bytes")
    return SegmentRecord(
        path,
        kind,
        base,
        size,
        _number(value, "status", 0),
        _number(value, "createTimestamp", 0),
        _number(value, "beginTimestamp", NO_TIME),
        _number(value, "endTimestamp", NO_TIME),
        _number(value, "sealTimestamp", 0),
    )
