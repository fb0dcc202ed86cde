"""How large the queue and index files of a store are, by its own records and its files."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from stratamq.errors import InvalidRequestError
from stratamq.files.metadata import MetadataFile
from stratamq.files.real import RealFiles
from stratamq.formats.file_names import parse_index_name, parse_offset_name
from stratamq.formats.index_layout import DEFAULT_ITEMS, DEFAULT_SLOTS, index_file_bytes
from stratamq.formats.queue_paths import DEFAULT_FILE_BYTES, QueueGeometry
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.store_paths import CONSUME_QUEUES, INDEX, INDEX_GEOMETRY_PATH, LOST_AND_FOUND


@dataclass(frozen=True, slots=True)
class StoreGeometry:
    queues: QueueGeometry
    index_slots: int
    index_items: int


@dataclass(frozen=True, slots=True)
class GeometryOptions:
    """The user's options; None: by the store."""

    queue_file_bytes: int | None = None
    index_slots: int | None = None
    index_items: int | None = None


def store_geometry(root: Path, options: GeometryOptions) -> StoreGeometry:
    """Options first, then the store's records, then RocketMQ's defaults.

    InvalidRequestError when index files have another length than these slots and items give.
    """
    slots, items = options.index_slots, options.index_items
    if slots is None or items is None:
        recorded = MetadataFile(RealFiles(root), INDEX_GEOMETRY_PATH).load(keep_aside=False) or {}
        slots = slots or _number(recorded.get("index_slots")) or DEFAULT_SLOTS
        items = items or _number(recorded.get("index_items")) or DEFAULT_ITEMS
    if slots < 1 or items < 2:
        raise InvalidRequestError("an index file has at least 1 slot and 2 items")
    _check_index(root, slots, items)
    file_bytes = options.queue_file_bytes or _most_frequent(root) or DEFAULT_FILE_BYTES
    return StoreGeometry(QueueGeometry.of_bytes(file_bytes), slots, items)


def _check_index(root: Path, slots: int, items: int) -> None:
    expected = index_file_bytes(slots, items)
    sizes = Counter(
        path.stat().st_size
        for path in entries(root / INDEX)
        if parse_index_name(path.name) is not None
    )
    if sizes and not sizes[expected]:
        raise InvalidRequestError(
            f"index files here have {sizes.most_common(1)[0][0]} bytes, not the {expected} of "
            f"{slots} slots and {items} items: give --index-slots and --index-items"
        )


def _most_frequent(root: Path) -> int | None:
    sizes: Counter[int] = Counter()
    for topic in entries(root / CONSUME_QUEUES):
        for queue in entries(topic):
            for path in entries(queue):
                size = path.stat().st_size
                offset = parse_offset_name(path.name)
                if offset is not None and size and size % QUEUE_UNIT_BYTES == 0:
                    sizes[size] += offset % size == 0
    best = max(sizes.values(), default=0)
    return max(size for size, count in sizes.items() if count == best) if best else None


def entries(directory: Path) -> list[Path]:
    """The entries of a directory that may be a volume of its own."""
    found = sorted(directory.iterdir()) if directory.is_dir() else []
    return [path for path in found if path.name != LOST_AND_FOUND]


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
