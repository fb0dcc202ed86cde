"""The extension unit of a consume queue (`consumequeue_ext/`, off by default); only read here.

    off   size   field
    0     2      unit size: 20 + bitmap; −1 means the rest of the file is unused
    2     8      real tags code
    10    8      store timestamp, ms
    18    2      bitmap length, bytes
    20    n      bitmap

Spec 6.8.
"""

import struct
from dataclasses import dataclass

from stratamq.errors import CorruptRecordError

_HEAD = struct.Struct(
    ">"
    "h"  # unit size
    "q"  # tags code
    "q"  # store timestamp
    "h"  # bitmap length
)
EXTENSION_FIXED_BYTES = _HEAD.size
assert EXTENSION_FIXED_BYTES == 20
_SIZE = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class ExtensionUnit:
    size: int
    tags_code: int
    store_timestamp_ms: int
    bitmap: bytes


@dataclass(frozen=True, slots=True)
class NoExtensionUnit:
    """No unit here: 0 is unwritten space, −1 the mark that the next unit is in the next file."""

    size: int


def decode_extension_unit(
    buffer: bytes | bytearray | memoryview, position: int = 0
) -> ExtensionUnit | NoExtensionUnit | None:
    """None when the bytes end before the unit does; CorruptRecordError when its sizes disagree."""
    available = len(buffer) - position
    if available < _SIZE.size:
        return None
    (size,) = _SIZE.unpack_from(buffer, position)
    if size < 1:
        return NoExtensionUnit(size)
    if size < EXTENSION_FIXED_BYTES:
        raise CorruptRecordError(f"extension unit of {size} bytes", position, "length")
    if available < size:
        return None
    _, tags_code, store_timestamp_ms, bitmap_bytes = _HEAD.unpack_from(buffer, position)
    if bitmap_bytes != size - EXTENSION_FIXED_BYTES:
        raise CorruptRecordError(
            f"extension unit of {size} bytes with a bitmap of {bitmap_bytes}", position, "length"
        )
    start = position + EXTENSION_FIXED_BYTES
    return ExtensionUnit(
        size, tags_code, store_timestamp_ms, bytes(memoryview(buffer)[start : position + size])
    )
