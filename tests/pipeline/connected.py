"""Reads and writes a log through Spark Connect, and prints what came back as a line of JSON.

    python -m tests.pipeline.connected STORE ADDRESS DIRECTORY

The rows go into the topic `out` of the broker at the address.

The server is one that PySpark starts on this machine, with the Python and the packages of here.
"""

import json
import os
import sys
import warnings
from pathlib import Path

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


def main(store: str, address: str, directory: Path) -> None:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    warnings.simplefilter("ignore")
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    reader = spark.read.format("stratamq").option("columns", "topic,queueId,queueOffset")
    found = {"session": type(spark).__module__}
    found["rows"] = sorted(map(list, reader.load(store).collect()))
    try:
        spark.read.format("stratamq").option("colums", "body").load(store).count()
    except PySparkException as error:
        found["refused"] = str(error)
    rows = reader.load(store).selectExpr("CAST(queueOffset AS string) AS body")
    rows.write.format("stratamq").mode("append").option("topic", "out").save(address)
    query = (
        spark.readStream.format("stratamq")
        .option("startingOffsets", "earliest")
        .load(store)
        .writeStream.format("parquet")
        .option("path", str(directory / "files"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found["streamed"] = spark.read.parquet(str(directory / "files")).count()
    (source,) = query.lastProgress["sources"]
    found["end"], found["metrics"] = json.loads(source["endOffset"]), source["metrics"]
    print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
