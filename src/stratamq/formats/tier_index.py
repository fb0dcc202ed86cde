"""The key index of RocketMQ's tiered store: files that are written, and files that are uploaded.

    off    size   header, of both
    0      4      magic: OPEN, or CLOSED (full, or uploaded)
    4      8      begin: the time of the file's creation, its name
    12     8      end: the highest store time put; 0 in a new file. Often below `begin`
    20     4      slots in use
    24     4      items

    28+8·s 8      slot s of N. Open: number of the newest item (4), unused (4);
                  uploaded: position of its first item (4), bytes of all its items (4)

    off    size   item; open: number i at 28 + 8N + 32·i, from 1; uploaded: by slot, newest first
    0      4      hash of `topic#key`
    4      4      topic id
    8      4      queue id
    12     8      offset in the queue's tier file
    20     4      size of the message
    24     4      seconds from begin to the store time, towards zero; may be negative
    28     4      open only: number of the slot's next older item, 0: none

The hash is Java's, made positive; −2^31, which has no positive, RocketMQ drops, and we write as 0.
A key whose Java hash is negative has another number in files of releases that mask the sign away: a
reader looks for both. Spec tier 7.2 to 7.6.
"""

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import CorruptRecordError
from stratamq.formats.javahash import absolute_hash, java_string_hash

Buffer = bytes | bytearray | memoryview

TIER_INDEX_HEADER = struct.Struct(
    ">"
    "I"  # magic
    "q"  # begin
    "q"  # end
    "i"  # slots in use
    "i"  # items
)
HEADER_BYTES = TIER_INDEX_HEADER.size
SLOT_BYTES = 8
MAGIC_OPEN = 0xBCC50289
MAGIC_CLOSED = 0xBCC50285
DEFAULT_SLOTS = 5_000_000
DEFAULT_ITEMS = 20_000_000
"""The places of an open file; the first is not used."""

ITEM: Final = np.dtype(
    [
        ("key_hash", ">i4"),
        ("topic_id", ">i4"),
        ("queue_id", ">i4"),
        ("offset", ">i8"),
        ("size", ">i4"),
        ("seconds", ">i4"),
    ]
)
OPEN_ITEM: Final = np.dtype([*ITEM.descr, ("previous", ">i4")])
_SLOT = np.dtype([("first", ">i4"), ("second", ">i4")])
ITEM_BYTES, OPEN_ITEM_BYTES = ITEM.itemsize, OPEN_ITEM.itemsize
assert (HEADER_BYTES, _SLOT.itemsize, ITEM_BYTES, OPEN_ITEM_BYTES) == (28, SLOT_BYTES, 28, 32)

Items = NDArray[np.void]
"""Rows of ITEM."""


@dataclass(frozen=True, slots=True)
class TierIndexHeader:
    magic: int
    begin_ms: int
    end_ms: int
    used_slots: int
    items: int


def decode_tier_index_header(buffer: Buffer) -> TierIndexHeader:
    """CorruptRecordError (reason `length` or `magic`) for what is no index file."""
    if len(buffer) < HEADER_BYTES:
        raise CorruptRecordError(f"an index file of {len(buffer)} bytes", 0, "length")
    header = TierIndexHeader(*TIER_INDEX_HEADER.unpack_from(buffer))
    if header.magic not in (MAGIC_OPEN, MAGIC_CLOSED) or header.items < 0:
        raise CorruptRecordError(f"no index file: magic {header.magic:08x}", 0, "magic")
    return header


def hashes_of_key(topic: str, key: str) -> tuple[int, ...]:
    """What a file may have for this key: RocketMQ's up to 5.5.0, and that of masking releases."""
    code = java_string_hash(f"{topic}#{key}")
    return tuple(dict.fromkeys((absolute_hash(code), code & 0x7FFFFFFF)))


