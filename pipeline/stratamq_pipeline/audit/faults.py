"""The faults that an audit finds: their kinds, what each means for users of the store or the tier,
and how they are shown and kept."""

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from stratamq_pipeline.jobs.dispatched import spark_schema
from stratamq_pipeline.jobs.output_files import not_shared
from stratamq_pipeline.jobs.summary import Summary
from stratamq_pipeline.jobs.target import Target

SHOWN = 20

FAULTS = pa.schema(
    [
        ("file", pa.string()),
        ("position", pa.int64()),
        ("kind", pa.string()),
        ("consequence", pa.string()),
        ("detail", pa.string()),
    ]
)
"""`file` relative to the store, `position` a byte in it."""

LOG, QUEUE, INDEX = "log", "queue", "index"

CONSEQUENCES = {
    # The log.
    "frame-damaged": "messages in this stretch are lost here: take them from a replica or a backup",
    "log-ends-early": "whole frames lie behind the log's end: the next start of RocketMQ cuts them",
    "queue-gap": "the dispatcher stops here: queue offsets in the log leave some out",
    # Queue files.
    "queue-stray": "RocketMQ refuses a directory with something strange in it",
    "queue-file-size": "the file is not of the store's size: services set it aside",
    "queue-file-missing": "a file between two others is gone: its messages reach no consumer",
    "unit-missing": "consumers never get this message until the queue is rebuilt",
    "unit-place": "consumers get another message here, or an error",
    "unit-tags": "consumers that select by tag miss this message, or get it unasked",
    "unit-without-message": "consumers get an error here: the log has no such message",
    "unit-beyond-log": "stands for bytes behind the log's end; an opening store removes it",
    # Index files.
    "index-stray": "no index file; RocketMQ refuses what it cannot read as one",
    "index-file-size": "the file is not of the store's geometry: nothing in it can be trusted",
    "index-header": "the header contradicts the items: questions about times pass the file by",
    "item-chain": "items before this one in its slot are not found",
    "index-slot": "the newest items of this slot are not found",
    "item-missing": "the message is not found by this key until the index is rebuilt",
    "item-duplicate": "the message is found twice by RocketMQ; services here answer it once",
    "item-without-key": "stands for a key that its message does not have: costs a read, no more",
    "item-without-message": "stands for a place where no message begins: costs a read, no more",
    "item-beyond-log": "stands for bytes behind the log's end; an opening store removes it",
    "item-time": "questions about times that RocketMQ answers by the item go wrong",
    # A tier; `file` is broker, topic and queue id, `position` a queue offset.
    "tier-manifest": "the queue is not found in the tier: restore it from the broker's log",
    "tier-chain": "consumers get nothing at these offsets: the queue's manifest leaves them out",
    "tier-part": "messages here are lost in the tier: restore the queue from the broker's log",
    "tier-other": "consumers get another message from the tier than from the log",
    "tier-missing": "the log has this message, and will be deleted although the tier has not",
    "tier-unknown": "the tier has a message that the log never had: another broker's, or cut off",
    "tier-index-file": "keys in this file are not found: the tier's service makes the index again",
    "tier-key-missing": "messages are not found by their keys: the service makes the index again",
}


def fault(file: str, position: int, kind: str, detail: str = "") -> dict[str, object]:
    """A row of FAULTS."""
    consequence = CONSEQUENCES[kind]
    return {
        "file": file,
        "position": position,
        "kind": kind,
        "consequence": consequence,
        "detail": detail,
    }


def write(spark: SparkSession, target: Target, found: DataFrame, count: int) -> None:
    """All `count` faults, or InvalidRequestError and nothing."""
    target.begin({"faults": count})
    place = target.files.spark_path(target.made)
    found.write.mode("overwrite").parquet(place)
    written = spark.read.schema(spark_schema(FAULTS)).parquet(place).count()
    names = {name for name in target.files.files_below(target.made) if name.endswith(".parquet")}
    # Where there is no fault Spark writes a file without rows.
    if written != count or not names:
        raise not_shared(
            target.files,
            f"{count} faults were found, and {written} are in the {len(names)} files that the "
            "driver sees",
        )
    target.publish()


def summarize(summary: Summary, found: DataFrame) -> None:
    """Kinds and the first faults; `failed` when there is one."""
    kinds = (
        found.groupBy("kind", "consequence").agg(F.count("*").alias("faults")).orderBy("kind")
    ).collect()
    summary.rows_title = "kinds"
    summary.rows = [
        {"kind": row["kind"], "faults": row["faults"], "consequence": row["consequence"]}
        for row in kinds
    ]
    total = sum(row["faults"] for row in kinds)
    summary.facts["faults"] = total
    summary.failed = total > 0
    shown = found.orderBy("file", "position", "kind").limit(SHOWN).collect() if total else []
    summary.notes = [
        f"{row['file']} at {row['position']}: {row['kind']} ({row['detail']})" for row in shown
    ]
    if total > SHOWN:
        summary.notes.append(f"… and {total - SHOWN} more; --out DIR keeps all of them")
