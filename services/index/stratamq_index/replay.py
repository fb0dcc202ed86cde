"""An index file's chains computed again from its hash column, and compared with its content.

Slots on disk are old after a crash, and any bytes may be wrong in a file of another program's.
The hash column is enough: the item before an item in its slot, the newest of each slot and the
number of slots in use follow from it.
"""

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from stratamq.formats.index_columns import IndexState
from stratamq.formats.index_layout import IndexHeader
from stratamq.formats.numbers import INT32_MAX
from stratamq_index.geometry import FileGeometry
from stratamq_index.index_file import IndexFileReader


@dataclass(frozen=True, slots=True)
class Replayed:
    """`state` has the table of the items below the header's next one, and the header's values.

    readable   all items are there, with possible hashes, offsets in order, from the header's begin
               to its end
    chained    every item names the right previous one
    slotted    the slot table on disk is the one that follows from the items, and so is the number
               of slots in use
    """

    state: IndexState
    readable: bool
    chained: bool
    slotted: bool

    @property
    def faultless(self) -> bool:
        return self.readable and self.chained and self.slotted


def replay(
    reader: IndexFileReader, geometry: FileGeometry, header: IndexHeader
) -> Generator[None, None, Replayed]:
    """Reads the file in steps of less than 2 ms, of which only the slots are one longer step."""
    state = IndexState(geometry.slots, geometry.items)
    end = header.next_item
    readable = chained = True
    last = int(header.begin_phy_offset)
    for number, records in reader.pieces(1, end):
        hashes = records["key_hash"].astype(np.int32)
        offsets = records["physical_offset"].astype(np.int64)
        readable &= bool(offsets[0] >= last) and bool((np.diff(offsets) >= 0).all())
        readable &= number > 1 or int(offsets[0]) == last
        readable &= not (hashes < 0).any()
        hashes &= INT32_MAX
        last = int(offsets[-1])
        chained &= bool((records["previous"] == state.replay(hashes)).all())
        yield
    in_use = state.hash_slot_count
    state.begin_timestamp_ms = header.begin_timestamp_ms
    state.begin_phy_offset = header.begin_phy_offset
    state.end_timestamp_ms = header.end_timestamp_ms
    state.end_phy_offset = header.end_phy_offset
    readable &= state.next_item == end and (state.is_empty or last == header.end_phy_offset)
    # 4.3.0 counted items instead of slots.
    slotted = header.hash_slot_count in (in_use, end - 1) and bool(
        np.array_equal(reader.table(), state.table)
    )
    if header.hash_slot_count == end - 1:
        state.hash_slot_count = header.hash_slot_count
    return Replayed(state, readable, chained, slotted)


def run(steps: Generator[None, None, Replayed]) -> Replayed:
    """All steps at once: for a start, when nothing else waits."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value
