"""What executors do for an offload: read the log, and commit a queue's messages after the other.

A task has whole queues, each in the log's order, and commits them under the job's epoch. A task
that is run again, or twice at once, finds in the manifest what is there: a swap that is lost is
followed by a look at it. The same messages have the same bytes at the same places.
"""

import itertools
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from stratamq.errors import InvalidRequestError
from stratamq.formats.dispatch import DispatchColumns, dispatch_columns
from stratamq.formats.tier_manifest import Epoch
from stratamq.table.log_files import SegmentPart
from stratamq.table.part_reader import part_frames
from stratamq.table.texts import binaries
from stratamq.tier.containers.place import TierLimits
from stratamq.tier.driver.opening import open_storage
from stratamq.tier.driver.storage import Storage, run
from stratamq.tier.reading.contents import load_writer
from stratamq.tier.writing.backfill import Backfill
from stratamq.tier.writing.claim import FencedError
from stratamq.tier.writing.intake import Intake, IntakeLimits, QueueKey, QueueRun, goes_into_tier
from stratamq.tier.writing.lives import Lives
from stratamq_pipeline.jobs.dispatched import BatchFunction, parts_of

RECORDS = pa.schema(
    [
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("physicalOffset", pa.int64()),
        ("tagsCode", pa.int64()),
        ("storeTimestamp", pa.int64()),
        ("record", pa.binary()),
    ]
)
LIVES = pa.schema(
    [
        ("part", pa.int64()),
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("first", pa.int64()),
        ("place", pa.int64()),
        ("end", pa.int64()),
        ("begins", pa.int64()),
    ]
)
COMMITTED = pa.schema([("topic", pa.string()), ("queueId", pa.int32()), ("added", pa.int64())])
_FOREVER_MS = 1 << 60


@dataclass(frozen=True, slots=True)
class Offload:
    """What all tasks are told. `topics`: those that are wanted; empty: all that go into a tier.
    `floors`, `begins`: as `Intake` has them."""

    target: str
    cluster: str
    broker: str
    epoch: Epoch
    topics: frozenset[str] = frozenset()
    floors: Mapping[QueueKey, int] = field(default_factory=dict)
    begins: Mapping[QueueKey, int] = field(default_factory=dict)

    def wants(self, topic: str) -> bool:
        return goes_into_tier(topic) and (not self.topics or topic in self.topics)

    def intake(self) -> Intake:
        limits = IntakeLimits(wait_ms=_FOREVER_MS)
        return Intake(limits, self.wants, lambda key: self.floors.get(key, 0), self.begins)


