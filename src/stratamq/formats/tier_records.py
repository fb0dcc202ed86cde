"""A log record as stored in a queue's tier file, where its physical offset is its position in that
file.

All other fields stay, including the queue offset. A record that ends in a checksum of the whole
record (`property_crc`) gets a new one, because the checksum covers the physical offset. RocketMQ
keeps the old one, which is then wrong. Spec tier 3.4, 4.4.
"""

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from stratamq.formats import frame_layout as layout
from stratamq.formats.checksums import crc32_of_each
from stratamq.formats.columns_patch import scatter
from stratamq.formats.frame_verify import record_checksums
from stratamq.formats.property_crc import PROPERTY_CRC_BYTES, property_crcs

I64 = NDArray[np.int64]

CODA_MAGIC = layout.MAGIC_BLANK
_DIGITS_AT = 9
CODA_BYTES = 16
"""Releases up to 5.2.0 end a full segment with: size (4), magic (4), last store time (8)."""


def place_records(buffer: bytearray | memoryview, starts: I64, sizes: I64, base: int) -> None:
    """Give each record the physical offset `base` + its position in `buffer`, and its checksum.

    `buffer` is private and writable, and each record is whole in it. A record with a wrong checksum
    keeps it, so that readers detect the damage.
    """
    if not len(starts):
        return
    raw, view = np.frombuffer(buffer, np.uint8), memoryview(buffer)
    ends = starts + sizes
    whole, stated = record_checksums(raw, ends)
    found = crc32_of_each(view, starts[whole], ends[whole] - PROPERTY_CRC_BYTES)
    whole[whole] = found == stated[whole]
    offsets = (starts + base).astype(">i8").view(np.uint8).reshape(len(starts), 8)
    scatter(raw, starts + layout.PHYSICAL_OFFSET_POSITION, offsets)
    tails = ends[whole] - PROPERTY_CRC_BYTES
    if len(tails):
        scatter(raw, tails, property_crcs(crc32_of_each(view, starts[whole], tails)))


def placeless_digests(buffer: bytes | memoryview, starts: I64, sizes: I64) -> I64:
    """A number for each record that is the same in the log and in a tier: of all its bytes but its
    physical offset and the digits of its checksum."""
    raw, ends = np.frombuffer(bytearray(buffer), np.uint8), starts + sizes
    if not len(starts):
        return np.zeros(0, np.int64)
    whole, _ = record_checksums(raw, ends)
    places = starts + layout.PHYSICAL_OFFSET_POSITION
    scatter(raw, places, np.zeros((len(starts), 8), np.uint8))
    digits = ends[whole] - PROPERTY_CRC_BYTES + _DIGITS_AT
    scatter(raw, digits, np.zeros((len(digits), PROPERTY_CRC_BYTES - _DIGITS_AT - 1), np.uint8))
    view = raw.data
    found = b"".join(
        blake2b(view[start:end], digest_size=8).digest()
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    )
    return np.frombuffer(found, np.int64)


def physical_offset_of(record: bytes | memoryview) -> int:
    place = layout.PHYSICAL_OFFSET_POSITION
    return int.from_bytes(memoryview(record)[place : place + 8], "big", signed=True)
