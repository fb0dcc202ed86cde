"""Small files of a topic's day become larger ones, so that frequent commits leave few files.

Files have sizes of up to 16 KiB, 128 KiB, 1 MiB, 8 MiB and more. Once a day of a topic has
`FILES_OF_A_SIZE` of one size, they are rewritten as one. So each row is rewritten some four times,
and there are at most `FILES_OF_A_SIZE` - 1 files of each size below `MERGED_BYTES`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from stratamq_pipeline.iceberg.committing import commit_rewrite
from stratamq_pipeline.iceberg.writing import DataFileWriter, FileLimits, PartitionName

FILES_OF_A_SIZE = 8
MERGED_BYTES = 16 << 20
"""Larger files are left: one such file is in memory while it is rewritten."""
FILES_OF_ONE_MERGE = 64
"""Files of one topic's day in one rewrite."""
_SMALLEST_BITS = 14
_BITS = 3
_DAYS = 2
"""So many days are looked at: store times do not go back."""
_EPOCH = date(1970, 1, 1)
_LAST_DAY = (date.max - _EPOCH).days
"""Later days, which a log can have, are left as they are: Python has no date for them."""

OneSize = tuple[PartitionName, int]


class SmallFiles:
    """How many small files of which size there are, and what is rewritten for it."""

    def __init__(self, table: Table, limits: FileLimits) -> None:
        self._table = table
        self._limits = limits
        self._counts: Counter[OneSize] = Counter()

    def look(self, today: date) -> None:
        """Count what other runs have left."""
        first = (today - _EPOCH).days - _DAYS + 1
        for tasks in _small_files(self._table, first, first + _DAYS).values():
            self.note(task.file for task in tasks)

    def note(self, files: Iterable[DataFile]) -> None:
        """Count files that were committed; forget days that are over."""
        sizes = (_size_of(file) for file in files if _is_small(file))
        self._counts.update(key for key in sizes if key[0][1] < _LAST_DAY)
        newest = max((day for (_, day), _ in self._counts), default=0)
        for key in [key for key in self._counts if key[0][1] <= newest - _DAYS]:
            del self._counts[key]

    def merge(self) -> int:
        """Rewrite what there is enough of, in one commit. How many files there are less; 0 also
        when another commit was faster: the next call does it then."""
        due = {key for key, count in self._counts.items() if count >= FILES_OF_A_SIZE}
        if not due:
            return 0
        table = self._table.refresh()
        days = [day for (_, day), _ in due]
        found = _small_files(table, min(days), max(days) + 1)
        writer, old = DataFileWriter(table, self._limits), []
        for key in due:
            tasks = found.get(key, [])[:FILES_OF_ONE_MERGE]
            if len(tasks) >= FILES_OF_A_SIZE:
                for task in tasks:
                    _copy(table, task, writer)
                old += [task.file for task in tasks]
        new = writer.finish()
        if old and not commit_rewrite(table, old, new):
            return 0
        for key in due:
            self._counts[key] = len(found.get(key, []))
        self._counts.subtract(_size_of(file) for file in old)
        self.note(new)
        return len(old) - len(new)


def size_class(size: int) -> int:
    """0 up to 16 KiB, and one more for each factor of eight."""
    return max(0, (size - 1).bit_length() - _SMALLEST_BITS + _BITS - 1) // _BITS


def _size_of(file: DataFile) -> OneSize:
    day = file.partition[1]
    days = day if isinstance(day, int) else (day - _EPOCH).days
    return (file.partition[0], days), size_class(file.file_size_in_bytes)


def _is_small(file: DataFile) -> bool:
    return file.file_size_in_bytes < MERGED_BYTES


def _small_files(table: Table, first_day: int, end_day: int) -> dict[OneSize, list[FileScanTask]]:
    """Without files of which another program has deleted rows, or that it has divided otherwise."""
    begin, end = _midnight(first_day), _midnight(end_day)
    within = f"storeTimestamp >= '{begin}' and storeTimestamp < '{end}'"
    found: dict[OneSize, list[FileScanTask]] = defaultdict(list)
    for task in table.scan(row_filter=within).plan_files():
        ours = task.file.spec_id == table.spec().spec_id and not task.delete_files
        if ours and _is_small(task.file):
            found[_size_of(task.file)].append(task)
    return found


def _midnight(day: int) -> str:
    moment = _EPOCH + timedelta(days=day)
    return datetime(moment.year, moment.month, moment.day, tzinfo=UTC).isoformat()


def _copy(table: Table, task: FileScanTask, writer: DataFileWriter) -> None:
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    batches: Iterator[pa.RecordBatch] = scan.to_record_batches([task])
    for batch in batches:
        writer.write(batch)
