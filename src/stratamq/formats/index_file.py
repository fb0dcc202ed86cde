"""Read index files.

`index_layout` has the byte table. The reader answers like RocketMQ 4.9.8, hash collisions included:
callers must compare the message's own key with the key they look for. Spec 7.3, 7.5.
"""

from collections.abc import Iterator

import numpy as np

from stratamq.errors import CorruptRecordError
from stratamq.formats.index_layout import (
    INDEX_HEADER,
    INDEX_HEADER_BYTES,
    INDEX_ITEM,
    INDEX_ITEM_BYTES,
    INDEX_SLOT,
    Buffer,
    IndexHeader,
    IndexItem,
    index_file_bytes,
    item_position,
    slot_position,
)
from stratamq.formats.javahash import index_key_hash
from stratamq.formats.numbers import Offset

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