def read_lives(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of `jobs.dispatched.log_parts` → the life of each queue in each part."""
    for number, part in parts_of(batches):
        lives = Lives()
        for columns, _ in _frames(part):
            lives.add(columns)
        rows: list[tuple[object, ...]] = [
            (number, *key, life.first, life.place, life.end, life.begins)
            for key, life in lives.found.items()
        ]
        yield _rows(LIVES, rows)


def read_records(work: Offload) -> BatchFunction:
    """Rows of `jobs.dispatched.log_parts` → `RECORDS` of the messages that may go into the tier."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, part in parts_of(batches):
            for columns, raw in _frames(part):
                wanted = np.array([work.wants(topic) for topic in columns.topics], np.bool_)
                rows = np.flatnonzero(columns.in_queue & wanted[columns.topic_index])
                names = pa.array(columns.topics, pa.string())
                starts = columns.physical_offset[rows] - columns.physical_offset[0]
                yield pa.RecordBatch.from_arrays(
                    [
                        names.take(pa.array(columns.topic_index[rows])),
                        pa.array(columns.queue_id[rows].astype(np.int32)),
                        pa.array(columns.queue_offset[rows].astype(np.int64)),
                        pa.array(columns.physical_offset[rows].astype(np.int64)),
                        pa.array(columns.tags_code[rows].astype(np.int64)),
                        pa.array(columns.store_timestamp_ms[rows].astype(np.int64)),
                        binaries(raw, starts, columns.size[rows].astype(np.int64)),
                    ],
                    schema=RECORDS,
                )

    return read


def _frames(part: SegmentPart) -> Iterator[tuple[DispatchColumns, "np.ndarray"]]:
    """Read frames like `tier backfill`: a damaged body goes into the tier, where it is detected."""
    for raw, frames in part_frames(part):
        base = int(frames.physical_offset[0])
        yield dispatch_columns(raw.data, base, frames.size.astype(np.uint32)), raw


def commit_queues(work: Offload) -> BatchFunction:
    """`RECORDS` by topic, queue and place → `COMMITTED`. One queue's waiting batch is in memory."""

    def commit(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with open_storage(work.target) as storage:
            task = _Task(work, storage)
            for batch in batches:
                data = memoryview(batch.column("record").buffers()[2] or b"")
                for found, starts in queue_runs(batch):
                    yield from task.add(found, data, starts)
            yield from task.finish()

    return commit


class _Task:
    def __init__(self, work: Offload, storage: Storage) -> None:
        self._work = work
        self._storage = storage
        self._key: QueueKey | None = None
        self._copy: Backfill | None = None
        self._added = 0

    def add(
        self, found: QueueRun, records: memoryview, starts: "np.ndarray"
    ) -> Iterator[pa.RecordBatch]:
        if found.key != self._key:
            yield from self.finish()
            self._key, self._added = found.key, 0
            self._copy = self._begin()
        copy = self._copy
        assert copy is not None
        if copy.intake.takes(found.key[0]):
            copy.intake.add_run(found, records, starts, 0)
            self._commit(copy, everything=False)

    def finish(self) -> Iterator[pa.RecordBatch]:
        if self._copy is not None and self._key is not None:
            self._commit(self._copy, everything=True)
            yield _rows(COMMITTED, [(*self._key, self._added)])
        self._key = self._copy = None

    def _begin(self) -> Backfill:
        work = self._work
        self._check_claim()
        positions = self._storage.positions
        return Backfill(
            work.cluster, work.broker, work.epoch, positions, TierLimits(), work.intake()
        )

    def _check_claim(self) -> None:
        """InvalidRequestError when this machine has another tier than the driver claimed."""
        work = self._work
        held = run(load_writer(work.cluster, work.broker), self._storage)
        if held is not None and held > work.epoch:
            raise FencedError(
                f"a writer of epoch {list(held)} has claimed the tier in {work.target} since this "
                "job began: let it end, or stop it, and run the job again"
            )
        if held != work.epoch:
            raise InvalidRequestError(
                f"{socket.gethostname()} does not see the tier that the driver claimed in "
                f"{work.target}: the directory has to be mounted under one path on the driver and "
                "all workers"
            )

    def _commit(self, copy: Backfill, *, everything: bool) -> None:
        copied = run(copy.commit_due(everything=everything), self._storage)
        self._added += sum(one.added for one in copied)


def queue_runs(batch: pa.RecordBatch) -> Iterator[tuple[QueueRun, "np.ndarray"]]:
    """Consecutive messages of one queue each, in the order of the rows, and where their records
    begin in the data of the column."""
    topics = batch.column("topic").dictionary_encode()
    names = topics.dictionary.to_pylist()
    topic, queue, offset, place, tags, times = (
        column.to_numpy(zero_copy_only=False)
        for column in (topics.indices, *(batch.column(name) for name in RECORDS.names[1:6]))
    )
    if not len(topic):
        return
    records = batch.column("record")
    raw = np.frombuffer(records.buffers()[1], np.int32)
    bounds = raw[records.offset : records.offset + len(records) + 1].astype(np.int64)
    sizes = np.diff(bounds)
    breaks = (topic[1:] != topic[:-1]) | (queue[1:] != queue[:-1]) | (offset[1:] != offset[:-1] + 1)
    first = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(topic)]
    for low, high in itertools.pairwise(first):
        rows = slice(low, high)
        key = names[topic[low]], int(queue[low])
        found = QueueRun(key, int(offset[low]), place[rows], sizes[rows], tags[rows], times[rows])
        yield found, bounds[low:high]


def _rows(schema: pa.Schema, rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    names = schema.names
    return pa.RecordBatch.from_pylist(
        [dict(zip(names, row, strict=True)) for row in rows], schema=schema
    )
