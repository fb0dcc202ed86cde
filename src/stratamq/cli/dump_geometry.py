"""How many slots and items an index file has: its bytes do not record it.

Asked in this order: the options; `geometry.properties` in the store's root (test fixtures have it);
`stratamq/geometry.json`; RocketMQ's default sizes if the length is theirs; one slot for four items,
as the defaults have it, if every item then hangs in the slot of its hash. Otherwise refused: a
wrong guess would show items that were never there.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from stratamq.errors import InvalidRequestError
from stratamq.files.metadata import MetadataFile
from stratamq.files.real import RealFiles
from stratamq.formats.index_file import IndexFileView
from stratamq.formats.index_layout import (
    DEFAULT_ITEMS,
    DEFAULT_SLOTS,
    INDEX_HEADER_BYTES,
    INDEX_ITEM_BYTES,
    INDEX_SLOT_BYTES,
    index_file_bytes,
)
from stratamq.formats.store_paths import INDEX_GEOMETRY_PATH

GUESSED_ITEMS_PER_SLOT = DEFAULT_ITEMS // DEFAULT_SLOTS
MAX_SETTING_BYTES = 64 * 1024
_PROPERTY = re.compile(r"^\s*(slots|items)\s*[=:]\s*(\d{1,10})\s*$", re.MULTILINE | re.ASCII)


@dataclass(frozen=True, slots=True)
class DumpGeometry:
    slots: int
    items: int
    source: str


def find_geometry(
    path: Path, view: memoryview, slots: int | None, items: int | None
) -> DumpGeometry:
    """InvalidRequestError, naming the options, when it cannot be determined."""
    if (slots is None) != (items is None):
        raise InvalidRequestError("give --slots and --items together")
    if slots is not None and items is not None:
        return DumpGeometry(slots, items, "--slots and --items")
    recorded = _recorded(path)
    if recorded is not None:
        return recorded
    length = len(view)
    if length == index_file_bytes(DEFAULT_SLOTS, DEFAULT_ITEMS):
        return DumpGeometry(DEFAULT_SLOTS, DEFAULT_ITEMS, "RocketMQ's default sizes")
    per_slot = INDEX_SLOT_BYTES + GUESSED_ITEMS_PER_SLOT * INDEX_ITEM_BYTES
    guess, rest = divmod(length - INDEX_HEADER_BYTES, per_slot)
    if guess > 0 and rest == 0:
        reader = IndexFileView(view, guess, guess * GUESSED_ITEMS_PER_SLOT)
        if reader.header.next_item > 1 and reader.has_geometry_of_its_items():
            return DumpGeometry(reader.slots, reader.items, "a guess that all items agree with")
    raise InvalidRequestError(
        f"{path}: how many slots and items it has cannot be seen from its {length} bytes; "
        f"give --slots and --items"
    )


def _recorded(path: Path) -> DumpGeometry | None:
    """From the store's root: the directory above `index/`, or that of a file by itself."""
    directory = path.absolute().parent
    for root in (directory.parent, directory):
        found = _from_properties(root / "geometry.properties") or _from_own_record(root)
        if found is not None:
            return found
    return None


def _from_properties(path: Path) -> DumpGeometry | None:
    text = _read(path)
    if text is None:
        return None
    found = {name: int(number) for name, number in _PROPERTY.findall(text.decode("latin-1"))}
    if not found.get("slots") or not found.get("items"):
        return None
    return DumpGeometry(found["slots"], found["items"], str(path))


def _from_own_record(root: Path) -> DumpGeometry | None:
    """What the index service has recorded; a damaged record is ignored."""
    values = MetadataFile(RealFiles(root), INDEX_GEOMETRY_PATH).load(keep_aside=False) or {}
    slots, items = values.get("index_slots"), values.get("index_items")
    if isinstance(slots, int) and isinstance(items, int) and slots > 0 and items > 0:
        return DumpGeometry(slots, items, str(root / INDEX_GEOMETRY_PATH))
    return None


def _read(path: Path) -> bytes | None:
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return file.read(MAX_SETTING_BYTES)
