"""Where `dump` reads from: files opened read-only and mapped, found from whatever path was given.

A path may be a store's root, one of its directories, or a single file. Mapping is safe on a store
in use: neither RocketMQ nor StrataMQ shortens a file it has made.
"""

import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.formats import frame as frames
from stratamq.formats.file_names import parse_index_name, parse_offset_name
from stratamq.formats.frame import Frame
from stratamq.formats.frame_check import FrameOutcome, check
from stratamq.formats.store_paths import (
    CHECKPOINT_PATH,
    COMMIT_LOG,
    CONSUME_QUEUES,
    LOST_AND_FOUND,
    STATE_TABLE,
)


@dataclass(frozen=True, slots=True)
class LogFile:
    """A commit log file: `start` is the offset of its first byte."""

    path: Path
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class QueueFiles:
    """The files of one consume queue; topic and queue are None for a file by itself."""

    topic: str | None
    queue_id: int | None
    files: list[tuple[int, Path]]


@contextmanager
def mapped(path: Path) -> Iterator[memoryview]:
    """The bytes of a file. OSError as `open` raises it; a directory is refused."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidRequestError(f"{path} is not a file")
        size = status.st_size
        if size == 0:
            yield memoryview(b"")
            return
        with (
            mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as mapping,
            memoryview(mapping) as view,
        ):
            yield view
    finally:
        os.close(descriptor)


def log_files(path: Path) -> list[LogFile]:
    """From a root, a `commitlog` directory or a file. NotFoundError when there is nothing."""
    must_exist(path)
    if not path.is_dir():
        return [LogFile(path, _start_of(path), path.stat().st_size)]
    directory = path / COMMIT_LOG if (path / COMMIT_LOG).is_dir() else path
    found = [
        LogFile(file, start, file.stat().st_size)
        for file in directory.iterdir()
        if (start := parse_offset_name(file.name)) is not None and file.is_file()
    ]
    if not found:
        raise NotFoundError(f"{directory}: no commit log files (20 digits)")
    return sorted(found, key=lambda file: file.start)


def queues(path: Path, topic: str | None, queue_id: int | None) -> list[QueueFiles]:
    """From a root, `consumequeue`, a topic's or a queue's directory, or a file."""
    must_exist(path)
    if not path.is_dir():
        start = parse_offset_name(path.name)
        named = parse_queue_directory(path.parent)
        return [QueueFiles(*named, [(start or 0, path)])]
    if (path / CONSUME_QUEUES).is_dir():
        found = _queues_below(path / CONSUME_QUEUES, topic, queue_id)
    elif _unit_files(path):
        found = [QueueFiles(*parse_queue_directory(path), _unit_files(path))]
    elif any(_unit_files(child) for child in path.iterdir() if child.is_dir()):
        found = _queues_of_topic(path, queue_id)
    else:
        found = _queues_below(path, topic, queue_id)
    if not found:
        wanted = "" if topic is None else f" of topic {topic}"
        wanted += "" if queue_id is None else f", queue {queue_id}"
        raise NotFoundError(f"{path}: no consume queue{wanted}")
    return found


def index_files(path: Path) -> list[Path]:
    """From a root, an `index` directory or a file."""
    must_exist(path)
    if not path.is_dir():
        return [path]
    directory = path / "index" if (path / "index").is_dir() else path
    found = [
        file
        for file in directory.iterdir()
        if parse_index_name(file.name) is not None and file.is_file()
    ]
    if not found:
        raise NotFoundError(f"{directory}: no index files (17 digits)")
    return sorted(found)


def state_files(path: Path) -> list[tuple[int, Path]]:
    """The files of the state table, each with the byte of the table at which it begins. From
    a root, a `statetable` directory or a file."""
    must_exist(path)
    if not path.is_dir():
        return [(parse_offset_name(path.name) or 0, path)]
    directory = path / STATE_TABLE if (path / STATE_TABLE).is_dir() else path
    found = _unit_files(directory)
    if not found:
        raise NotFoundError(f"{directory}: no state table of transactions ({STATE_TABLE})")
    return found


def checkpoint_file(path: Path) -> Path:
    must_exist(path)
    return path / CHECKPOINT_PATH if path.is_dir() else path


def must_exist(path: Path) -> None:
    if not path.exists():
        raise NotFoundError(f"{path}: no such file or directory")


def parse_queue_directory(path: Path) -> tuple[str | None, int | None]:
    if path.name.isascii() and path.name.isdigit():
        return path.parent.name, int(path.name)
    return None, None


def _start_of(path: Path) -> int:
    """From the name; for a file renamed, from the offset its first frame carries."""
    start = parse_offset_name(path.name)
    if start is not None:
        return start
    with mapped(path) as view:
        if check(view, verify_body=False).outcome is not FrameOutcome.GOOD:
            return 0
        first = frames.decode(view, verify_body=False)
        return max(first.physical_offset, 0) if isinstance(first, Frame) else 0


def _queues_below(directory: Path, topic: str | None, queue_id: int | None) -> list[QueueFiles]:
    topics = [directory / topic] if topic is not None else sorted(directory.iterdir())
    topics = [path for path in topics if path.name != LOST_AND_FOUND and path.is_dir()]
    return [queue for path in topics for queue in _queues_of_topic(path, queue_id)]


def _queues_of_topic(directory: Path, queue_id: int | None) -> list[QueueFiles]:
    numbered = sorted(
        (int(path.name), path)
        for path in directory.iterdir()
        if path.is_dir() and path.name.isascii() and path.name.isdigit()
    )
    return [
        QueueFiles(directory.name, number, _unit_files(path))
        for number, path in numbered
        if queue_id is None or number == queue_id
    ]


def _unit_files(directory: Path) -> list[tuple[int, Path]]:
    return sorted(
        (start, path)
        for path in directory.iterdir()
        if (start := parse_offset_name(path.name)) is not None and path.is_file()
    )
