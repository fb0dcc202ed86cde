"""Index files in memory: built one key after the other, as RocketMQ does, built by columns, and
queried."""

from collections.abc import Sequence

from stratamq.formats.index_columns import IndexKeys, IndexState, encode_slots, put_keys
from stratamq.formats.index_file import IndexFileView
from stratamq.formats.index_layout import (
    INDEX_HEADER,
    INDEX_HEADER_BYTES,
    INDEX_ITEM,
    INDEX_SLOT,
    IndexHeader,
    encode_index_header,
    index_file_bytes,
    item_position,
    slot_position,
)
from stratamq.formats.javahash import index_key_hash
from stratamq.formats.numbers import INT32_MAX, Offset

MAX_QUERY_RESULTS = 64
"""RocketMQ never answers with more."""


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


class IndexFilesBuilder:
    """Whole files, many keys at a time."""

    def __init__(self, slots: int, items: int, previous: IndexHeader | None = None) -> None:
        """`previous` is the header of the file before the first that will be built."""
        self._state = IndexState(slots, items, previous)
        self._built: list[tuple[IndexState, bytearray]] = []

    def put(self, keys: IndexKeys) -> None:
        for state, items in put_keys(self._state, keys):
            if not self._built or self._built[-1][0] is not state:
                self._built.append((state, bytearray(index_file_bytes(state.slots, state.items))))
            start = item_position(items.first_number, state.slots)
            raw = items.records.tobytes()
            self._built[-1][1][start : start + len(raw)] = raw
            self._state = state

    def files(self) -> list[bytes]:
        """Every file so far, complete with header and slots."""
        for state, buffer in self._built:
            buffer[:INDEX_HEADER_BYTES] = encode_index_header(state.header())
            buffer[slot_position(0) : item_position(0, state.slots)] = encode_slots(state.table)
        return [bytes(buffer) for _, buffer in self._built]
