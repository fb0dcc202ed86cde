"""Index items and keys against each other, and each index file against itself."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from stratamq.formats.index_columns import INDEX_ITEM_DTYPE, IndexState
from stratamq.formats.index_layout import (
    INDEX_HEADER_BYTES,
    INDEX_ITEM_BYTES,
    INDEX_SLOT_BYTES,
    IndexHeader,
    decode_index_header,
    item_position,
    slot_position,
)
from stratamq.formats.numbers import INT32_MAX
from stratamq_pipeline.audit.faults import FAULTS, fault
from stratamq_pipeline.audit.queues import as_faults
from stratamq_pipeline.audit.store import IndexFile
from stratamq_pipeline.jobs.dispatched import BatchFunction, one_each, spark_schema, tasks_for

ITEMS = pa.schema(
    [
        ("file", pa.string()),
        ("position", pa.int64()),
        ("first", pa.bool_()),
        ("keyHash", pa.int32()),
        ("itemOffset", pa.int64()),
        ("itemSecond", pa.int64()),
        ("beginTimestamp", pa.int64()),
    ]
)
_FILES = pa.schema(
    [
        ("number", pa.int64()),
        ("path", pa.string()),
        ("end", pa.int64()),
        ("settled", pa.bool_()),
    ]
)
_PIECE_ITEMS = 1 << 15


def _files(spark: SparkSession, root: Path, files: list[IndexFile]) -> DataFrame:
    rows = [(number, one.path, one.end_number, one.settled) for number, one in enumerate(files)]
    total = (root / files[0].path).stat().st_size * len(files) if files else 0
    return one_each(spark, rows, _FILES, tasks_for(spark, total))


def index_items(spark: SparkSession, root: Path, files: list[IndexFile], slots: int) -> DataFrame:
    """Every item that counts."""
    read = _each(lambda file: read_items(root, file, slots))
    return _files(spark, root, files).mapInArrow(read, spark_schema(ITEMS))


def index_file_faults(
    spark: SparkSession, root: Path, files: list[IndexFile], slots: int, items: int
) -> DataFrame:
    """Headers, slots and chains that do not follow from the items."""
    read = _each(lambda file: check_file(root, file, slots, items))
    return _files(spark, root, files).mapInArrow(read, spark_schema(FAULTS))


def _each(work: Callable[[IndexFile], Iterator[pa.RecordBatch]]) -> BatchFunction:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from work(IndexFile(row["path"], row["end"], row["settled"]))

    return read


def read_items(root: Path, file: IndexFile, slots: int) -> Iterator[pa.RecordBatch]:
    header, end = _header(root, file)
    for number, records in _pieces(root, file, slots, end):
        count = len(records)
        numbers = number + np.arange(count, dtype=np.int64)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([file.path] * count, pa.string()),
                pa.array(item_position(0, slots) + numbers * INDEX_ITEM_BYTES),
                pa.array(numbers == 1),
                pa.array(records["key_hash"].astype(np.int32)),
                pa.array(records["physical_offset"].astype(np.int64)),
                pa.array(records["seconds"].astype(np.int64)),
                pa.array(np.full(count, header.begin_timestamp_ms, np.int64)),
            ],
            schema=ITEMS,
        )


def check_file(root: Path, file: IndexFile, slots: int, items: int) -> Iterator[pa.RecordBatch]:
    header, end = _header(root, file)
    if end > items:
        yield _rows([fault(file.path, 36, "index-header", f"{end} items; {items} fit")])
        end = items
    state = IndexState(slots, items)
    last = first = -1
    for number, records in _pieces(root, file, slots, end):
        hashes = records["key_hash"].astype(np.int32) & INT32_MAX
        expected = state.replay(hashes)
        wrong = np.flatnonzero(records["previous"] != expected)
        yield _rows(
            [
                fault(
                    file.path,
                    item_position(number + row, slots),
                    "item-chain",
                    f"follows {records['previous'][row]}, not {expected[row]}",
                )
                for row in wrong.tolist()
            ]
        )
        first = int(records["physical_offset"][0]) if number == 1 else first
        last = int(records["physical_offset"][-1])
    if file.settled:
        yield _rows(list(_header_faults(file, header, state, first, last)))
        yield _rows(list(_slot_faults(root, file, slots, state)))


def _header_faults(
    file: IndexFile, header: IndexHeader, state: IndexState, first: int, last: int
) -> Iterator[dict[str, object]]:
    if state.is_empty:
        return
    # 4.3.0 counted items instead of slots.
    if header.hash_slot_count not in (state.hash_slot_count, state.next_item - 1):
        detail = f"{header.hash_slot_count} slots in use, not {state.hash_slot_count}"
        yield fault(file.path, 32, "index-header", detail)
    if header.begin_phy_offset != first:
        yield fault(file.path, 16, "index-header", f"begins at {first}")
    if header.end_phy_offset != last:
        yield fault(file.path, 24, "index-header", f"ends at {last}")
    if header.begin_timestamp_ms > header.end_timestamp_ms:
        yield fault(file.path, 0, "index-header", "its end is before its beginning")


def _slot_faults(
    root: Path, file: IndexFile, slots: int, state: IndexState
) -> Iterator[dict[str, object]]:
    with (root / file.path).open("rb") as source:
        source.seek(slot_position(0))
        table = np.frombuffer(source.read(INDEX_SLOT_BYTES * slots), ">i4")
    for slot in np.flatnonzero(table != state.table[: len(table)]).tolist():
        detail = f"slot {slot} has item {table[slot]}, not {state.table[slot]}"
        yield fault(file.path, slot_position(slot), "index-slot", detail)


def _header(root: Path, file: IndexFile) -> tuple[IndexHeader, int]:
    with (root / file.path).open("rb") as source:
        header = decode_index_header(source.read(INDEX_HEADER_BYTES))
    assert header is not None, "the file has its size"
    return header, file.end_number if file.end_number is not None else header.next_item


def _pieces(root: Path, file: IndexFile, slots: int, end: int) -> Iterator[tuple[int, np.ndarray]]:
    with (root / file.path).open("rb") as source:
        for number in range(1, end, _PIECE_ITEMS):
            source.seek(item_position(number, slots))
            data = source.read(INDEX_ITEM_BYTES * min(_PIECE_ITEMS, end - number))
            records = np.frombuffer(data, INDEX_ITEM_DTYPE, len(data) // INDEX_ITEM_BYTES)
            if not len(records):
                return
            yield number, records


def _rows(rows: list[dict[str, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=FAULTS)


def item_faults(
    rows: DataFrame,
    items: DataFrame,
    damaged: DataFrame,
    *,
    minimum: int,
    end: int,
    indexed_to: int,
) -> DataFrame:
    """Items of `index_items` against `dispatched` rows with tag hashes.

    Keys that are not indexed yet are not missed; what stands for messages that retention or damage
    has taken is not looked at. An item for TAGS, which RocketMQ 5.4 and later adds, is right.
    """
    keys = (
        rows.where(F.col("physicalOffset") < indexed_to)
        .select("physicalOffset", F.explode("keyHashes").alias("keyHash"))
        .groupBy("physicalOffset", "keyHash")
        .agg(F.count("*").alias("expected"))
    )
    found = (
        items.where(F.col("itemOffset") >= minimum)
        .groupBy(F.col("itemOffset").alias("physicalOffset"), "keyHash")
        .agg(
            F.count("*").alias("found"),
            F.max_by("file", F.struct("file", "position")).alias("file"),
            F.max_by("position", F.struct("file", "position")).alias("position"),
        )
    )
    messages = rows.select("physicalOffset", "tagHash").withColumn("there", F.lit(True))
    both = found.join(keys, ["physicalOffset", "keyHash"], "full_outer").join(
        messages, "physicalOffset", "left"
    )
    expected = F.coalesce("expected", F.lit(0))
    count = F.coalesce("found", F.lit(0))
    of_tags = F.coalesce(F.col("keyHash") == F.col("tagHash"), F.lit(False)).cast("int")
    kind = (
        F.when(count < expected, "item-missing")
        .when(count <= expected + of_tags, F.lit(None))
        .when(F.col("physicalOffset") >= end, "item-beyond-log")
        .when(F.col("there").isNull(), "item-without-message")
        .when(expected + of_tags > 0, "item-duplicate")
        .otherwise("item-without-key")
    )
    wrong = both.withColumn("kind", kind).where("kind IS NOT NULL")
    touched = (F.col("startOffset") <= F.col("physicalOffset")) & (
        F.col("physicalOffset") < F.col("endOffset")
    )
    wrong = wrong.join(
        F.broadcast(damaged), touched & (F.col("kind") == "item-without-message"), "left_anti"
    )
    detail = F.format_string(
        "key hash %d of the message at %d: %d items, %d expected",
        "keyHash",
        "physicalOffset",
        count,
        expected,
    )
    return as_faults(
        wrong,
        F.coalesce(F.col("file"), F.lit("index")),
        F.coalesce(F.col("position"), F.lit(0)),
        F.col("kind"),
        detail,
    ).unionByName(_time_faults(rows, items))


def _time_faults(rows: DataFrame, items: DataFrame) -> DataFrame:
    """A file's first item is counted from the end of the file before it (spec 7.3): left out."""
    seconds = F.greatest(
        F.lit(0), F.floor((F.col("storeTimestamp") - F.col("beginTimestamp")) / 1000)
    )
    wrong = (
        items.where("NOT first")
        .join(
            rows.select(F.col("physicalOffset").alias("itemOffset"), "storeTimestamp"),
            "itemOffset",
        )
        .withColumn("expectedSecond", seconds)
        .where("itemSecond != expectedSecond")
    )
    detail = F.format_string("second %d, not %d", "itemSecond", "expectedSecond")
    return as_faults(wrong, F.col("file"), F.col("position"), F.lit("item-time"), detail)
