"""Queue units and frames against each other: DataFrames in, a DataFrame of faults out."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from stratamq.formats.numbers import INT32_MIN
from stratamq.formats.queue_paths import QueueGeometry
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.queue_units import decode_units, pre_blank_units
from stratamq.formats.store_paths import CONSUME_QUEUES
from stratamq_pipeline.audit.faults import CONSEQUENCES
from stratamq_pipeline.audit.store import QueueFile
from stratamq_pipeline.jobs.dispatched import (
    BatchFunction,
    one_each,
    queued,
    spark_schema,
    tasks_for,
)

UNITS = pa.schema(
    [
        ("file", pa.string()),
        ("position", pa.int64()),
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("unitOffset", pa.int64()),
        ("unitSize", pa.int32()),
        ("unitTagsCode", pa.int64()),
    ]
)
_FILES = pa.schema(
    [
        ("number", pa.int64()),
        ("path", pa.string()),
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("first", pa.int64()),
    ]
)
_PIECE_BYTES = QUEUE_UNIT_BYTES << 15
_QUEUE = ("topic", "queueId")


def queue_units(
    spark: SparkSession, root: Path, files: list[QueueFile], file_bytes: int
) -> DataFrame:
    """Every unit that stands for something: neither zeros nor the filling before a queue."""
    rows = [
        (number, one.path, one.topic, one.queue_id, one.first_index)
        for number, one in enumerate(files)
    ]
    tasks = tasks_for(spark, len(files) * file_bytes)
    return one_each(spark, rows, _FILES, tasks).mapInArrow(_reader(root), spark_schema(UNITS))


def _reader(root: Path) -> BatchFunction:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                file = QueueFile(row["path"], row["topic"], row["queueId"], row["first"])
                yield from read_units(root, file)

    return read


def read_units(root: Path, file: QueueFile) -> Iterator[pa.RecordBatch]:
    position = 0
    with (root / file.path).open("rb") as source:
        while data := source.read(_PIECE_BYTES):
            units = decode_units(data)
            kept = np.flatnonzero(
                ((units["physical_offset"] != 0) | (units["size"] != 0) | (units["tags_code"] != 0))
                & ~pre_blank_units(units)
            )
            if len(kept):
                yield _batch(file, position, units[kept], kept)
            position += len(data)


def _batch(file: QueueFile, position: int, units: np.ndarray, rows: np.ndarray) -> pa.RecordBatch:
    count = len(rows)
    places = position + rows.astype(np.int64) * QUEUE_UNIT_BYTES
    return pa.RecordBatch.from_arrays(
        [
            pa.array([file.path] * count, pa.string()),
            pa.array(places),
            pa.array([file.topic] * count, pa.string()),
            pa.array(np.full(count, file.queue_id, np.int32)),
            pa.array(file.first_index + places // QUEUE_UNIT_BYTES),
            pa.array(units["physical_offset"].astype(np.int64)),
            pa.array(units["size"].astype(np.int32)),
            pa.array(units["tags_code"].astype(np.int64)),
        ],
        schema=UNITS,
    )


def standing(rows: DataFrame) -> DataFrame:
    """The messages that queues must have: in the log behind one of them no queue offset goes back
    to its own or below, which would have taken its place."""
    later = (
        Window.partitionBy(*_QUEUE)
        .orderBy(F.col("physicalOffset").desc())
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    lowest = F.min("queueOffset").over(later)
    kept = (
        queued(rows)
        .withColumn("lowestLater", lowest)
        .where("lowestLater IS NULL OR lowestLater > queueOffset")
    )
    return kept.drop("lowestLater", "keyHashes")


def gaps(messages: DataFrame, damaged: DataFrame) -> DataFrame:
    """Where queue offsets leave some out with no damage in between: the `standing` messages."""
    ordered = Window.partitionBy(*_QUEUE).orderBy("queueOffset")
    before = (
        messages.withColumn("before", F.lag("queueOffset").over(ordered))
        .withColumn("beforeOffset", F.lag("physicalOffset").over(ordered))
        .where("before IS NOT NULL AND queueOffset > before + 1")
    )
    between = (F.col("startOffset") < F.col("physicalOffset")) & (
        F.col("endOffset") > F.col("beforeOffset")
    )
    detail = F.format_string(
        "queue %s %d goes from %d to %d", "topic", "queueId", "before", "queueOffset"
    )
    unexplained = before.join(F.broadcast(damaged), between, "left_anti")
    return unexplained.select(F.lit("queue-gap").alias("kind"), "physicalOffset", detail.alias("d"))


def unit_faults(
    messages: DataFrame,
    units: DataFrame,
    damaged: DataFrame,
    geometry: QueueGeometry,
    *,
    minimum: int,
    end: int,
    dispatched_to: int,
) -> DataFrame:
    """Units of `queue_units` against `standing` messages. Of a message that is not dispatched yet
    no unit is missed; a unit of what retention has taken, or damage, is not looked at."""
    expected = messages.where(F.col("physicalOffset") < dispatched_to)
    both = units.where(F.col("unitOffset") >= minimum).join(
        expected, [*_QUEUE, "queueOffset"], "full_outer"
    )
    kind = (
        F.when(F.col("unitOffset").isNull(), "unit-missing")
        .when(F.col("physicalOffset").isNull() & (F.col("unitOffset") >= end), "unit-beyond-log")
        .when(F.col("physicalOffset").isNull(), "unit-without-message")
        .when(
            (F.col("unitOffset") != F.col("physicalOffset")) | (F.col("unitSize") != F.col("size")),
            "unit-place",
        )
        .when(
            (F.col("unitTagsCode") != F.col("tagsCode")) & (F.col("unitTagsCode") >= INT32_MIN),
            "unit-tags",
        )
    )
    wrong = both.withColumn("kind", kind).where("kind IS NOT NULL")
    touched = (F.col("startOffset") <= F.col("unitOffset")) & (
        F.col("unitOffset") < F.col("endOffset")
    )
    ours = F.col("kind") == "unit-without-message"
    wrong = wrong.join(F.broadcast(damaged), touched & ours, "left_anti")
    pending = ours & (F.col("unitOffset") >= dispatched_to)
    wrong = wrong.where(~pending)
    units_per_file = geometry.units_per_file
    first = F.col("queueOffset") - F.col("queueOffset") % units_per_file
    name = F.format_string(
        f"{CONSUME_QUEUES}/%s/%d/%020d", "topic", "queueId", first * QUEUE_UNIT_BYTES
    )
    place = F.col("queueOffset") % units_per_file * QUEUE_UNIT_BYTES
    detail = F.format_string(
        "unit %d: log offset %s, %s bytes, code %s; the log has %s, %s bytes, code %s",
        "queueOffset",
        *(
            F.coalesce(F.col(column).cast("string"), F.lit("none"))
            for column in (
                "unitOffset",
                "unitSize",
                "unitTagsCode",
                "physicalOffset",
                "size",
                "tagsCode",
            )
        ),
    )
    return as_faults(
        wrong,
        F.coalesce(F.col("file"), name),
        F.coalesce(F.col("position"), place),
        F.col("kind"),
        detail,
    )


def as_faults(
    frame: DataFrame, file: Column, position: Column, kind: Column, detail: Column
) -> DataFrame:
    """Rows of `kinds.FAULTS`."""
    pairs = [F.lit(word) for pair in CONSEQUENCES.items() for word in pair]
    return frame.select(
        file.alias("file"),
        position.cast("long").alias("position"),
        kind.alias("kind"),
        F.create_map(*pairs)[kind].alias("consequence"),
        detail.alias("detail"),
    )
