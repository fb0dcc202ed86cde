"""Messages of a log between two of its offsets, as a DataFrame with the source's columns.

The end of the log moves; a job takes it once and holds every stage of its work to it. Hence not the
data source, which looks for itself, but the same decoder over parts that the driver has fixed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from stratamq.table.decode import Decoder
from stratamq.table.log_files import LogFiles
from stratamq.table.part_reader import read_part
from stratamq.table.schema import COLUMNS
from stratamq.table.selection import Selection
from stratamq_pipeline.jobs.dispatched import PART_BYTES, BatchFunction, parts_of, parts_table
from stratamq_pipeline.jobs.dispatched import spark_schema as to_spark


@dataclass(frozen=True, slots=True)
class Wanted:
    """Messages that stand in queues and begin at log offsets [begin, end); no topics: all."""

    offsets: tuple[int, int]
    columns: tuple[str, ...] = COLUMNS
    topics: tuple[str, ...] = ()
    decompress: bool = False


def messages(
    spark: SparkSession, log: LogFiles, wanted: Wanted, part_bytes: int = PART_BYTES
) -> DataFrame:
    """A row each. Damage in the log is a CorruptionError that names file and position."""
    decoder = Decoder(wanted.columns, wanted.decompress)
    selection = Selection(topics=frozenset(wanted.topics) or None, physical=wanted.offsets)
    parts = parts_table(spark, log.parts(*wanted.offsets, part_bytes=part_bytes))
    return parts.mapInArrow(_reader(decoder, selection), to_spark(decoder.schema))


def _reader(decoder: Decoder, selection: Selection) -> BatchFunction:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, part in parts_of(batches):
            yield from read_part(part, decoder, selection, verify=True)

    return read
