"""Merge small files of a key index into larger ones, so that a key query reads few files.

Each flush makes a file, however few keys there are. Files fall into classes, each of `RUN` times
the size of the one before. `RUN` last files of one class become one of the next; what reaches half
of `MAX_ITEMS` stays. A key is written once for each class, five times at most, and beside the full
files there are about `RUN` of each class.
"""

from collections.abc import Sequence

import numpy as np

from stratamq.formats.tier_index import ITEM_BYTES, decode_items, slot_place, times_of
from stratamq.formats.tier_index_manifest import IndexedFile
from stratamq.tier.containers.key_index import Keys, joined
from stratamq.tier.driver.calls import Block, Procedure, Read, Together, ask

RUN = 16
MAX_ITEMS = 1_000_000
"""The approximate limit of one file: 28 bytes each, and as much again while it is made."""


def run_to_merge(files: Sequence[IndexedFile], most_items: int = MAX_ITEMS) -> int:
    """How many of the last files are to be one; 0: none."""
    full, limit = most_items // 2, RUN
    while limit < full:
        count, _ = _trailing(files, limit, most_items)
        if count >= RUN:
            return count
        limit *= RUN
    count, items = _trailing(files, full, most_items)
    return count if count > 1 and items >= full else 0


def _trailing(files: Sequence[IndexedFile], limit: int, most_items: int) -> tuple[int, int]:
    """The number of last files below `limit` that have together at most `most_items`, and how many
    they have."""
    count = items = 0
    for file in reversed(files):
        if file.items >= limit or items + file.items > most_items:
            break
        items += file.items
        count += 1
    return count, items


def keys_in(files: Sequence[IndexedFile]) -> Procedure[Keys]:
    """All of them, in the order of the files. Times are exact to the second of each file."""
    calls = []
    for file in files:
        calls.append(Read(file.name, slot_place(file.slots), ITEM_BYTES * file.items))
    raws = yield from ask(Together(calls))
    return joined([_keys(file, raw) for file, raw in zip(files, raws, strict=True)])


def _keys(file: IndexedFile, raw: Block) -> Keys:
    # A file has the newest item of each slot first.
    items = decode_items(raw)[::-1]
    times = np.clip(times_of(items, file.begin_ms), file.first_ms, file.last_ms)
    return Keys(items, times)
