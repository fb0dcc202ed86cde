"""How faults are shown and kept, those of a store and those of a tier."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from stratamq_pipeline.audit.kinds import FAULTS
from stratamq_pipeline.jobs.dispatched import spark_schema
from stratamq_pipeline.jobs.output_files import not_shared
from stratamq_pipeline.jobs.summary import Summary
from stratamq_pipeline.jobs.target import Target

SHOWN = 20


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
