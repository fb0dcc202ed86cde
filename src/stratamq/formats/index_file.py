"""Read index files and, as a reference, build them one key after the other, byte for byte as
RocketMQ.

`index_layout` has the byte table. The reader answers like RocketMQ 4.9.8, hash collisions included:
callers must compare the message's own key with the key they look for. Spec 7.3, 7.5.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from stratamq.errors import CorruptRecordError
from stratamq.formats.index_layout import (
    INDEX_HEADER,
    INDEX_HEADER_BYTES,
    INDEX_ITEM,
    INDEX_ITEM_BYTES,
    INDEX_SLOT,
    MAX_QUERY_RESULTS,
    Buffer,
    IndexHeader,
    IndexItem,
    index_file_bytes,
    item_position,
    slot_position,
)
from stratamq.formats.javahash import index_key_hash
from stratamq.formats.numbers import INT32_MAX, Offset

_ITEM_TYPE = np.dtype(
    [("key_hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
assert _ITEM_TYPE.itemsize == INDEX_ITEM_BYTES


class IndexFileView:
    """A view of one index file. Reads the buffer on every call, because it may be a mapping that
    grows.

    Raises CorruptRecordError (reason `length`) if the buffer is too short for the geometry.
    """

    def __init__(self, buffer: Buffer, slots: int, items: int) -> None:
        if slots < 1 or items < 1 or len(buffer) < index_file_bytes(slots, items):
            raise CorruptRecordError(
                f"an index file of {slots} slots and {items} items has "
                f"{index_file_bytes(slots, items)} bytes, not {len(buffer)}",
                0,
                "length",
            )
        self._buffer = buffer
        self.slots = slots
        self.items = items

    @property
    def header(self) -> IndexHeader:
        return IndexHeader(*INDEX_HEADER.unpack_from(self._buffer))

    def slot(self, slot: int) -> int:
        """The number of the slot's newest item, whatever it is."""
        return INDEX_SLOT.unpack_from(self._buffer, slot_position(slot))[0]

    def item(self, number: int) -> IndexItem:
        position = item_position(number, self.slots)
        return IndexItem(number, *INDEX_ITEM.unpack_from(self._buffer, position))

    def __iter__(self) -> Iterator[IndexItem]:
        """All items in the order they were put."""
        for number in range(1, self._end()):
            yield self.item(number)

    def query(self, key_text: str, max_num: int, begin_ms: int, end_ms: int) -> list[Offset]:
        """Physical offsets, newest first, if the file's times touch [begin_ms, end_ms]."""
        header = self.header
        if not header.matches_time(begin_ms, end_ms) or header.index_count <= 1:
            return []
        key_hash = index_key_hash(key_text)
        found: list[Offset] = []
        end = self._end()
        number = self.slot(key_hash % self.slots)
        while 0 < number < end and len(found) < max_num:
            item = self.item(number)
            if item.time_diff_seconds < 0:
                break
            time_ms = header.begin_timestamp_ms + item.time_diff_seconds * 1000
            if item.key_hash == key_hash and begin_ms <= time_ms <= end_ms:
                found.append(item.physical_offset)
            # An older item has a smaller number: anything else is damage, perhaps a circle.
            if item.previous >= number or time_ms < begin_ms:
                break
            number = item.previous
        return found

    def has_geometry_of_its_items(self) -> bool:
        """Whether every item hangs in the slot of its hash: false for a wrong guess of geometry.

        Each item must be reached once, from its slot or from the next newer item of that slot.
        """
        slots = np.frombuffer(self._buffer, ">i4", self.slots, INDEX_HEADER_BYTES)
        items = np.frombuffer(self._buffer, _ITEM_TYPE, self._end(), item_position(0, self.slots))
        slots_in_use = np.flatnonzero(slots)
        newest, numbers = slots[slots_in_use], np.flatnonzero(items["previous"][1:]) + 1
        older = items["previous"][numbers]
        reached = np.sort(np.concatenate((newest, older)))
        if not np.array_equal(reached, np.arange(1, len(items))):
            return False
        homes = items["key_hash"] % self.slots
        return bool(
            np.all(items["key_hash"][1:] >= 0)
            and np.all(older < numbers)
            and np.array_equal(homes[newest], slots_in_use)
            and np.array_equal(homes[older], homes[numbers])
        )

    def _end(self) -> int:
        return min(self.header.next_item, self.items)


def query_index_files(
    files: Sequence[IndexFileView], key_text: str, max_num: int, begin_ms: int, end_ms: int
) -> list[Offset]:
    """RocketMQ's `queryOffset` over files in order of age, oldest first. At most 64 offsets."""
    max_num = min(max_num, MAX_QUERY_RESULTS)
    found: list[Offset] = []
    for file in reversed(files):
        found += file.query(key_text, max_num - len(found), begin_ms, end_ms)
        if file.header.begin_timestamp_ms < begin_ms or len(found) >= max_num:
            break
    return found


class IndexFileBuilder:
    """Puts keys into `buffer`, the bytes of one index file, new or half full.

    A new file takes over the end of the one before it (`end_phy_offset`, `end_timestamp_ms`), and
    the first item's seconds are counted from there although the header's begin then becomes the
    item's own time. That skew of RocketMQ's is kept: it is bytes.
    """

    def __init__(self, buffer: bytearray | memoryview, slots: int, items: int) -> None:
        self.reader = IndexFileView(buffer, slots, items)
        self.buffer = buffer

    @classmethod
    def create(
        cls, slots: int, items: int, end_phy_offset: int = 0, end_timestamp_ms: int = 0
    ) -> "IndexFileBuilder":
        builder = cls(bytearray(index_file_bytes(slots, items)), slots, items)
        INDEX_HEADER.pack_into(
            builder.buffer,
            0,
            end_timestamp_ms,
            end_timestamp_ms,
            end_phy_offset,
            end_phy_offset,
            0,
            0,
        )
        return builder

    @property
    def is_full(self) -> bool:
        return self.reader.header.next_item >= self.reader.items

    def put(self, key_text: str, physical_offset: Offset | int, store_timestamp_ms: int) -> bool:
        """False, and nothing done, when the file is full."""
        header = self.reader.header
        number = header.next_item
        slots = self.reader.slots
        if number >= self.reader.items:
            return False
        key_hash = index_key_hash(key_text)
        slot = key_hash % slots
        previous = self.reader.slot(slot)
        if not 0 < previous <= number:
            previous = 0
        seconds = seconds_after(header.begin_timestamp_ms, store_timestamp_ms)
        INDEX_ITEM.pack_into(
            self.buffer, item_position(number, slots), key_hash, physical_offset, seconds, previous
        )
        INDEX_SLOT.pack_into(self.buffer, slot_position(slot), number)
        first = number <= 1
        INDEX_HEADER.pack_into(
            self.buffer,
            0,
            store_timestamp_ms if first else header.begin_timestamp_ms,
            store_timestamp_ms,
            physical_offset if first else header.begin_phy_offset,
            physical_offset,
            min(header.hash_slot_count + (previous == 0), INT32_MAX),
            number + 1,
        )
        return True


def seconds_after(begin_timestamp_ms: int, store_timestamp_ms: int) -> int:
    """Whole seconds for an item, within 0 … 2³¹−1; 0 while the file has no beginning."""
    if begin_timestamp_ms <= 0:
        return 0
    return min(max((store_timestamp_ms - begin_timestamp_ms) // 1000, 0), INT32_MAX)
