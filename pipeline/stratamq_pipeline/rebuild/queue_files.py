"""The files of consume queues, written from rows in order: what the dispatcher would have written.

A task gets whole queues, each in the log's order. A queue is written below a name of the task's
own and renamed when it is complete, so that a task that Spark runs again, or twice at a time,
changes nothing that is there.
"""

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from stratamq.formats.queue_growth import NO_MESSAGE, Growth, grow
from stratamq.formats.queue_paths import QueueGeometry, can_be_directory, queue_directory
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.queue_units import UnitRun, pre_blank_fill, unit_runs
from stratamq_pipeline.jobs.dispatched import BatchFunction, queue_columns, queued, spark_schema
from stratamq_pipeline.jobs.output_files import sync

QUEUES = pa.schema(
    [
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("messages", pa.int64()),
        ("files", pa.int32()),
        ("units", pa.int64()),
        ("wentBack", pa.int32()),
    ]
)
WORK = "queues-in-work"
_Queue = tuple[str, int]


def queue_files(rows: DataFrame, made: Path, work: Path, geometry: QueueGeometry) -> DataFrame:
    """Write the queues of `dispatched` rows below `made`; a row for each queue.

    One shuffle, by topic and queue. Topics that cannot be a directory have no queue, as with the
    dispatcher. CorruptionError where a queue's offsets leave a gap. `messages` counts rows, among
    them those whose place a later one took.
    """
    ordered = queued(rows).drop("part", "keyHashes")
    ordered = ordered.repartition("topic", "queueId").sortWithinPartitions(
        "topic", "queueId", "physicalOffset"
    )
    return ordered.mapInArrow(_writer(made, work, geometry), spark_schema(QUEUES))


def _writer(made: Path, work: Path, geometry: QueueGeometry) -> BatchFunction:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        runs = (run for batch in batches for run in unit_runs(queue_columns(batch)))
        rows = list(write_queues(runs, made, work, geometry))
        yield pa.RecordBatch.from_pylist(rows, schema=QUEUES)

    return write


def write_queues(
    runs: Iterator[UnitRun], made: Path, work: Path, geometry: QueueGeometry
) -> Iterator[dict[str, object]]:
    """The runs of one queue come together and in log order. All is durable but `made`'s names."""
    own = work / uuid.uuid4().hex
    current: _Queue | None = None
    writer: QueueFilesWriter | None = None
    try:
        for run in runs:
            if (run.topic, run.queue_id) != current:
                if current is not None and writer is not None:
                    yield _publish(current, writer, made)
                current, writer = (run.topic, run.queue_id), None
                if can_be_directory(run.topic):
                    writer = QueueFilesWriter(own / str(run.queue_id), geometry)
            if writer is not None:
                writer.append(run)
        if current is not None and writer is not None:
            yield _publish(current, writer, made)
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _publish(queue: _Queue, writer: "QueueFilesWriter", made: Path) -> dict[str, object]:
    writer.close()
    place = made / queue_directory(*queue)
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.is_dir():
        try:
            os.rename(writer.directory, place)
        except OSError:
            if not place.is_dir():  # else another attempt at this task was first, with equal bytes
                raise
    shutil.rmtree(writer.directory, ignore_errors=True)
    return {
        "topic": queue[0],
        "queueId": queue[1],
        "messages": writer.messages,
        "files": writer.files,
        "units": writer.end - writer.first_index,
        "wentBack": writer.went_back,
    }


class QueueFilesWriter:
    """One queue. Files have their full size, and are sparse behind the last unit."""

    def __init__(self, directory: Path, geometry: QueueGeometry) -> None:
        self.directory = directory
        self.first_index = self.end = 0
        self.messages = 0
        self.went_back = 0
        """How often the log gave queue offsets again."""
        self._end_offset = NO_MESSAGE
        self._geometry = geometry
        self._file: tuple[int, int] | None = None
        """First unit and descriptor of the file that is open."""
        directory.mkdir(parents=True)

    @property
    def files(self) -> int:
        units = self._geometry.units_per_file
        first = self._geometry.file_of(self.first_index)
        return -(-(self.end - first) // units) if self.end > first else 0

    def append(self, run: UnitRun, minimum_offset: int = 0) -> None:
        self.messages += run.count
        step = grow(run, self.end, self._end_offset, minimum_offset)
        if step.growth is Growth.NOTHING:
            return
        if step.growth is Growth.WENT_BACK:
            self.went_back += 1
            if step.first > self.first_index:
                self._cut(step.first)
            else:
                self._begin(step.first)
        elif step.growth is Growth.BEGINS:
            self._begin(step.first)
        self._put(step.first, step.units)
        self.end = run.first_queue_offset + run.count
        self._end_offset = run.end_offset

    def close(self) -> None:
        """Files and their directory are synced."""
        self._close_file()
        sync(self.directory)

    def _begin(self, first: int) -> None:
        self._remove_from(self._geometry.file_of(self.first_index))
        self.first_index = self.end = first
        index = self._geometry.file_of(first)
        for piece in pre_blank_fill(first - index):
            self._put(index, memoryview(piece))
            index += len(piece) // QUEUE_UNIT_BYTES

    def _cut(self, end: int) -> None:
        """Take away the units from `end` on; there is one before it."""
        units = self._geometry.units_per_file
        self._remove_from(self._geometry.file_of(end - 1) + units)
        if end % units:
            descriptor = self._open(end)
            os.ftruncate(descriptor, self._geometry.position(end))
            os.ftruncate(descriptor, self._geometry.file_bytes)
        self.end = end

    def _remove_from(self, first: int) -> None:
        """Remove the files from the one that begins with unit `first` on."""
        self._close_file()
        for index in range(first, self.end, self._geometry.units_per_file):
            self._path(index).unlink(missing_ok=True)

    def _put(self, index: int, units: memoryview) -> None:
        while units:
            room = self._geometry.file_bytes - self._geometry.position(index)
            piece = units[:room]
            at = self._geometry.position(index)
            while piece:
                written = os.pwrite(self._open(index), piece, at)
                piece, at = piece[written:], at + written
            index += min(room, len(units)) // QUEUE_UNIT_BYTES
            units = units[room:]

    def _open(self, index: int) -> int:
        first = self._geometry.file_of(index)
        if self._file is not None and self._file[0] == first:
            return self._file[1]
        self._close_file()
        descriptor = os.open(self._path(index), os.O_RDWR | os.O_CREAT, 0o644)
        self._file = (first, descriptor)
        os.ftruncate(descriptor, self._geometry.file_bytes)
        return descriptor

    def _close_file(self) -> None:
        if self._file is not None:
            descriptor, self._file = self._file[1], None
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _path(self, index: int) -> Path:
        return self.directory / Path(self._geometry.path("", index)).name
