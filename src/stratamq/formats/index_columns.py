"""Index files built many keys at a time, byte for byte as RocketMQ builds them one by one.

A file has two sides. Its items are an append-only array (`INDEX_ITEM_DTYPE`, the layout of
`index_layout`). Its header and its slot table are `IndexState`: putting keys into a state yields
the items to append. The live index, rebuilds, `repair` and Spark all build through here.

    for state, items in put_keys(state, index_keys(columns)):
        append items.records to the file of `state`     # a new state is a new file

A message's keys may be split between two files: RocketMQ rolls in the middle of them. Spec 7.2–7.4.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stratamq.formats.dispatch import DispatchColumns
from stratamq.formats.index_layout import (
    INDEX_ITEM_BYTES,
    Buffer,
    IndexHeader,
    item_position,
)
from stratamq.formats.numbers import INT32_MAX, Offset

INDEX_ITEM_DTYPE = np.dtype(
    [
        ("key_hash", ">i4"),
        ("physical_offset", ">i8"),
        ("seconds", ">i4"),
        ("previous", ">i4"),
    ]
)
assert INDEX_ITEM_DTYPE.itemsize == INDEX_ITEM_BYTES


@dataclass(frozen=True, slots=True)
class IndexKeys:
    """One row per item to come, in the order of the log and of spec 7.2."""

    key_hash: NDArray[np.int32]
    physical_offset: NDArray[np.int64]
    store_timestamp_ms: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.key_hash)

    def __getitem__(self, rows: slice | NDArray[np.bool_]) -> "IndexKeys":
        return IndexKeys(
            self.key_hash[rows], self.physical_offset[rows], self.store_timestamp_ms[rows]
        )


@dataclass(frozen=True, slots=True)
class IndexItems:
    """Consecutive items of one file: as bytes, and the columns for readers in memory."""

    first_number: int
    records: NDArray[np.void]
    key_hash: NDArray[np.int32]
    slot: NDArray[np.int32]
    previous: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.records)

    @property
    def end_number(self) -> int:
        return self.first_number + len(self.records)


def index_keys(columns: DispatchColumns) -> IndexKeys:
    """What a range of the log gives to the index: all but rollbacks are indexed (spec 7.4)."""
    rows, hashes = columns.key_row, columns.key_hash
    indexed = columns.in_index
    if not indexed.all():
        kept = indexed[rows]
        rows, hashes = rows[kept], hashes[kept]
    return IndexKeys(hashes, columns.physical_offset[rows], columns.store_timestamp_ms[rows])


class IndexState:
    """Header and slot table of one index file, without its items. Not thread-safe.

    `table[k]` is the number of slot k's newest item, 0 for none. A new file takes over the end of
    the one before it, and its first item's seconds are counted from there, although the header's
    begin then becomes the item's own time: RocketMQ's skew, kept because it is bytes.
    """

    def __init__(self, slots: int, items: int, header: IndexHeader | None = None) -> None:
        """An empty file that takes over the end of `header`, the file before it."""
        self.slots = slots
        self.items = items
        self.table = np.zeros(slots, np.int32)
        self.begin_timestamp_ms = self.end_timestamp_ms = header.end_timestamp_ms if header else 0
        self.begin_phy_offset = self.end_phy_offset = int(header.end_phy_offset) if header else 0
        self.hash_slot_count = 0
        self.next_item = 1

    @property
    def is_full(self) -> bool:
        return self.next_item >= self.items

    @property
    def is_empty(self) -> bool:
        return self.next_item <= 1

    def header(self) -> IndexHeader:
        """Return the header as stored on disk, where indexCount stays 0 until the first put."""
        return IndexHeader(
            self.begin_timestamp_ms,
            self.end_timestamp_ms,
            Offset(self.begin_phy_offset),
            Offset(self.end_phy_offset),
            self.hash_slot_count,
            0 if self.is_empty else self.next_item,
        )

    def put(self, keys: IndexKeys) -> IndexItems:
        """The items of `keys`, or of as many as still fit."""
        room = self.items - self.next_item
        if len(keys) > room:
            keys = keys[: max(room, 0)]
        count = len(keys)
        slot = keys.key_hash % np.int32(self.slots)
        previous = chain(self.table, slot, self.next_item)
        records = np.empty(count, INDEX_ITEM_DTYPE)
        items = IndexItems(self.next_item, records, keys.key_hash, slot, previous)
        if not count:
            return items
        times, offsets = keys.store_timestamp_ms, keys.physical_offset
        records["key_hash"] = keys.key_hash
        records["physical_offset"] = offsets
        records["previous"] = previous
        if self.is_empty:
            first_seconds = seconds_after(self.begin_timestamp_ms, times[:1])
            self.begin_timestamp_ms = int(times[0])
            self.begin_phy_offset = int(offsets[0])
            records["seconds"] = seconds_after(self.begin_timestamp_ms, times)
            records["seconds"][0] = first_seconds[0]
        else:
            records["seconds"] = seconds_after(self.begin_timestamp_ms, times)
        self.end_timestamp_ms = int(times[-1])
        self.end_phy_offset = int(offsets[-1])
        self.hash_slot_count += count - int(np.count_nonzero(previous))
        self.next_item += count
        return items

    def cut(self, end_number: int, slot: NDArray[np.int32], previous: NDArray[np.int32]) -> None:
        """Forget the items from `end_number` on, of which `slot` and `previous` are given in order.

        The header's end is the caller's to set.
        """
        # Written newest first, so that each slot ends with what its oldest lost item followed.
        self.table[slot[::-1]] = previous[::-1]
        self.hash_slot_count -= len(previous) - int(np.count_nonzero(previous))
        self.next_item = end_number

    def replay(self, key_hash: NDArray[np.int32]) -> NDArray[np.int32]:
        """Chain the next items of a file that exists; what each `previous` must be.

        `key_hash` must not be negative. The times and offsets of the header are the caller's.
        """
        previous = chain(self.table, key_hash % np.int32(self.slots), self.next_item)
        self.hash_slot_count += len(previous) - int(np.count_nonzero(previous))
        self.next_item += len(previous)
        return previous


def put_keys(state: IndexState, keys: IndexKeys) -> Iterator[tuple[IndexState, IndexItems]]:
    """Put all of `keys`, going on in new files as each is full. Only non-empty parts come out.

    A state other than the one before it is a new file, to be made before the next part is asked
    for. No file is made before there is an item for it.
    """
    done = 0
    while done < len(keys):
        if state.is_full:
            state = IndexState(state.slots, state.items, state.header())
        items = state.put(keys[done:] if done else keys)
        done += len(items)
        yield state, items


def chain(
    table: NDArray[np.int32], slot: NDArray[np.int32], first_number: int
) -> NDArray[np.int32]:
    """Hang items `first_number`, … into their slots; the item that each of them follows."""
    numbers = np.arange(first_number, first_number + len(slot), dtype=np.int32)
    previous = table[slot]
    table[slot] = numbers
    if len(slot) > 1 and (table[slot] != numbers).any():
        # Some slot got several items: its later ones follow each other, its last one is newest.
        order = np.argsort(slot, kind="stable")
        sorted_slot, sorted_numbers = slot[order], numbers[order]
        same = sorted_slot[1:] == sorted_slot[:-1]
        previous[order[1:][same]] = sorted_numbers[:-1][same]
        last = np.append(~same, True)
        table[sorted_slot[last]] = sorted_numbers[last]
    return previous


def seconds_after(begin_timestamp_ms: int, times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Whole seconds for items, within 0 … 2³¹−1; 0 while the file has no beginning."""
    if begin_timestamp_ms <= 0:
        return np.zeros(len(times), np.int64)
    seconds = (times - begin_timestamp_ms) // 1000
    return np.clip(seconds, 0, INT32_MAX, out=seconds)


def encode_slots(table: NDArray[np.int32]) -> bytes:
    return table.astype(">i4").tobytes()


def item_records(buffer: Buffer, slots: int, first: int, end: int) -> NDArray[np.void]:
    """Items `first` … `end` − 1 of the bytes of a whole file, not copied."""
    return np.frombuffer(buffer, INDEX_ITEM_DTYPE, end - first, item_position(first, slots))
