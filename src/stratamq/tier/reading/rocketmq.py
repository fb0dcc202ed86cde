"""A tier that RocketMQ wrote: opened from its metadata file, its local index files and the storage.

Nothing is changed. The last segment of a queue's chain has the size of its file, which may be ahead
of the metadata; every other, and the index, has the recorded one. An index record of size 0 stands
for a file whose upload did not end: the local file of its time is read. Spec tier 7.7, 8.4.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from stratamq.errors import CorruptRecordError
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.tier_index import (
    DEFAULT_SLOTS,
    HEADER_BYTES,
    SLOT_BYTES,
    decode_tier_index_header,
    open_items,
    slot_count,
)
from stratamq.formats.tier_metadata import SegmentRecord, TierMetadata, parse_tier_metadata
from stratamq.formats.tier_names import SegmentType, index_path, queue_path, segment_path
from stratamq.tier.containers.chain import Chain, Extent, TierSegment
from stratamq.tier.containers.queue import TierQueue
from stratamq.tier.driver.calls import Procedure, Read, Size, Together, ask
from stratamq.tier.reading.keys import LocalIndex, TierIndex, UploadedIndex
from stratamq.tier.reading.records import queue_offset_of

_HEAD_BYTES = 28
_INDEX_HEAD_BYTES = HEADER_BYTES + SLOT_BYTES


@dataclass(frozen=True, slots=True)
class OpenedQueue:
    """A queue, and what the metadata has of its segments (`SegmentRecord.size`: as it is used)."""

    topic_id: int
    queue: TierQueue
    segments: Mapping[SegmentType, Sequence[SegmentRecord]]


@dataclass(frozen=True, slots=True)
class OpenedTier:
    queues: tuple[OpenedQueue, ...]
    index_records: tuple[SegmentRecord, ...]
    indexes: tuple[TierIndex, ...]
    """By time of creation."""
    damaged: tuple[str, ...]
    """Index files that cannot be read, and why."""

    def of_topic(self, topic: str) -> dict[int, TierQueue]:
        return {
            opened.queue.queue_id: opened.queue
            for opened in self.queues
            if opened.queue.topic == topic
        }

    def topic_ids(self) -> dict[str, int]:
        return {opened.queue.topic: opened.topic_id for opened in self.queues}


def read_metadata(main: bytes | None, backup: bytes | None) -> TierMetadata:
    """The main file; the backup where that is absent, empty or cut. CorruptRecordError when
    neither can be read, and one of them is there."""
    refused: CorruptRecordError | None = None
    for raw in (main, backup):
        if raw:
            try:
                return parse_tier_metadata(raw)
            except CorruptRecordError as error:
                refused = refused or error
    if refused is not None:
        raise refused
    return TierMetadata()


def open_tier(
    metadata: TierMetadata,
    cluster: str,
    broker: str,
    local_index: Mapping[int, bytes],
    slots: int = DEFAULT_SLOTS,
) -> Procedure[OpenedTier]:
    """`local_index`: content by name of the files in `tiered_index_file/`, of `slots` slots."""
    queues = []
    for record in sorted(metadata.queues, key=lambda queue: (queue.topic, queue.queue_id)):
        topic = metadata.topics.get(record.topic)
        if topic is None:
            continue
        path = queue_path(broker, record.topic, record.queue_id)
        queues.append(
            (yield from _open_queue(metadata, cluster, path, topic.topic_id, record.topic))
        )
    records = tuple(metadata.of(SegmentType.INDEX, index_path(broker)))
    damaged: list[str] = []
    indexes: list[TierIndex] = [*(yield from _uploaded(cluster, records, damaged))]
    indexes += _local(local_index, records, slots, damaged)
    indexes.sort(key=lambda index: index.begin_ms)
    return OpenedTier(tuple(queues), records, tuple(indexes), tuple(damaged))


def _open_queue(
    metadata: TierMetadata, cluster: str, path: str, topic_id: int, topic: str
) -> Procedure[OpenedQueue]:
    used = {}
    for kind in (SegmentType.COMMIT_LOG, SegmentType.CONSUME_QUEUE):
        used[kind] = yield from _with_real_end(cluster, metadata.of(kind, path))
    records = _chain(cluster, used[SegmentType.COMMIT_LOG])
    units = _chain(cluster, used[SegmentType.CONSUME_QUEUE])
    first = -(-units.minimum // QUEUE_UNIT_BYTES)
    if records:
        head = yield from records.read(
            records.minimum, min(_HEAD_BYTES, records.end - records.minimum)
        )
        if len(head) == _HEAD_BYTES:
            first = max(first, queue_offset_of(head))
    holes = tuple(
        (before.end // QUEUE_UNIT_BYTES, behind.base // QUEUE_UNIT_BYTES)
        for before, behind in pairwise(units.segments)
        if before.end < behind.base
    )
    queue = TierQueue(topic, int(path.rpartition("/")[2]), records, units, first, holes)
    return OpenedQueue(topic_id, queue, used)


def _with_real_end(
    cluster: str, records: Sequence[SegmentRecord]
) -> Procedure[tuple[SegmentRecord, ...]]:
    """The last record with the size of its file. A file that is absent has none of its bytes."""
    if not records:
        return ()
    paths = [_path(cluster, record) for record in records]
    sizes = yield from ask(Together([Size(path) for path in paths]))
    used = [
        replace(record, size=min(record.size, size or 0))
        for record, size in zip(records, sizes, strict=True)
    ]
    used[-1] = replace(records[-1], size=sizes[-1] or 0)
    return tuple(used)


def _path(cluster: str, record: SegmentRecord) -> str:
    return segment_path(cluster, record.path, record.type, record.base)


def _chain(cluster: str, records: Sequence[SegmentRecord]) -> Chain:
    return Chain([_segment(cluster, record) for record in records])


def _segment(cluster: str, record: SegmentRecord) -> TierSegment:
    extent = Extent(0, record.size, _path(cluster, record))
    return TierSegment(record.base, record.size, record.begin_ms, record.end_ms, (extent,))


def _uploaded(
    cluster: str, records: Sequence[SegmentRecord], damaged: list[str]
) -> Procedure[list[UploadedIndex]]:
    """Files with items; of one whose head is damaged the reason goes into `damaged`."""
    used = [record for record in records if record.size >= _INDEX_HEAD_BYTES]
    heads = yield from ask(
        Together([Read(_path(cluster, record), 0, _INDEX_HEAD_BYTES) for record in used])
    )
    found = []
    for record, head in zip(used, heads, strict=True):
        try:
            header = decode_tier_index_header(head)
            slots = slot_count(head[HEADER_BYTES:])
        except CorruptRecordError as error:
            damaged.append(f"{_path(cluster, record)}: {error}")
            continue
        if header.items:
            file = Chain([replace(_segment(cluster, record), base=0)])
            found.append(UploadedIndex(record.begin_ms, record.end_ms, slots, header.items, file))
    return found


def _local(
    files: Mapping[int, bytes],
    records: Sequence[SegmentRecord],
    slots: int,
    damaged: list[str],
) -> Iterator[LocalIndex]:
    uploaded = {record.begin_ms for record in records if record.size}
    for begin_ms, content in files.items():
        if begin_ms in uploaded:
            continue
        try:
            header = decode_tier_index_header(content)
        except CorruptRecordError as error:
            damaged.append(f"local index file {begin_ms}: {error}")
            continue
        yield LocalIndex(begin_ms, header.end_ms, open_items(content, slots))
