"""The Spark process of `stratamq bench spark`: scans a store, and yields its batches undecoded.

What the floor's data source does is to hand batches over. Every column goes into Spark, which
throws the rows away.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType
from stratamq_pipeline.jobs.session import SparkOptions, spark_session

from stratamq.table.schema import SCHEMA
from stratamq_bench.load import Mismatch
from stratamq_bench.usage import children, kibibytes

CORES = 2


class Handed(DataSource):
    """The floor: batches that lie ready."""

    @classmethod
    def name(cls) -> str:
        return "handed"

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        return HandedReader(Path(self.options["path"]))


class HandedReader(DataSourceReader):
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(str(path)) for path in sorted(self.directory.glob("*.arrow"))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(partition.value) as source:
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


def timed(frame: Callable[[], DataFrame]) -> float:
    """Seconds until Spark has had every row with all its columns."""
    begin = time.perf_counter()
    frame().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin


def worker_peaks_mb() -> list[float]:
    """Peak resident memory of the Python processes below this one."""
    return [
        kibibytes(f"/proc/{pid}/status", "VmHWM") / 1024
        for pid in children(os.getpid())
        if Path(f"/proc/{pid}/comm").read_text().startswith("python")
    ]


def scan(root: str, batches: str, messages: int, log_bytes: int, rounds: int) -> dict[str, object]:
    """Seconds by round, and the peak memory of the Python workers.

    `batches` holds the store's Arrow batches as IPC files, one for each partition. Mismatch when a
    way gives another number of rows than the store holds messages.
    """
    options = SparkOptions(f"local[{CORES}]", {"spark.driver.memory": "2g"})
    with spark_session("bench", options) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        spark.dataSource.register(Handed)

        def scanned(partitions: int) -> DataFrame:
            reader = spark.read.format("stratamq")
            return reader.option("partitionBytes", -(-log_bytes // partitions)).load(root)

        def handed() -> DataFrame:
            return spark.read.format("handed").load(batches)

        ways = {"handed": handed, "two": lambda: scanned(CORES), "one": lambda: scanned(1)}
        for name, way in ways.items():
            if (found := way().count()) != messages:
                raise Mismatch(f"{name}: {found} rows of {messages} messages")
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                seconds[name].append(timed(way))
        seconds["handed"].append(timed(handed))
        return {
            "seconds": seconds,
            "partitions": {name: ways[name]().rdd.getNumPartitions() for name in ("two", "one")},
            "worker_peak_mb": max(worker_peaks_mb()),
        }
