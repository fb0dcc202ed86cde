"""What executors read of a tier and its log, as rows.

kind      `queue`, `chunk`: of a manifest; `count`, `message`, `key`: of a chunk's records;
          `item`: of an index file; `log`: of the log; otherwise a kind of fault
topic, queueId
position  queue offset; of keys and items the place in the queue's tier file
value     of `message` and `log` a digest of the record; of keys and items the hash; of `queue`
          and `chunk` the queue offset behind their last; of `count`, whose position is a number
          of messages, their bytes
detail    of a fault
"""

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from stratamq.errors import CorruptionError, InvalidRequestError, OffsetOutOfRangeError
from stratamq.formats.queue_units import UnitArray
from stratamq.formats.tier_index import uploaded_items
from stratamq.formats.tier_index_manifest import IndexedFile
from stratamq.formats.tier_manifest import ManifestPart
from stratamq.formats.tier_progress import QueueName
from stratamq.formats.tier_records import placeless_digests
from stratamq.table.part_reader import part_frames
from stratamq.table.selection import in_queue, queues_in
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.driver.calls import AbsentError, Block, Read, ask
from stratamq.tier.driver.opening import open_storage
from stratamq.tier.driver.storage import Storage, run
from stratamq.tier.reading.manifests import ManifestQueue, load_manifest, queue_of
from stratamq.tier.reading.queue_list import missing
from stratamq.tier.reading.verify import chain_faults, verify_parts
from stratamq.tier.reading.verify_index import faults_of_form, keys_in
from stratamq.tier.writing.intake import goes_into_tier
from stratamq_pipeline.jobs.dispatched import BatchFunction, parts_of

ROWS = pa.schema(
    [
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("position", pa.int64()),
        ("value", pa.int64()),
        ("detail", pa.string()),
    ]
)
CHUNK_BYTES = 64 << 20
Row = tuple[str, str, int, int, int, str]


@dataclass(frozen=True, slots=True)
class TierOfBroker:
    target: str
    cluster: str
    broker: str
    listed: frozenset[QueueName] = frozenset()
    """Queues of which it has had messages."""

    def place(self, topic: str, queue_id: int) -> QueuePlace:
        return QueuePlace(self.cluster, self.broker, topic, queue_id)


def look_at_queues(tier: TierOfBroker) -> BatchFunction:
    """Rows with topic and queueId → `queue` and `chunk` rows, and faults of manifests."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with open_storage(tier.target) as storage:
            for topic, queue_id, _ in _queues(batches):
                yield _batch(_manifest_rows(tier, storage, topic, queue_id))

    return look


def _queues(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, int, tuple[int, int]]]:
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ROWS.names[1:5])
        for topic, queue_id, position, value in zip(*columns, strict=True):
            yield topic, queue_id, (position, value)


def _manifest_rows(
    tier: TierOfBroker, storage: Storage, topic: str, queue_id: int
) -> Iterator[Row]:
    try:
        found = _open(tier, storage, topic, queue_id)
    except CorruptionError as error:
        yield "tier-manifest", topic, queue_id, 0, 0, error.message
        return
    if found is None:
        if (topic, queue_id) in tier.listed:
            yield (
                "tier-manifest",
                topic,
                queue_id,
                0,
                0,
                missing(tier.place(topic, queue_id)).message,
            )
        return
    yield "queue", topic, queue_id, found.queue.minimum, found.queue.end, ""
    lost = sum(hole.end - hole.start for hole in found.manifest.holes)
    yield "lost", topic, queue_id, lost, 0, ""
    for sentence in chain_faults(found):
        yield "tier-chain", topic, queue_id, found.queue.minimum, 0, sentence
    begin = size = 0
    for part in (part for _, parts in found.parts for part in parts):
        if size and size + part.size > CHUNK_BYTES:
            yield "chunk", topic, queue_id, begin, part.first, ""
            size = 0
        begin, size = part.first if not size else begin, size + part.size
        end = part.first + part.count
    if size:
        yield "chunk", topic, queue_id, begin, end, ""


def _open(tier: TierOfBroker, storage: Storage, topic: str, queue_id: int) -> ManifestQueue | None:
    """None: it has no messages. CorruptRecordError; InvalidRequestError where the driver sees a
    manifest and this machine none."""
    place = tier.place(topic, queue_id)
    manifest = run(load_manifest(place), storage)
    if manifest is None:
        raise InvalidRequestError(
            f"{socket.gethostname()} does not see the tier that the driver sees in {tier.target} "
            f"(there is no {place.manifest}): the directory has to be mounted under one path on "
            "the driver and all workers"
        )
    return run(queue_of(place, manifest), storage) if manifest.records else None


def read_chunks(
    tier: TierOfBroker, indexed: Mapping[tuple[str, int], int], *, digests: bool
) -> BatchFunction:
    """`chunk` rows → what is in them: counts, faults, `key` rows of messages below the queue
    offsets `indexed`, and with `digests` a `message` row each."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with open_storage(tier.target) as storage:
            for topic, queue_id, (begin, end) in _queues(batches):
                found = _open(tier, storage, topic, queue_id)
                if found is None:
                    continue
                seen = _Seen(topic, queue_id, indexed.get((topic, queue_id), 0), digests)
                done = run(verify_parts(found, begin, end, seen.part), storage)
                yield from seen.batches
                yield _batch(
                    [
                        ("count", topic, queue_id, done.messages, done.bytes, ""),
                        *(
                            ("tier-part", topic, queue_id, fault.offset, 0, fault.sentence)
                            for fault in done.faults
                        ),
                    ]
                )

    return read


