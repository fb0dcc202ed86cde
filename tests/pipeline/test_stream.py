"""Streams as Spark runs them: limits, checkpoints, what arrives later, what stops progress."""

import json

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from tests.pipeline.written_log import WrittenLog


@pytest.fixture
def log(tmp_path):
    return WrittenLog(tmp_path / "store")


@pytest.fixture
def collected(spark, tmp_path, log):
    """A function: run a query until it has everything; its rows batch by batch, and the query."""

    def run(**options):
        batches = []

        def keep(frame, number):
            found = frame.select("topic", "queueId", "queueOffset", "physicalOffset").collect()
            found.sort(key=lambda row: row.physicalOffset)
            batches.append((number, [tuple(row)[:3] for row in found]))

        given = {"startingOffsets": "earliest"} | options
        query = (
            spark.readStream.format("stratamq")
            .options(**given)
            .load(str(log.root))
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return batches, query

    return run


def test_batches_continue_from_the_checkpoint_and_find_what_is_new(log, collected):
    log.put_many(50)
    first, query = collected(maxOffsetsPerTrigger="20", minPartitions="3")
    assert [len(rows) for _, rows in first] == [20, 20, 10]
    progress = query.lastProgress["sources"][0]
    assert json.loads(progress["endOffset"]) == {
        "log": log.end,
        "queues": {"a": {"0": 13, "1": 12}, "b": {"0": 13, "1": 12}},
    }
    assert json.loads(progress["latestOffset"])["log"] == log.end
    log.put_many(5)
    log.put("late", 9)
    second, _ = collected(maxBytesPerTrigger="100000")
    assert [number for number, _ in second] == [3]
    assert [row for _, rows in first + second for row in rows] == log.stored
    nothing, query = collected()
    assert nothing == []


def test_retention_that_overtook_the_checkpoint_ends_the_query_or_is_passed_over(log, collected):
    log.put_many(20)
    collected()
    log.put_many(200)
    log.delete_oldest()
    log.delete_oldest()
    minimum = log.delete_oldest()
    with pytest.raises((StreamingQueryException, PySparkException)) as caught:
        collected()
    assert "topic a queue 0: offsets 5 to" in str(caught.value)
    batches, _ = collected(failOnDataLoss="false")
    kept = [row for row in log.stored if log.places[row] >= minimum]
    assert [row for _, rows in batches for row in rows] == kept
