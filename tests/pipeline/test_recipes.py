"""The recipes of docs/spark.md: each row once in files, and bodies as columns."""

import json
from pathlib import Path

import pyarrow.parquet
import pytest
from pyspark.sql import functions as f

from tests.pipeline.written_log import WrittenLog


@pytest.fixture
def log(tmp_path):
    return WrittenLog(tmp_path / "store")


def test_spark_s_file_sink_has_each_row_once_whenever_the_driver_ends(spark, tmp_path, log):
    """Ended between the files and the sink's list of them, and between the list and Spark's commit.
    Files without an entry in the list stay in the directory, and Spark does not read them."""
    files, checkpoint = tmp_path / "files", tmp_path / "checkpoint"

    def run():
        query = (
            spark.readStream.format("stratamq")
            .options(startingOffsets="earliest", maxOffsetsPerTrigger="20")
            .option("columns", "topic,queueId,queueOffset")
            .load(str(log.root))
            .writeStream.format("parquet")
            .option("path", str(files))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def forget(folder: Path, batch: int):
        (folder / str(batch)).unlink()
        (folder / f".{batch}.crc").unlink(missing_ok=True)

    log.put_many(50)
    run()
    forget(checkpoint / "commits", 2)
    forget(files / "_spark_metadata", 2)
    run()
    log.put_many(5)
    run()
    forget(checkpoint / "commits", 3)
    run()
    found = spark.read.parquet(str(files)).collect()
    assert sorted(map(tuple, found)) == sorted(log.stored)
    there = sum(pyarrow.parquet.read_metadata(path).num_rows for path in files.glob("*.parquet"))
    assert there == len(log.stored) + 10


def test_bodies_become_columns_and_bad_ones_are_put_aside_with_their_offset(spark, log):
    bodies = [b'{"n": 1, "name": "a"}', b"no json", b'{"n": "one"}', b'{"n": 4}', b"\xff\xfe"]
    for body in bodies:
        log.put("t", 0, body)
    frame = spark.read.format("stratamq").option("columns", "topic,queueId,queueOffset,body")
    text = f.expr("try_validate_utf8(cast(body AS string))")
    parsed = f.from_json(
        f.coalesce(text, f.lit("")),
        "n int, name string, _bad string",
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_bad"},
    )
    rows = frame.load(str(log.root)).withColumn("row", parsed).cache()
    is_good = f.col("row._bad").isNull() & f.col("row").isNotNull()
    good = rows.where(is_good).select("queueOffset", "row.n", "row.name")
    bad = rows.where(~is_good).select("topic", "queueId", "queueOffset", "body")
    assert sorted(map(tuple, good.collect())) == [(0, 1, "a"), (3, 4, None)]
    aside = {row["queueOffset"]: bytes(row["body"]) for row in bad.collect()}
    assert aside == {number: bodies[number] for number in (1, 2, 4)}
    assert json.loads(aside[2]) == {"n": "one"}
