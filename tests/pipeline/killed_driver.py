"""A driver to be killed: one log, followed into a topic and into Parquet files, with checkpoints.

    python -m tests.pipeline.killed_driver ADDRESS STORE DIRECTORY follow|drain

`follow` continues until it is killed, `drain` ends when everything that is there is written, and
lists the bodies that Spark then finds in the files.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.pipeline.conftest import spark_builder

MESSAGES_PER_BATCH = 150
LISTED = "listed.json"


def main(address: str, store: str, directory: Path, mode: str) -> None:
    # A task that fails is tried again, as on a cluster; local masters otherwise give up at once.
    spark = spark_builder(directory / "spark", "local[2,4]").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    trigger = {"availableNow": True} if mode == "drain" else {"processingTime": "0 seconds"}
    to_topic = (
        source(spark, address)
        .select("body")
        .writeStream.format("stratamq")
        .option("topic", "out")
        .option("checkpointLocation", str(directory / "topic-checkpoint"))
        .trigger(**trigger)
        .start(store)
    )
    to_files = (
        source(spark, store)
        .select("physicalOffset", f.col("body").cast("string").alias("body"))
        .writeStream.format("parquet")
        .option("path", str(directory / "files"))
        .option("checkpointLocation", str(directory / "files-checkpoint"))
        .trigger(**trigger)
        .start()
    )
    for query in (to_topic, to_files):
        query.awaitTermination()
    found = spark.read.parquet(str(directory / "files")).collect()
    (directory / LISTED).write_text(json.dumps([row["body"] for row in found]))
    spark.stop()


def source(spark: SparkSession, path: str) -> DataFrame:
    return (
        spark.readStream.format("stratamq")
        .option("subscribe", "in")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", MESSAGES_PER_BATCH)
        .option("minPartitions", 2)
        .load(path)
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
