"""What an audit looks at: the store's log, its files, and how far its services have come."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from stratamq.errors import InvalidRequestError
from stratamq.files.metadata import MetadataFile
from stratamq.files.real import RealFiles
from stratamq.formats.file_names import parse_index_name, parse_offset_name
from stratamq.formats.index_layout import index_file_bytes
from stratamq.formats.store_paths import (
    CONSUME_QUEUES,
    DISPATCHER_STATE_PATH,
    INDEX,
    INDEX_STATE_PATH,
)
from stratamq.store.confirmed import confirmed_end
from stratamq.table.log_files import LogFiles
from stratamq_pipeline.audit.faults import fault
from stratamq_pipeline.jobs.geometry import GeometryOptions, StoreGeometry, entries, store_geometry
from stratamq_pipeline.same_file import log_for_workers

NOWHERE = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class QueueFile:
    path: str
    topic: str
    queue_id: int
    first_index: int
    """The queue index of the file's first unit."""


@dataclass(frozen=True, slots=True)
class IndexFile:
    path: str
    end_number: int | None
    """Items from here on do not count; None: by the header."""
    settled: bool
    """Whether header and slot table are on disk as they are: not so in a file that is written."""


@dataclass(slots=True)
class AuditedStore:
    """`…_end`: up to which log offset the service has come; beyond it nothing is missed."""

    root: Path
    log: LogFiles
    geometry: StoreGeometry
    queue_end: int
    index_end: int
    queue_files: list[QueueFile] = field(default_factory=list)
    index_files: list[IndexFile] = field(default_factory=list)
    faults: list[dict[str, object]] = field(default_factory=list)
    """Faults in names and sizes."""


def look_at(where: str, options: GeometryOptions) -> AuditedStore:
    """Lists everything and reads nothing but records. InvalidRequestError for what is no store."""
    log = log_for_workers(where)
    if log.root is None:
        raise InvalidRequestError("audit reads a store's directory, not single files")
    root = Path(log.root)
    files = RealFiles(root)
    ours = confirmed_end(files) is not None
    watermark = _record(files, INDEX_STATE_PATH) if ours else None
    dispatcher = _record(files, DISPATCHER_STATE_PATH) if ours else None
    store = AuditedStore(
        root,
        log,
        store_geometry(root, options),
        _position(dispatcher) if dispatcher and dispatcher.get("complete") else log.end,
        _position(watermark) if watermark else log.end,
    )
    _list_queues(store)
    _list_index(store, watermark)
    return store


def _record(files: RealFiles, path: str) -> dict[str, object] | None:
    return MetadataFile(files, path).load(keep_aside=False)


def _position(record: dict[str, object]) -> int:
    position = record.get("position")
    return position if isinstance(position, int) else NOWHERE


def _list_queues(store: AuditedStore) -> None:
    for topic in _queue_directories(store, store.root / CONSUME_QUEUES):
        for queue in _queue_directories(store, topic):
            if not queue.name.removeprefix("-").isdigit():
                store.faults.append(_stray(store, queue, "queue-stray"))
                continue
            _list_queue(store, topic.name, queue)


def _list_queue(store: AuditedStore, topic: str, queue: Path) -> None:
    file_bytes = store.geometry.queues.file_bytes
    expected: int | None = None
    for path in sorted(queue.iterdir()):
        offset = parse_offset_name(path.name)
        if offset is None or not path.is_file():
            store.faults.append(_stray(store, path, "queue-stray"))
            continue
        name = os.fspath(path.relative_to(store.root))
        size = path.stat().st_size
        if size != file_bytes or offset % file_bytes:
            detail = f"{size} bytes at {offset}; files have {file_bytes}"
            store.faults.append(fault(name, 0, "queue-file-size", detail))
        if expected is not None and offset > expected:
            detail = f"nothing from byte {expected} of the queue to {offset}"
            store.faults.append(fault(name, 0, "queue-file-missing", detail))
        expected = offset + file_bytes
        store.queue_files.append(QueueFile(name, topic, int(queue.name), offset // 20))


def _list_index(store: AuditedStore, watermark: dict[str, object] | None) -> None:
    directory = store.root / INDEX
    size = index_file_bytes(store.geometry.index_slots, store.geometry.index_items)
    listed = watermark.get("files") if watermark else None
    known = {one["name"]: one["next_item"] for one in listed} if isinstance(listed, list) else {}
    last = max(known, default="")
    closed = watermark is None or watermark.get("closed") is True
    for path in entries(directory):
        name = os.fspath(path.relative_to(store.root))
        if parse_index_name(path.name) is None or not path.is_file():
            store.faults.append(_stray(store, path, "index-stray"))
        elif path.stat().st_size != size:
            detail = f"{path.stat().st_size} bytes; files have {size}"
            store.faults.append(fault(name, 0, "index-file-size", detail))
        elif watermark is None or path.name in known:
            settled = closed or path.name != last
            end = known.get(path.name) if not settled else None
            store.index_files.append(IndexFile(name, end, settled))


def _queue_directories(store: AuditedStore, directory: Path) -> list[Path]:
    found = entries(directory)
    store.faults += [_stray(store, path, "queue-stray") for path in found if not path.is_dir()]
    return [path for path in found if path.is_dir()]


def _stray(store: AuditedStore, path: Path, kind: str) -> dict[str, object]:
    return fault(os.fspath(path.relative_to(store.root)), 0, kind)
