"""A queue of the log, as batches for the tier, and what must be found of it there."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from stratamq.formats import frame as frames
from stratamq.formats.crc import crc32
from stratamq.formats.frame_verify import damage_in
from stratamq.formats.message_status import PullStatus
from stratamq.formats.properties import encode_properties
from stratamq.formats.property_crc import PROPERTY_CRC_BYTES, fill_property_crc, reserve
from stratamq.formats.tier_records import physical_offset_of
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.driver.storage import Storage, run
from stratamq.tier.reading.manifests import ManifestQueue, open_queue
from stratamq.tier.reading.pull import pull
from stratamq.tier.writing.batch import TierBatch

PLACE = QueuePlace("DefaultCluster", "broker-a", "%RETRY%orders", 3)
TIME = 1_700_000_000_000


@cache
def record(offset: int, body_bytes: int) -> bytes:
    """As the log has it: with a checksum of the whole record in two of three."""
    properties = encode_properties({"KEYS": f"k{offset}", "UNIQ_KEY": f"u{offset}"})
    sealed = offset % 3 != 0
    raw = bytearray(
        frames.encode(
            topic=PLACE.topic.encode(),
            body=bytes((offset * 31 + place) % 256 for place in range(body_bytes)),
            born_host=bytes(20 if offset % 5 == 0 else 8),
            store_host=bytes(8),
            properties=reserve(properties) if sealed else properties,
            queue_id=PLACE.queue_id,
            queue_offset=offset,
            physical_offset=offset * 100_000 + 7,
            store_timestamp_ms=TIME + offset * 10,
        )
    )
    if sealed:
        fill_property_crc(raw)
    return bytes(raw)


@dataclass(frozen=True, slots=True)
class QueueModel:
    """`sizes`: bytes of the body of each message, by queue offset from `first` on."""

    first: int
    sizes: tuple[int, ...]

    @property
    def end(self) -> int:
        return self.first + len(self.sizes)

    def record(self, offset: int) -> bytes:
        return record(offset, self.sizes[offset - self.first])

    def batch(self, start: int, end: int) -> TierBatch:
        records = [self.record(offset) for offset in range(start, end)]
        return TierBatch(
            start,
            b"".join(records),
            np.array([len(raw) for raw in records], np.int64),
            np.arange(start, end, dtype=np.int64) * 7,
            TIME + np.arange(start, end, dtype=np.int64) * 10,
        )


def opened(storage: Storage, place: QueuePlace = PLACE) -> ManifestQueue | None:
    return run(open_queue(place), storage)


def check(storage: Storage, model: QueueModel, committed: int, place: QueuePlace = PLACE) -> int:
    """Everything below queue offset `committed` is in the tier, byte for byte; what is there beyond
    it is the log's too. The end of what is there."""
    found = opened(storage, place)
    if found is None:
        assert committed <= model.first
        return model.first
    queue = found.queue
    assert queue.end >= committed, f"{queue.end} of {committed} acknowledged messages"
    assert queue.end <= model.end
    lost = {offset for start, end in queue.holes for offset in range(start, end)}
    wanted = [offset for offset in range(queue.minimum, queue.end) if offset not in lost]
    seen = []
    offset = queue.minimum
    while offset < queue.end:
        answer = run(pull(queue, offset, 7), storage)
        assert answer.status is PullStatus.FOUND, (answer.status, offset)
        for message in answer.messages:
            _check_message(model, message.offset, bytes(message.record))
            assert message.tags_code == message.offset * 7
            seen.append(message.offset)
        offset = answer.next
    assert seen == wanted
    _check_checksums(storage, found)
    return queue.end


def _check_message(model: QueueModel, offset: int, placed: bytes) -> None:
    original = model.record(offset)
    kept = len(original) - (PROPERTY_CRC_BYTES if offset % 3 != 0 else 0)
    assert len(placed) == len(original)
    assert placed[:28] == original[:28]
    assert placed[36:kept] == original[36:kept]
    assert damage_in(placed, sealed=offset % 3 != 0) == ""


def _check_checksums(storage: Storage, found: ManifestQueue) -> None:
    """Of every part, and that each record is at its physical offset."""
    queue = found.queue
    for segment, parts in found.parts:
        for part in parts:
            data = run(queue.records.read(segment.base + part.position, part.size), storage)
            assert crc32(data) == part.crc
            assert physical_offset_of(data) == segment.base + part.position
            units = run(queue.units.read(part.first * 20, part.count * 20), storage)
            assert crc32(units) == part.units_crc
