"""The keys of messages on their way into an index file, and files as chains."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stratamq.formats.dispatch import displaced_columns
from stratamq.formats.tier_index import ITEM, Items, encode_uploaded

I64 = NDArray[np.int64]

LEAST_SLOTS = 64


@dataclass(frozen=True, slots=True)
class Keys:
    """Items whose seconds are not known yet, and the store times of their messages."""

    items: Items
    times: I64

    def __len__(self) -> int:
        return len(self.items)


def keys_of(
    records: bytes | memoryview, sizes: I64, place: int, topic_id: int, queue_id: int
) -> Keys:
    """The keys of records that lie one behind the other, the first at `place` of the queue's tier
    file: of each its unique key, then the words of KEYS."""
    starts = np.cumsum(sizes) - sizes
    columns = displaced_columns(records, place, sizes.astype(np.uint32))
    rows = columns.key_row
    items = np.zeros(len(rows), ITEM)
    items["key_hash"] = columns.key_hash
    items["topic_id"] = topic_id
    items["queue_id"] = queue_id
    items["offset"] = (starts + place)[rows]
    items["size"] = sizes[rows]
    return Keys(items, columns.store_timestamp_ms[rows].astype(np.int64))


def joined(keys: list[Keys]) -> Keys:
    if not keys:
        return Keys(np.empty(0, ITEM), np.empty(0, np.int64))
    # NumPy joins rows in the machine's byte order, and a file has its own.
    items = np.concatenate([one.items for one in keys]).astype(ITEM)
    return Keys(items, np.concatenate([one.times for one in keys]))


def with_seconds(keys: Keys, begin_ms: int) -> Items:
    items = keys.items.copy()
    items["seconds"] = np.trunc((keys.times - begin_ms) / 1000).astype(np.int64)
    return items


def fitting_slots(items: int) -> int:
    """Return as many slots as there are items, so that a file of few keys is small."""
    return max(LEAST_SLOTS, items)


def index_file(keys: Keys, slots: int, begin_ms: int) -> bytes:
    return encode_uploaded(with_seconds(keys, begin_ms), slots, begin_ms, int(keys.times.max()))
