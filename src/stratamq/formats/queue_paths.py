"""Where the files of consume queues lie below a store's directory.

    consumequeue/<topic>/<queueId>/<20 digits>     units_per_file · 20 bytes each, spec 6.1

Indexes count units of one queue; unit i is at byte 20·i of the queue, in the file whose name is
the greatest multiple of the file size that is not above it.
"""

from dataclasses import dataclass

from stratamq.formats.file_names import offset_name
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES, queue_file_bytes
from stratamq.formats.store_paths import CONSUME_QUEUES
from stratamq.formats.text import encode_text

DEFAULT_FILE_BYTES = 6_000_000
MAX_NAME_BYTES = 255
"""The limit of one directory name on every file system that RocketMQ and we run on."""


@dataclass(frozen=True, slots=True)
class QueueGeometry:
    """The size of every queue file of one store."""

    units_per_file: int

    @classmethod
    def of_bytes(cls, file_bytes: int) -> "QueueGeometry":
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
    return f"{CONSUME_QUEUES}/{topic}/{queue_id}"


def can_be_directory(topic: str) -> bool:
    """False for names that cannot be one directory below `consumequeue`.

    Such topics can only come from a log that others wrote: names are checked where they are made.
    """
    if topic in ("", ".", "..") or "/" in topic or "\0" in topic:
        return False
    return len(encode_text(topic)) <= MAX_NAME_BYTES
