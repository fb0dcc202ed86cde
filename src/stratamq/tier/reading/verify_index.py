"""Whether the key index of a tier of ours has every key: each file, each item, each message.

A key that is in no file is a fault. An item whose message is not there, or is another one, is none:
it was cut off, or retention has deleted it, and a query leaves it out.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stratamq.errors import CorruptionError, CorruptRecordError, OffsetOutOfRangeError
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.queue_units import UnitArray, decode_units
from stratamq.formats.tier_index import (
    HEADER_BYTES,
    ITEM,
    SLOT_BYTES,
    Items,
    decode_tier_index_header,
    newest_first_by_slot,
    slot_count,
    uploaded_items,
)
from stratamq.formats.tier_index_manifest import IndexedFile, IndexManifest, QueueKey
from stratamq.formats.tier_manifest import ManifestPart, RecordSegment
from stratamq.tier.containers.key_index import keys_of
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.driver.calls import AbsentError, Block, Procedure, Read, ask
from stratamq.tier.reading.key_index import load_index
from stratamq.tier.reading.manifests import ManifestQueue, open_queue

ITEMS_AT_ONCE = 8_000_000
"""In memory, 28 bytes each: of an index that has more a part of the queues is looked at after the
other, and its files are read again for each."""
MAX_FAULTS = 100


@dataclass(frozen=True, slots=True)
class VerifiedIndex:
    """`items`: of all files; `stale`: those whose message no longer exists; `keys`: those that were
    looked up. `faults`: a sentence each, at most `MAX_FAULTS`."""

    files: int
    items: int
    stale: int
    keys: int
    faults: tuple[str, ...]


def verify_index(cluster: str, broker: str) -> Procedure[VerifiedIndex | None]:
    """Reads every message that is said to be indexed. None: there is no index.
    StorageUnavailableError."""
    try:
        manifest = yield from load_index(cluster, broker)
    except CorruptionError as error:
        return VerifiedIndex(0, 0, 0, 0, (error.message,))
    if manifest is None:
        return None
    found = _Verification(manifest)
    yield from found.run()
    faults = tuple(dict.fromkeys(found.faults))[:MAX_FAULTS]
    return VerifiedIndex(len(manifest.files), found.items, found.stale, found.keys, faults)


class _Verification:
    def __init__(self, manifest: IndexManifest) -> None:
        self.faults: list[str] = []
        self.items = sum(file.items for file in manifest.files)
        self.stale = self.items
        self.keys = 0
        self._manifest = manifest
        self._rounds = max(1, -(-self.items // ITEMS_AT_ONCE))

    def run(self) -> Procedure[None]:
        for number in range(self._rounds):
            items = yield from self._load(number)
            for key, end in self._manifest.covered.items():
                topic_id = self._manifest.topics.get(key[0])
                if topic_id is None:
                    self.faults.append(f"the index has no number for the topic {key[0]}")
                elif (topic_id * 31 + key[1]) % self._rounds == number:
                    yield from self._look_at(key, end, _of_queue(items, topic_id, key[1]))

    def _load(self, number: int) -> Procedure[Items]:
        """The items of the queues of one round, by queue and place."""
        loaded = [np.empty(0, ITEM)]
        for file in self._manifest.files:
            try:
                raw = yield from ask(Read(file.name, 0, file.size))
                self.faults += faults_of_form(file, raw)
                items = uploaded_items(raw)
            except (AbsentError, CorruptionError, OffsetOutOfRangeError) as error:
                self.faults.append(f"{file.name}: {error.message}")
                continue
            rounds = items["topic_id"].astype(np.int64) * 31 + items["queue_id"]
            loaded.append(items[rounds % self._rounds == number])
        joined = np.concatenate(loaded).astype(ITEM)
        return joined[np.lexsort((joined["offset"], joined["queue_id"], joined["topic_id"]))]

    def _look_at(self, key: QueueKey, end: int, items: Items) -> Procedure[None]:
        """`end`: every message of the queue below this queue offset is said to be indexed."""
        place = QueuePlace(self._manifest.cluster, self._manifest.broker, *key)
        try:
            found = yield from open_queue(place)
        except CorruptionError as error:
            self.faults.append(f"{place.path}: {error.message}")
            return
        if found is None:
            return
        places = items["offset"].astype(np.int64)
        for segment, parts in found.parts:
            for part in parts:
                if part.first < end:
                    yield from self._look_at_part(place, found, segment, part, end, items, places)

    def _look_at_part(
        self,
        place: QueuePlace,
        found: ManifestQueue,
        segment: RecordSegment,
        part: ManifestPart,
        end: int,
        items: Items,
        places: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    ) -> Procedure[None]:
        what = f"{place.path}, offsets {part.first} to {part.first + part.count}"
        start = segment.base + part.position
        try:
            records = yield from found.queue.records.read(start, part.size)
            raw = yield from found.queue.units.read(
                part.first * QUEUE_UNIT_BYTES, part.count * QUEUE_UNIT_BYTES
            )
        except (AbsentError, CorruptionError, OffsetOutOfRangeError) as error:
            self.faults.append(f"{what}: {error.message}")
            return
        try:
            keys = keys_in(start, part, records, decode_units(raw), end)
        except CorruptionError as error:
            self.faults.append(f"{what}: {error.message}")
            return
        low, high = np.searchsorted(places, [start, start + part.size])
        there, wanted = set(_pairs(items[low:high])), set(_pairs(keys))
        self.keys += len(wanted)
        self.stale -= sum(1 for pair in _pairs(items[low:high]) if pair in wanted)
        if missing := len(wanted - there):
            self.faults.append(f"{what}: {missing} keys are in no file of the index")


def keys_in(start: int, part: ManifestPart, records: Block, units: UnitArray, end: int) -> Items:
    """The keys of the messages of a part below queue offset `end`, as items without topic and
    queue. CorruptRecordError."""
    sizes = units["size"].astype(np.int64)[: max(0, end - part.first)]
    if int(sizes.sum()) > part.size:
        raise CorruptRecordError("units and records do not fit each other", start, "units")
    return keys_of(records[: int(sizes.sum())], sizes, start, 0, 0).items


def _of_queue(items: Items, topic_id: int, queue_id: int) -> Items:
    low, high = np.searchsorted(items["topic_id"], [topic_id, topic_id + 1])
    of_topic = items[low:high]
    low, high = np.searchsorted(of_topic["queue_id"], [queue_id, queue_id + 1])
    return of_topic[low:high]


def faults_of_form(file: IndexedFile, raw: Block) -> Iterator[str]:
    """Header, and the items of each slot. CorruptRecordError."""
    header = decode_tier_index_header(raw)
    first_slot = memoryview(raw)[HEADER_BYTES : HEADER_BYTES + SLOT_BYTES]
    items, slots = uploaded_items(raw), slot_count(first_slot)
    if not len(items) == header.items == file.items:
        yield f"{file.name}: {len(items)} items instead of {file.items}"
    elif slots != file.slots or header.begin_ms != file.begin_ms:
        yield f"{file.name}: its header is another file's"
    elif (newest_first_by_slot(items[::-1], slots) != items).any():
        yield f"{file.name}: items are not in their slots"


def _pairs(items: Items) -> Iterator[tuple[int, int]]:
    return zip(items["offset"].tolist(), items["key_hash"].tolist(), strict=True)
