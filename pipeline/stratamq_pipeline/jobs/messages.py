"""Messages of a log between two of its offsets, as a DataFrame with the source's columns.

The end of the log moves; a job takes it once and holds every stage of its work to it. Hence not the
data source, which looks for itself, but the same pieces, which the driver has fixed, read alike.
"""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from stratamq.table.decode import Decoder
from stratamq.table.schema import COLUMNS
from stratamq.table.selection import Selection
from stratamq_pipeline.batch import open_view
from stratamq_pipeline.bodies.rows import BodyRows
from stratamq_pipeline.bodies.schema_file import BodySchema
from stratamq_pipeline.jobs.dispatched import PART_BYTES, BatchFunction, one_each
from stratamq_pipeline.jobs.dispatched import spark_schema as to_spark
from stratamq_pipeline.log_view import LogView
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.partition import read_partition

_PIECES = pa.schema([("number", pa.int64()), ("piece", pa.binary())])


@dataclass(frozen=True, slots=True)
class Wanted:
    """Messages that stand in queues and begin at log offsets [begin, end); no topics: all."""

    offsets: tuple[int, int]
    columns: tuple[str, ...] = COLUMNS
    topics: tuple[str, ...] = ()
    decompress: bool = False
    bodies: BodySchema | None = None
    """What makes columns of bodies; all columns are wanted then, and bodies are decompressed."""


def open_log_to_read(where: str, broker: str | None) -> LogView:
    """A store's directory, or the address of a running broker; of several names there, `broker`.

    A job's Spark session comes first: its Java is started by a fork, which gRPC's threads may abort
    once a broker was called.
    """
    return open_view(SourceOptions(where, broker=broker))


def messages(
    spark: SparkSession, log: LogView, wanted: Wanted, part_bytes: int = PART_BYTES
) -> DataFrame:
    """A row each. Damage in the log is a CorruptionError that names file and position."""
    selection = Selection(topics=frozenset(wanted.topics) or None, physical=wanted.offsets)
    pieces = log.pieces(*wanted.offsets, part_bytes, selection)
    rows = [(number, pickle.dumps(piece)) for number, piece in enumerate(pieces)]
    options = SourceOptions("", decompress=wanted.decompress or wanted.bodies is not None)
    if wanted.bodies is None:
        schema = Decoder(wanted.columns, wanted.decompress).schema
    else:
        schema = BodyRows(wanted.bodies).schema
    read = _reader(options, wanted.columns, wanted.bodies)
    return one_each(spark, rows, _PIECES).mapInArrow(read, to_spark(schema))


def _reader(
    options: SourceOptions, columns: tuple[str, ...], bodies: BodySchema | None
) -> BatchFunction:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        made = BodyRows(bodies).rows if bodies is not None else None
        for batch in batches:
            for piece in batch.column("piece").to_pylist():
                found = read_partition(pickle.loads(piece), options, columns)
                yield from found if made is None else map(made, found)

    return read
