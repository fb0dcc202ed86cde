"""The property checksum (5.3.3 and later, `enabledAppendPropCRC`): the last 20 bytes of a frame.

    off   size   content
    0     8      `__CRC32#`
    8     1      0x01
    9     10     CRC-32, 31 bits, of the frame without these 20 bytes; decimal, zero padded,
                 least significant digit first
    19    1      0x02

Spec 2.5. To every reader it is an ordinary property.
"""

import numpy as np
from numpy.typing import NDArray

from stratamq.formats.crc import crc32_31
from stratamq.formats.properties import ITEM_SEPARATOR, NAME_VALUE_SEPARATOR, PROPERTY_CRC

_PREFIX = PROPERTY_CRC.encode() + NAME_VALUE_SEPARATOR
_DIGITS = 10
_PLACES = 10 ** np.arange(_DIGITS)
"""The digits' place values, the least significant first."""
PROPERTY_CRC_BYTES = len(_PREFIX) + _DIGITS + len(ITEM_SEPARATOR)
assert PROPERTY_CRC_BYTES == 20

Frame = bytes | bytearray | memoryview


def encode_property_crc(crc: int) -> bytes:
    return _PREFIX + f"{crc:0{_DIGITS}d}"[::-1].encode() + ITEM_SEPARATOR


def property_crcs(crcs: NDArray[np.int64]) -> NDArray[np.uint8]:
    """`encode_property_crc` of each, as rows."""
    rows = np.empty((len(crcs), PROPERTY_CRC_BYTES), np.uint8)
    rows[:] = np.frombuffer(encode_property_crc(0), np.uint8)
    rows[:, len(_PREFIX) : -len(ITEM_SEPARATOR)] += (crcs[:, None] // _PLACES % 10).astype(np.uint8)
    return rows


def reserve(properties: bytes) -> bytes:
    """`properties` with room for the checksum (of 0) at their end."""
    separator = ITEM_SEPARATOR if properties and properties[-1:] != ITEM_SEPARATOR else b""
    return properties + separator + encode_property_crc(0)


def has_property_crc(frame: Frame) -> bool:
    """`frame` is exactly one frame. Looks at names and separators, not at the number."""
    tail = bytes(frame[-PROPERTY_CRC_BYTES:])
    return (
        len(tail) == PROPERTY_CRC_BYTES
        and tail.startswith(_PREFIX)
        and tail.endswith(ITEM_SEPARATOR)
    )


def check_property_crc(frame: Frame) -> bool | None:
    """Whether the checksum of one frame holds; None when it has none."""
    if not has_property_crc(frame):
        return None
    view = memoryview(frame)
    expected = encode_property_crc(crc32_31(view[:-PROPERTY_CRC_BYTES]))
    return view[-PROPERTY_CRC_BYTES:] == expected


def fill_property_crc(frame: bytearray | memoryview) -> None:
    """Write the checksum into the last 20 bytes of a frame whose other fields are final."""
    view = memoryview(frame)
    view[-PROPERTY_CRC_BYTES:] = encode_property_crc(crc32_31(view[:-PROPERTY_CRC_BYTES]))