def open_items(buffer: Buffer, slots: int) -> Items:
    """The items of a file that is written, in the order they were put.

    Its pages may have reached the disk in any order: items that were never written (zeros) and
    those that the file has no room for are left out.
    """
    header = decode_tier_index_header(buffer)
    first = slot_place(slots) + OPEN_ITEM_BYTES
    room = max(0, (len(buffer) - first) // OPEN_ITEM_BYTES)
    found = np.frombuffer(buffer, OPEN_ITEM, min(header.items, room), first) if room else _NONE
    return found[found["size"] > 0][list(ITEM.names or ())].astype(ITEM)


_NONE = np.empty(0, OPEN_ITEM)


def newest_first_by_slot(items: Items, slots: int) -> Items:
    """Items in the order they were put → slot by slot, the newest of each first."""
    slot = items["key_hash"].astype(np.int64) % slots
    newest_first = np.arange(len(items) - 1, -1, -1)
    return items[newest_first[np.argsort(slot[newest_first], kind="stable")]]


def encode_uploaded(items: Items, slots: int, begin_ms: int, end_ms: int) -> bytes:
    """The uploaded form of items that are in the order they were put."""
    packed = newest_first_by_slot(items, slots)
    counts = np.bincount(packed["key_hash"].astype(np.int64) % slots, minlength=slots)
    table = np.empty(slots, _SLOT)
    table["second"] = counts * ITEM_BYTES
    table["first"] = slot_place(slots) + (np.cumsum(counts) - counts) * ITEM_BYTES
    header = TIER_INDEX_HEADER.pack(
        MAGIC_CLOSED, begin_ms, end_ms, int(np.count_nonzero(counts)), len(packed)
    )
    return b"".join((header, table.tobytes(), packed.tobytes()))


def slot_count(first_slot: Buffer) -> int:
    """Slots of an uploaded file, from the 8 bytes of its first slot. CorruptRecordError."""
    end = int.from_bytes(memoryview(first_slot)[:4], "big", signed=True)
    slots, rest = divmod(end - HEADER_BYTES, SLOT_BYTES)
    if len(first_slot) < SLOT_BYTES or rest or slots < 1:
        raise CorruptRecordError(f"the slot table ends at byte {end}", HEADER_BYTES, "slots")
    return slots


def slot_place(slot: int) -> int:
    """Where slot `slot` is; of an uploaded file of so many slots its first item."""
    return HEADER_BYTES + SLOT_BYTES * slot


def items_of_slot(
    entry: Buffer, slot: int, slots: int, end: int | None = None, file: str = ""
) -> tuple[int, int]:
    """Position and bytes of a slot's items in an uploaded file, from the slot's 8 bytes.

    `end`: of the file, if that is known. CorruptRecordError names `file`.
    """
    view = memoryview(entry)
    start, size = (int.from_bytes(view[at : at + 4], "big", signed=True) for at in (0, 4))
    beyond = end is not None and start + size > end
    if size and (size < 0 or size % ITEM_BYTES or start < slot_place(slots) or beyond):
        what = f"{file}: " if file else ""
        raise CorruptRecordError(f"{what}slot {slot} names {size} bytes at {start}", slot, "slots")
    return start, size


def times_of(items: Items, begin_ms: int) -> NDArray[np.int64]:
    """Store times in ms, to the second."""
    return begin_ms + items["seconds"].astype(np.int64) * 1000


def decode_items(buffer: Buffer) -> Items:
    """The whole items in `buffer`, which begins with one."""
    return np.frombuffer(buffer, ITEM, len(buffer) // ITEM_BYTES)


def uploaded_items(buffer: Buffer) -> Items:
    """All items of an uploaded file, as they are in it; none of one that is empty."""
    if len(buffer) <= HEADER_BYTES:
        return np.empty(0, ITEM)
    header = decode_tier_index_header(buffer)
    end = slot_place(slot_count(memoryview(buffer)[HEADER_BYTES : slot_place(1)]))
    return decode_items(memoryview(buffer)[end:])[: header.items]


def matching(items: Items, hashes: tuple[int, ...], begin_ms: int, span: tuple[int, int]) -> Items:
    """Those with one of these hashes whose second may touch `span` (first and last millisecond).

    A file knows a store time to the second: the message's own decides.
    """
    times = times_of(items, begin_ms)
    kept = np.isin(items["key_hash"], hashes)
    kept &= (times > span[0] - _SECOND_MS) & (times < span[1] + _SECOND_MS)
    return items[kept]


_SECOND_MS = 1000
