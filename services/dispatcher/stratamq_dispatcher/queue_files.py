"""The few queue files that are open, and what stands in their way. Paths: `formats.queue_paths`."""

from collections import OrderedDict

from stratamq.files.paths import parent
from stratamq.files.port import File, Files
from stratamq.formats.queue_paths import (
    MAX_NAME_BYTES,
    QueueGeometry,
    can_be_directory,
    queue_directory,
)
from stratamq.formats.store_paths import ASIDE_DIRECTORY, CONSUME_QUEUES

__all__ = [
    "CONSUME_QUEUES",
    "MAX_NAME_BYTES",
    "OpenFiles",
    "QueueGeometry",
    "can_be_directory",
    "free_aside",
    "queue_directory",
    "set_aside",
]


def set_aside(files: Files, path: str) -> str:
    """Move the file, link or directory at `path` out of the way; its new path.

    Durable on return. RocketMQ refuses a queue directory with anything strange in it.
    """
    files.make_directory(ASIDE_DIRECTORY)
    target = free_aside(files, path)
    files.replace(path, target)
    files.sync_directory(ASIDE_DIRECTORY)
    files.sync_directory(parent(path))
    return target


def free_aside(files: Files, path: str) -> str:
    """A name under `stratamq/aside/` that nothing has."""
    base = f"{ASIDE_DIRECTORY}/{path.replace('/', ',')}"
    target, count = base, 1
    while files.entry(target) is not None:
        count += 1
        target = f"{base}.{count}"
    return target


class OpenFiles:
    """Descriptors of queue files, the least recently used closed first. One thread at a time."""

    def __init__(self, files: Files, limit: int, *, writable: bool = False) -> None:
        self._files = files
        self._limit = max(1, limit)
        self._writable = writable
        self._open: OrderedDict[str, File] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def get(self, path: str) -> File:
        """Raises FileNotFoundError and the other errors of `Files.open`."""
        file = self._open.get(path)
        if file is None:
            file = self._files.open(path, writable=self._writable)
            self._open[path] = file
            if len(self._open) > self._limit:
                self._open.popitem(last=False)[1].close()
        else:
            self._open.move_to_end(path)
        return file

    def forget(self, path: str) -> None:
        """Close what is open under this path: the file was removed or replaced."""
        file = self._open.pop(path, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()
