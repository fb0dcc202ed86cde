"""The messages of a key: index files, uploaded and still written, then the messages themselves.

An index file knows a hash, a topic id and a second; the message decides. An item whose message
expired, or which points to another message, is left out. Spec tier 7.6.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stratamq.errors import CorruptRecordError
from stratamq.formats.frame import Frame, decode
from stratamq.formats.properties import has_key
from stratamq.formats.tier_index import (
    SLOT_BYTES,
    Items,
    decode_items,
    hashes_of_key,
    items_of_slot,
    matching,
    newest_first_by_slot,
    slot_place,
)
from stratamq.tier.containers.chain import Chain
from stratamq.tier.containers.queue import TierQueue
from stratamq.tier.driver.calls import Procedure

ALL_TIMES = (-(1 << 62), 1 << 62)


@dataclass(frozen=True, slots=True)
class UploadedIndex:
    """An index file in the tier, none without items. `begin_ms` is its name; `file`: its bytes as
    a chain from 0."""

    begin_ms: int
    end_ms: int
    slots: int
    item_count: int
    file: Chain


@dataclass(frozen=True, slots=True)
class LocalIndex:
    """An index file that is not uploaded yet: its items in the order they were put."""

    begin_ms: int
    end_ms: int
    items: Items

    @property
    def item_count(self) -> int:
        return len(self.items)


TierIndex = UploadedIndex | LocalIndex


@dataclass(frozen=True, slots=True)
class KeyHit:
    """A message that has the key."""

    queue_id: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class KeyAnswer:
    """`damaged`: queue id and place of items that point to no record, or to one that is damaged."""

    hits: tuple[KeyHit, ...]
    damaged: tuple[tuple[int, int], ...]


def items_of_key(
    index: TierIndex, topic: str, key: str, span: tuple[int, int] = ALL_TIMES
) -> Procedure[Items]:
    """The items that may be of this key, newest first. Two calls for an uploaded file."""
    hashes = hashes_of_key(topic, key)
    if isinstance(index, LocalIndex):
        return matching(newest_first_by_slot(index.items, 1), hashes, index.begin_ms, span)
    found = b""
    for slot in sorted({code % index.slots for code in hashes}):
        entry = yield from index.file.read(slot_place(slot), SLOT_BYTES)
        start, size = items_of_slot(entry, slot, index.slots)
        if size:
            found += yield from index.file.read(start, size)
    return matching(decode_items(found), hashes, index.begin_ms, span)


def messages_of_key(
    indexes: Sequence[TierIndex],
    queues: Mapping[int, TierQueue],
    topic_id: int,
    topic: str,
    key: str,
    limit: int,
    span: tuple[int, int] = ALL_TIMES,
) -> Procedure[KeyAnswer]:
    """Up to `limit` messages of this topic, newest file first, each once.

    `queues`: of the topic, by queue id. `span`: first and last store time.
    """
    found: dict[tuple[int, int], KeyHit] = {}
    damaged: set[tuple[int, int]] = set()
    for index in sorted(indexes, key=lambda index: index.begin_ms, reverse=True):
        items = yield from items_of_key(index, topic, key, span)
        for _, item_topic, queue_id, place, size, _ in items.tolist():
            queue = queues.get(queue_id)
            if len(found) >= limit or item_topic != topic_id or queue is None:
                continue
            if (queue_id, place) in found or not queue.records.covers(place, size):
                continue
            record = yield from queue.records.read(place, size)
            try:
                # Not by a checksum of the whole record: RocketMQ moves records and leaves it.
                frame = decode(record)
            except CorruptRecordError:
                damaged.add((queue_id, place))
                continue
            if isinstance(frame, Frame) and _has_key(frame, topic, key, span):
                found[queue_id, place] = KeyHit(queue_id, frame)
    return KeyAnswer(tuple(found.values()), tuple(sorted(damaged)))


def _has_key(frame: Frame, topic: str, key: str, span: tuple[int, int]) -> bool:
    return (
        frame.topic == topic
        and span[0] <= frame.store_timestamp_ms <= span[1]
        and has_key(frame.properties, key)
    )