class _Seen:
    """Batches of keys and digests of a chunk's parts."""

    def __init__(self, topic: str, queue_id: int, indexed: int, digests: bool) -> None:
        self.batches: list[pa.RecordBatch] = []
        self._queue = topic, queue_id
        self._indexed = indexed
        self._digests = digests

    def part(self, start: int, part: ManifestPart, records: Block, units: UnitArray) -> None:
        sizes = units["size"].astype(np.int64)
        if int(sizes.sum()) != len(records) or not len(sizes):
            return  # a fault of the part
        if self._digests:
            digests = placeless_digests(records, sizes.cumsum() - sizes, sizes)
            offsets = np.arange(part.first, part.first + part.count)
            self._add("message", offsets, digests)
        if part.first < self._indexed:
            try:
                items = keys_in(start, part, records, units, self._indexed)
            except CorruptionError:
                return  # a fault of the part
            self._add("key", items["offset"], items["key_hash"])

    def _add(self, kind: str, positions: "np.ndarray", values: "np.ndarray") -> None:
        self.batches.append(_columns(kind, *self._queue, positions, values))


def read_index_files(
    tier: TierOfBroker, files: Mapping[str, IndexedFile], topics: Mapping[int, str]
) -> BatchFunction:
    """Rows with a file's name as `detail` → its items, and its faults."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with open_storage(tier.target) as storage:
            for batch in batches:
                for name in batch.column("detail").to_pylist():
                    yield from _index_file(storage, files[name], topics)

    return read


def _index_file(
    storage: Storage, file: IndexedFile, topics: Mapping[int, str]
) -> Iterator[pa.RecordBatch]:
    try:
        raw = run(ask(Read(file.name, 0, file.size)), storage)
        faults, items = list(faults_of_form(file, raw)), uploaded_items(raw)
    except (AbsentError, CorruptionError, OffsetOutOfRangeError) as error:
        yield _batch([("tier-index-file", file.name, 0, 0, 0, error.message)])
        return
    yield _batch([("tier-index-file", file.name, 0, 0, 0, sentence) for sentence in faults])
    for number in np.unique(items["topic_id"]).tolist():
        of_topic = items[items["topic_id"] == number]
        name = topics.get(number, f"topic number {number}")
        yield _columns("item", name, of_topic["queue_id"], of_topic["offset"], of_topic["key_hash"])


def read_log(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of `jobs.dispatched.log_parts` → a `log` row for each message that goes into a tier."""
    for _, part in parts_of(batches):
        for raw, frames in part_frames(part, verify=True):
            digests = placeless_digests(raw.data, frames.start, frames.size.astype(np.int64))
            queues, number = queues_in(raw, frames)
            wanted = np.array([goes_into_tier(topic) for topic, _ in queues], np.bool_)
            rows = np.flatnonzero(in_queue(frames) & wanted[number])
            names = pa.array([topic for topic, _ in queues], pa.string())
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(["log"] * len(rows), pa.string()),
                    names.take(pa.array(number[rows])),
                    pa.array(frames.queue_id[rows].astype(np.int32)),
                    pa.array(frames.queue_offset[rows].astype(np.int64)),
                    pa.array(digests[rows]),
                    pa.array([""] * len(rows), pa.string()),
                ],
                schema=ROWS,
            )


def _columns(
    kind: str, topic: str, queue_id: "int | np.ndarray", positions: "np.ndarray", values: object
) -> pa.RecordBatch:
    count = len(positions)
    ids = np.broadcast_to(np.asarray(queue_id, np.int32), count)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([kind] * count, pa.string()),
            pa.array([topic] * count, pa.string()),
            pa.array(np.ascontiguousarray(ids)),
            pa.array(np.asarray(positions).astype(np.int64)),
            pa.array(np.asarray(values).astype(np.int64)),
            pa.array([""] * count, pa.string()),
        ],
        schema=ROWS,
    )


def _batch(rows: "Iterator[Row] | list[Row]") -> pa.RecordBatch:
    names = ROWS.names
    return pa.RecordBatch.from_pylist(
        [dict(zip(names, row, strict=True)) for row in rows], schema=ROWS
    )
