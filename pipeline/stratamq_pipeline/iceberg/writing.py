"""Record batches become data files: one open file for each topic and day, at bounded memory.

Batches are collected up to `buffered_bytes`, divided by partition, and appended as row groups. A
file is closed when it is large enough, or when too many are open; it becomes visible when a
snapshot names it. Files that no snapshot names are left by a run that was killed: see
docs/iceberg.md.
"""

import itertools
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.fileformat import FileFormatFactory
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table import Table

PartitionName = tuple[str, int]
"""Topic, and days since 1970 of the store time."""


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Arrow's bytes, which are two to ten times those of the files."""

    buffered_bytes: int = 64 << 20
    """So much is collected before it is written."""
    file_bytes: int = 512 << 20
    """A file that has so much is closed."""
    open_files: int = 256
    """Each open file holds one buffer of the storage: 5 MiB in S3, far less in a directory."""


class DataFileWriter:
    """Write the rows of one commit. Everything given is in `finish`'s files, in its order."""

    def __init__(self, table: Table, limits: FileLimits) -> None:
        self._table = table
        self._limits = limits
        self._schema = schema_to_pyarrow(table.schema())
        self._batches: list[pa.RecordBatch] = []
        self._buffered = 0
        self._open: dict[PartitionName, _OpenFile] = {}
        self._done: list[DataFile] = []
        self._names = (f"{uuid.uuid4()}-{number:05}.parquet" for number in itertools.count())
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._buffered += batch.nbytes
        self.rows += batch.num_rows
        if self._buffered >= self._limits.buffered_bytes:
            self._flush()

    def finish(self) -> list[DataFile]:
        """Close all files; nothing can be written afterwards."""
        self._flush()
        for name in list(self._open):
            self._close(name)
        return self._done

    def _flush(self) -> None:
        if not self._batches:
            return
        collected = pa.Table.from_batches(self._batches)
        self._batches, self._buffered = [], 0
        for name, rows in _by_partition(collected):
            self._append(name, fitted(rows, self._schema))

    def _append(self, name: PartitionName, rows: pa.Table) -> None:
        file = self._open.pop(name, None)
        if file is None:
            if len(self._open) >= self._limits.open_files:
                self._close(next(iter(self._open)))  # the one that was not written to the longest
            file = _OpenFile(self._table, name, next(self._names))
        self._open[name] = file
        file.append(rows)
        if file.size >= self._limits.file_bytes:
            self._close(name)

    def _close(self, name: PartitionName) -> None:
        self._done.append(self._open.pop(name).close())


class _OpenFile:
    def __init__(self, table: Table, name: PartitionName, file_name: str) -> None:
        self._table = table
        spec, schema = table.spec(), table.schema()
        values = [
            PartitionFieldValue(field, value)
            for field, value in zip(spec.fields, name, strict=True)
        ]
        self._key = PartitionKey(values, spec, schema)
        # By day alone: a topic can be longer than a file name.
        day = np.datetime64(name[1], "D")
        self._path = table.location_provider().new_data_location(f"{day}/{file_name}")
        self._output = table.io.new_output(self._path)
        model = FileFormatFactory.get(FileFormat.PARQUET)
        self._writer = model.create_writer(self._output, schema, table.properties)
        self.size = 0

    def append(self, rows: pa.Table) -> None:
        self._writer.write(rows)
        self.size += rows.nbytes

    def close(self) -> DataFile:
        statistics: dict[str, Any] = self._writer.close().to_serialized_dict()
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self._path,
            file_format=FileFormat.PARQUET,
            partition=self._key.partition,
            file_size_in_bytes=len(self._output),
            sort_order_id=None,
            spec_id=self._table.spec().spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics,
        )


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with the columns and types of the table; null in columns that others have added."""
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.schema.names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _by_partition(rows: pa.Table) -> Iterator[tuple[PartitionName, pa.Table]]:
    """The rows of each partition in their order."""
    days = rows.column("storeTimestamp").cast(pa.date32()).cast(pa.int32())
    keys = pa.table({"topic": rows.column("topic"), "day": days})
    order = pc.sort_indices(keys, [("topic", "ascending"), ("day", "ascending")])
    rows, keys = rows.take(order), keys.take(order)
    # Arrow's groups come in no certain order: the places are looked for where a key changes.
    changes = pc.or_(*(pc.not_equal(keys[name][1:], keys[name][:-1]) for name in ("topic", "day")))
    begins = [0, *(np.flatnonzero(changes.to_numpy()) + 1).tolist()]
    for begin, end in zip(begins, [*begins[1:], len(keys)], strict=True):
        yield (keys["topic"][begin].as_py(), keys["day"][begin].as_py()), rows[begin:end]
