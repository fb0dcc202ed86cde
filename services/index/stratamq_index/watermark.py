"""`stratamq/index.json`: how much of the log stands in which index files, durably.

A watermark names what was synced before it: every listed file but the last is full, the last holds
the items that its header counts, and together they index the log up to `position`. It is replaced
as a whole. Files that it does not list, and items it does not count, are not there.
"""

from dataclasses import dataclass
from typing import Any

from stratamq.files.metadata import JsonObject
from stratamq.formats.file_names import parse_index_name
from stratamq.formats.index_layout import IndexHeader
from stratamq.formats.numbers import Offset


@dataclass(frozen=True, slots=True)
class FileRecord:
    """An index file and the header that goes with its durable items."""

    name: str
    header: IndexHeader


@dataclass(frozen=True, slots=True)
class Watermark:
    """`closed`: slots and header of the last file are on disk too, and nothing was written since.

    What looks different then was done by another program, RocketMQ most likely.
    """

    generation: int
    position: int
    closed: bool
    files: tuple[FileRecord, ...]


def encode_watermark(watermark: Watermark) -> JsonObject:
    return {
        "generation": watermark.generation,
        "position": watermark.position,
        "closed": watermark.closed,
        "files": [
            {
                "name": record.name,
                "begin_timestamp_ms": record.header.begin_timestamp_ms,
                "end_timestamp_ms": record.header.end_timestamp_ms,
                "begin_offset": record.header.begin_phy_offset,
                "end_offset": record.header.end_phy_offset,
                "slots_used": record.header.hash_slot_count,
                "next_item": record.header.index_count,
            }
            for record in watermark.files
        ],
    }


def decode_watermark(data: JsonObject) -> Watermark | None:
    """None for anything that `encode_watermark` cannot have written."""
    try:
        files = tuple(_decode_record(each) for each in _list(data["files"]))
        watermark = Watermark(
            _number(data["generation"]), _number(data["position"]), data["closed"] is True, files
        )
    except (KeyError, TypeError, ValueError):
        return None
    names = [record.name for record in files]
    return watermark if names == sorted(set(names)) else None


def _decode_record(each: Any) -> FileRecord:
    name = each["name"]
    if not isinstance(name, str) or parse_index_name(name) is None:
        raise ValueError("no name of an index file")
    return FileRecord(
        name,
        IndexHeader(
            _number(each["begin_timestamp_ms"]),
            _number(each["end_timestamp_ms"]),
            Offset(_number(each["begin_offset"])),
            Offset(_number(each["end_offset"])),
            _number(each["slots_used"]),
            _number(each["next_item"]),
        ),
    )


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("not a whole number")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("not a list")
    return value
