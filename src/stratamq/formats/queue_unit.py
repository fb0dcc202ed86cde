"""The unit of a consume queue: where a message is, and by what a consumer selects it.

    off   size   field
    0     8      physical offset in the commit log
    8     4      size of the frame
    12    8      tags code; or deliver time (schedule topic), or address in the extension file

Spec 6.2 to 6.4, 6.8. Unit i of a queue is at byte 20·i. Valid means offset ≥ 0 and size > 0, so
unwritten (zeroed) space ends a queue. The units before the first one of a queue that does not begin
at 0 are filled with PRE_BLANK, which counts as valid.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from stratamq.formats.numbers import INT32_MAX, INT32_MIN, INT64_MIN, Offset

QUEUE_UNIT = struct.Struct(
    ">"
    "q"  # physical offset
    "i"  # size
    "q"  # tags code
)
QUEUE_UNIT_BYTES = QUEUE_UNIT.size
assert QUEUE_UNIT_BYTES == 20

PRE_BLANK_SIZE = INT32_MAX
PRE_BLANK = QUEUE_UNIT.pack(0, PRE_BLANK_SIZE, 0)


@dataclass(frozen=True, slots=True)
class QueueUnit:
    physical_offset: Offset
    size: int
    tags_code: int

    @property
    def is_valid(self) -> bool:
        return self.physical_offset >= 0 and self.size > 0

    @property
    def is_pre_blank(self) -> bool:
        return self.physical_offset == 0 and self.size == PRE_BLANK_SIZE

    @property
    def is_zero(self) -> bool:
        """Nothing was written here yet."""
        return self.physical_offset == 0 and self.size == 0 and self.tags_code == 0


def encode_queue_unit(physical_offset: Offset | int, size: int, tags_code: int) -> bytes:
    return QUEUE_UNIT.pack(physical_offset, size, tags_code)


def decode_queue_unit(
    buffer: bytes | bytearray | memoryview, position: int = 0
) -> QueueUnit | None:
    """None when fewer than 20 bytes are left. Every 20 bytes are a unit; ask it whether valid."""
    if len(buffer) - position < QUEUE_UNIT_BYTES:
        return None
    return QueueUnit(*QUEUE_UNIT.unpack_from(buffer, position))


def iter_queue_units(buffer: bytes | bytearray | memoryview) -> Iterator[QueueUnit]:
    """The valid units from the beginning, up to the first that is not."""
    view = memoryview(buffer)
    for fields in QUEUE_UNIT.iter_unpack(view[: len(view) // QUEUE_UNIT_BYTES * QUEUE_UNIT_BYTES]):
        unit = QueueUnit(*fields)
        if not unit.is_valid:
            return
        yield unit


def queue_file_bytes(configured_bytes: int) -> int:
    """RocketMQ rounds the configured size of a queue file up to whole units."""
    return -(-configured_bytes // QUEUE_UNIT_BYTES) * QUEUE_UNIT_BYTES


def is_extension_address(tags_code: int) -> bool:
    """Tag codes are sign-extended 32-bit numbers, so everything below them is an address."""
    return tags_code < INT32_MIN


def extension_offset(tags_code: int) -> int:
    """The offset in `consumequeue_ext` that an address stands for."""
    return tags_code - INT64_MIN
