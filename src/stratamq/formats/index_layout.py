"""The offsets of all fields in an index file, and what a slot and an item mean.

    off                 size        content
    0                   40          header
    40                  4·slots     slots: number of the newest item of the slot, 0 = none
    40+4·slots          20·items    items; item 0 is never used

    header                                        item
    0    8   beginTimestamp, first item's          0    4   key hash, never negative
    8    8   endTimestamp, last item's             4    8   physical offset
    16   8   beginPhyOffset                        12   4   seconds after header.beginTimestamp
    24   8   endPhyOffset                          16   4   number of the previous, older item
    32   4   hashSlotCount, slots in use                    of the same slot, 0 = none
    36   4   indexCount, number of the next item

Big-endian. Spec 7.1. indexCount starts at 1, so a file of n items takes n − 1.
"""

import struct
from dataclasses import dataclass

from stratamq.formats.numbers import Offset

INDEX_HEADER = struct.Struct(
    ">"
    "q"  # beginTimestamp
    "q"  # endTimestamp
    "q"  # beginPhyOffset
    "q"  # endPhyOffset
    "i"  # hashSlotCount
    "i"  # indexCount
)
INDEX_SLOT = struct.Struct(
    ">i"  # item number
)
INDEX_ITEM = struct.Struct(
    ">"
    "i"  # key hash
    "q"  # physical offset
    "i"  # seconds
    "i"  # previous item
)
INDEX_HEADER_BYTES = INDEX_HEADER.size
INDEX_SLOT_BYTES = INDEX_SLOT.size
INDEX_ITEM_BYTES = INDEX_ITEM.size
assert (INDEX_HEADER_BYTES, INDEX_SLOT_BYTES, INDEX_ITEM_BYTES) == (40, 4, 20)

DEFAULT_SLOTS = 5_000_000
DEFAULT_ITEMS = 20_000_000

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class IndexHeader:
    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_phy_offset: Offset
    end_phy_offset: Offset
    hash_slot_count: int
    index_count: int

    @property
    def next_item(self) -> int:
        """On disk indexCount is 0 until the first put; that means 1."""
        return max(self.index_count, 1)

    def matches_time(self, begin_ms: int, end_ms: int) -> bool:
        first, last = self.begin_timestamp_ms, self.end_timestamp_ms
        return (
            (begin_ms < first and end_ms > last)
            or first <= begin_ms <= last
            or first <= end_ms <= last
        )


@dataclass(frozen=True, slots=True)
class IndexItem:
    number: int
    key_hash: int
    physical_offset: Offset
    time_diff_seconds: int
    previous: int


def index_file_bytes(slots: int, items: int) -> int:
    return INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * slots + INDEX_ITEM_BYTES * items


def slot_position(slot: int) -> int:
    return INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * slot


def item_position(number: int, slots: int) -> int:
    return INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * slots + INDEX_ITEM_BYTES * number


def encode_index_header(header: IndexHeader) -> bytes:
    return INDEX_HEADER.pack(
        header.begin_timestamp_ms,
        header.end_timestamp_ms,
        header.begin_phy_offset,
        header.end_phy_offset,
        header.hash_slot_count,
        header.index_count,
    )


def decode_index_header(buffer: Buffer) -> IndexHeader | None:
    """None when fewer than 40 bytes are there."""
    if len(buffer) < INDEX_HEADER_BYTES:
        return None
    return IndexHeader(*INDEX_HEADER.unpack_from(buffer))


def index_key(topic: str, key: str) -> str:
    """The text of which the hash is taken."""
    return f"{topic}#{key}"


def index_tag_key(topic: str, tags: str) -> str:
    """The key under which 5.4.0 and later index a message's TAGS."""
    return f"{topic}#T#{tags}"
