"""Where the files of consume queues lie, and the few of them that are open.

    consumequeue/<topic>/<queueId>/<20 digits>     units_per_file · 20 bytes each, spec 6.1

Indexes count units of one queue; unit i lies at byte 20·i of the queue, in the file whose name is
the greatest multiple of the file size that is not above it.
"""

from collections import OrderedDict
from dataclasses import dataclass

from stratamq.files.paths import parent
from stratamq.files.port import ASIDE_DIRECTORY, File, Files
from stratamq.formats.file_names import offset_name
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES, queue_file_bytes
from stratamq.formats.text import encode_text

ROOT = "consumequeue"
MAX_NAME_BYTES = 255
"""Of one directory name, on every file system that RocketMQ and we run on."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """The size of every queue file of one store."""

    units_per_file: int

    @classmethod
    def of_bytes(cls, file_bytes: int) -> "Geometry":
        """Rounded up to whole units, as RocketMQ does."""
        return cls(queue_file_bytes(file_bytes) // QUEUE_UNIT_BYTES)

    @property
    def file_bytes(self) -> int:
        return self.units_per_file * QUEUE_UNIT_BYTES

    def file_of(self, index: int) -> int:
        """Index of the first unit of the file that holds unit `index`."""
        return index - index % self.units_per_file

    def path(self, directory: str, index: int) -> str:
        return f"{directory}/{offset_name(self.file_of(index) * QUEUE_UNIT_BYTES)}"

    def position(self, index: int) -> int:
        """Byte within its file."""
        return index % self.units_per_file * QUEUE_UNIT_BYTES


def queue_directory(topic: str, queue_id: int) -> str:
    return f"{ROOT}/{topic}/{queue_id}"


def can_be_directory(topic: str) -> bool:
    """False for names that cannot be one directory below `consumequeue`.

    Such topics can only come from a log that others wrote: names are checked where they are made.
    """
    if topic in ("", ".", "..") or "/" in topic or "\0" in topic:
        return False
    return len(encode_text(topic)) <= MAX_NAME_BYTES


def set_aside(files: Files, path: str) -> str:
    """Move what lies at `path` (file, link or directory) out of the way; where it lies now.

    Durable on return. RocketMQ refuses a queue directory with anything strange in it.
    """
    files.make_directory(ASIDE_DIRECTORY)
    base = f"{ASIDE_DIRECTORY}/{path.replace('/', ',')}"
    target, count = base, 1
    while files.entry(target) is not None:
        count += 1
        target = f"{base}.{count}"
    files.replace(path, target)
    files.sync_directory(ASIDE_DIRECTORY)
    files.sync_directory(parent(path))
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
