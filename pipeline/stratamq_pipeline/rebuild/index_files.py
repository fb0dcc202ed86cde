"""Index files from the items of all parts: cut by number of items, each built by itself.

The items of the log have an order, the log's. A file holds the next `items` − 1 of them whatever
they are, so the number of items in each part of the log determines which parts a file is made of.
Of the file before it a file needs one time only, that of its last item: the first item's seconds
are counted from there (spec 7.3). Names follow from the files' first messages, in order, at the
end.
"""

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from stratamq.formats.file_names import next_index_name
from stratamq.formats.index_columns import IndexKeys, IndexState, encode_slots
from stratamq.formats.index_layout import (
    IndexHeader,
    encode_index_header,
    index_file_bytes,
    item_position,
    slot_position,
)
from stratamq.formats.numbers import Offset
from stratamq_pipeline.jobs.dispatched import BatchFunction, one_each, spark_schema

FILES = pa.schema([("number", pa.int64()), ("beginTimestamp", pa.int64()), ("items", pa.int64())])
_PLANS = pa.schema([("number", pa.int64()), ("parts", pa.list_(pa.int64())), ("skip", pa.int64())])
KeysOf = Callable[[int], Iterator[IndexKeys]]
"""The items of a part, in the log's order and in pieces."""
_BATCH_ROWS = 1 << 16
_COLUMNS = ["physicalOffset", "storeTimestamp", "keyHashes"]


@dataclass(frozen=True, slots=True)
class IndexGeometry:
    slots: int
    items: int

    @property
    def items_per_file(self) -> int:
        """Item 0 is never used."""
        return self.items - 1


@dataclass(frozen=True, slots=True)
class FilePlan:
    """File `number` has the items behind the first `skip` ones of these parts."""

    number: int
    parts: tuple[int, ...]
    skip: int


def items_by_part(rows: DataFrame) -> dict[int, int]:
    """How many index items each part of the log gives; `rows` as of `dispatched`."""
    from pyspark.sql import functions as F

    counted = rows.groupBy("part").agg(F.sum(F.size("keyHashes")).alias("items")).collect()
    return {row["part"]: row["items"] for row in counted if row["items"]}


def plan_files(items: Mapping[int, int], per_file: int) -> list[FilePlan]:
    """Which parts each file is made of."""
    plans = []
    before = 0
    """Items of all parts in front of the present one."""
    ends: list[tuple[int, int, int]] = []
    for part in sorted(items):
        ends.append((part, before, before + items[part]))
        before += items[part]
    total = before
    low = 0
    for number, first in enumerate(range(0, total, per_file)):
        end = min(first + per_file, total)
        # The item before the first, too: its time is where the file's seconds begin.
        wanted = max(first - 1, 0)
        while ends[low][2] <= wanted:
            low += 1
        parts = []
        for part, start, _ in ends[low:]:
            if start >= end:
                break
            parts.append(part)
        plans.append(FilePlan(number, tuple(parts), first - ends[low][1]))
    return plans


def index_files(
    spark: SparkSession, rows: Path, plans: list[FilePlan], geometry: IndexGeometry, work: Path
) -> DataFrame:
    """Build each file as `work`/<number>; a row for each. `rows`: of `dispatched`, as Parquet by
    part."""
    frame = one_each(spark, [(p.number, list(p.parts), p.skip) for p in plans], _PLANS)
    return frame.mapInArrow(_builder(rows, geometry, work), spark_schema(FILES))


def _builder(rows: Path, geometry: IndexGeometry, work: Path) -> BatchFunction:
    def build(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for plan in batch.to_pylist():
                made = build_file(
                    FilePlan(plan["number"], tuple(plan["parts"]), plan["skip"]),
                    lambda part: part_keys(rows, part),
                    geometry,
                    work,
                )
                yield pa.RecordBatch.from_pylist([made], schema=FILES)

    return build


def part_keys(rows: Path, part: int) -> Iterator[IndexKeys]:
    """The items of one part, in the log's order."""
    for path in sorted((rows / f"part={part}").glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=_COLUMNS):
                yield _keys(batch)


def _keys(batch: pa.RecordBatch) -> IndexKeys:
    lists = batch.column("keyHashes")
    counts = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    offsets = batch.column("physicalOffset").to_numpy()
    assert (np.diff(offsets) > 0).all(), "a part's rows are in the order of the log"
    return IndexKeys(
        lists.flatten().to_numpy(zero_copy_only=False).astype(np.int32),
        np.repeat(offsets, counts),
        np.repeat(batch.column("storeTimestamp").to_numpy(), counts),
    )


def build_file(
    plan: FilePlan, keys_of: KeysOf, geometry: IndexGeometry, work: Path
) -> dict[str, int]:
    """One whole file, synced, under its number."""
    partial = work / uuid.uuid4().hex
    state: IndexState | None = None
    skip = plan.skip
    before_ms: int | None = None
    with partial.open("wb") as file:
        file.truncate(index_file_bytes(geometry.slots, geometry.items))
        for keys in (keys for part in plan.parts for keys in keys_of(part)):
            if skip:
                passed = min(skip, len(keys))
                if passed:
                    before_ms = int(keys.store_timestamp_ms[passed - 1])
                skip -= passed
                keys = keys[passed:]
            if not len(keys):
                continue
            if state is None:
                state = IndexState(geometry.slots, geometry.items, _header_before(before_ms))
            items = state.put(keys)
            if len(items):
                file.seek(item_position(items.first_number, geometry.slots))
                file.write(items.records.tobytes())
            if state.is_full:
                break
        assert state is not None, "a file is planned for items that are there"
        header = state.header()
        file.seek(0)
        file.write(encode_index_header(header))
        file.seek(slot_position(0))
        file.write(encode_slots(state.table))
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, work / str(plan.number))
    return {
        "number": plan.number,
        "beginTimestamp": header.begin_timestamp_ms,
        "items": header.next_item - 1,
    }


def _header_before(end_ms: int | None) -> IndexHeader | None:
    """Return the header of the previous file: a new file copies its end; the offset is overwritten
    at once."""
    if end_ms is None:
        return None
    return IndexHeader(end_ms, end_ms, Offset(0), Offset(0), 0, 0)


def name_files(begins_ms: list[int]) -> list[str]:
    """The names of all files, oldest first, as the index service gives them."""
    names: list[str] = []
    for begin_ms in begins_ms:
        names.append(next_index_name(begin_ms, names[-1] if names else None))
    return names
