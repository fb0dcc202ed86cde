"""The Spark process of `stratamq bench spark`: scans a store, and yields its batches undecoded.

    python -m stratamq_bench.spark_client --root DIR --batches DIR --messages N [--rounds 3]

`--batches` holds the store's Arrow batches as IPC files, one for each partition; what the floor's
data source does is to hand them over. Every column goes into Spark, which throws the rows away.
Prints one JSON object: seconds by round, and the peak memory of the Python workers.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType
from stratamq_pipeline.jobs.session import SparkOptions, spark_session

from stratamq.table.schema import SCHEMA
from stratamq_bench.checks import Mismatch

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
    children: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = path.read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid, _, name = head.partition(" (")
        names[int(pid)] = name
        children.setdefault(int(tail.split()[1]), []).append(int(pid))
    peaks, open_pids = [], [os.getpid()]
    while open_pids:
        for pid in children.get(open_pids.pop(), []):
            open_pids.append(pid)
            if names[pid].startswith("python"):
                peaks.append(_peak_mb(pid))
    return peaks


def _peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--root", required=True, help="the store directory")
    parser.add_argument("--batches", required=True, help="the directory of the IPC files")
    parser.add_argument("--messages", type=int, required=True, help="how many it holds")
    parser.add_argument("--log-bytes", type=int, required=True, help="of all of them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="2g", help="the driver's")
    options = parser.parse_args()
    settings = {"spark.driver.memory": options.memory}
    with spark_session("bench", SparkOptions(f"local[{CORES}]", settings)) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        spark.dataSource.register(Handed)
        print(json.dumps(measure(spark, options)))


def measure(spark: SparkSession, options: argparse.Namespace) -> dict[str, object]:
    """Mismatch when a way gives another number of rows than the store holds messages."""

    def scan(partitions: int) -> DataFrame:
        part_bytes = -(-options.log_bytes // partitions)
        reader = spark.read.format("stratamq").option("partitionBytes", part_bytes)
        return reader.load(options.root)

    def handed() -> DataFrame:
        return spark.read.format("handed").load(options.batches)

    ways = {"handed": handed, "two": lambda: scan(CORES), "one": lambda: scan(1)}
    for name, way in ways.items():
        if (found := way().count()) != options.messages:
            raise Mismatch(f"{name}: {found} rows of {options.messages} messages")
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, way in ways.items():
            seconds[name].append(timed(way))
    seconds["handed"].append(timed(handed))
    return {
        "seconds": seconds,
        "partitions": {name: ways[name]().rdd.getNumPartitions() for name in ("two", "one")},
        "worker_peak_mb": max(worker_peaks_mb()),
    }


if __name__ == "__main__":
    main()
