"""The few queue files that are open, and what is moved out of their way to `stratamq/aside/`.

Paths: `formats.queue_paths`.
"""

import logging
from collections import OrderedDict
from contextlib import closing

from stratamq.files.paths import parent
from stratamq.files.port import File, Files
from stratamq.formats.store_paths import ASIDE_DIRECTORY

log = logging.getLogger(__name__)


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


class Displaced:
    """Keeps what the log does not give under `stratamq/aside/`, instead of removing it.

    While all queues are compared with the log, files may be another program's: units behind the
    log's end, or other ones than the log gives, and queues of which the log has nothing. Whole
    files are moved there. For a file that stays, a sparse one of its size keeps the units at their
    positions. All of it is durable before anything of the queue changes. Belongs to the writing
    lane.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._copies: dict[str, str] = {}
        """By the path of a queue file: where its displaced units are."""

    def move(self, path: str) -> None:
        """The log gives nothing of this file."""
        target = set_aside(self._files, path)
        log.warning("queue file without messages moved aside", extra={"path": path, "to": target})

    def keep(self, path: str, file_bytes: int, position: int, data: bytes) -> None:
        """`data` lies in the file at `position`, and is about to be overwritten."""
        if data == bytes(len(data)):
            return
        target = self._copies.get(path)
        if target is None:
            self._files.make_directory(ASIDE_DIRECTORY)
            target = self._copies[path] = free_aside(self._files, f"units,{path}")
            self._files.create(target, file_bytes, sparse=True)
            level = logging.INFO if len(self._copies) == 1 else logging.DEBUG
            log.log(level, "queue units that the log does not give kept", extra={"in": target})
        with closing(self._files.open(target, writable=True)) as copy:
            copy.write(position, data)
            copy.flush()
