"""What an executor is given to read: a part of a log's files, or a range of a running broker's log.

Both hold the frames that begin in [begin, end), and select some of them.
"""

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from stratamq.errors import OffsetOutOfRangeError
from stratamq.table.decode import Decoder
from stratamq.table.log_files import Part
from stratamq.table.part_reader import read_part
from stratamq.table.selection import Selection
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.same_file import check_same, witness
from stratamq_pipeline.tier_view import TierPartition, read_tier_partition

log = logging.getLogger(__name__)


class LogPart(InputPartition):
    """A part of the log's files, and what is wanted of it."""

    def __init__(self, part: Part, selection: Selection) -> None:
        super().__init__(None)
        self.part = part
        self.selection = selection
        self.witness = witness(part)
        """What the driver, who makes this, saw of the file."""


class BrokerPart(InputPartition):
    """Log offsets of the broker at `address`, of several there the one of that name: both are
    beginnings of frames, or the log's end."""

    def __init__(
        self, address: str, broker: str, begin: int, end: int, selection: Selection
    ) -> None:
        super().__init__(None)
        self.address = address
        self.broker = broker
        self.begin = begin
        self.end = end
        self.selection = selection


def read_partition(
    partition: InputPartition, options: SourceOptions, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Batches of one partition. Nothing of the wire is imported where files are read."""
    decoder = Decoder(columns, options.decompress)
    if isinstance(partition, LogPart):
        return _read_files(partition, options, decoder)
    if isinstance(partition, TierPartition):
        return read_tier_partition(partition, options, decoder)
    if isinstance(partition, BrokerPart):
        from stratamq_pipeline.broker_view import read_broker_part

        return read_broker_part(partition, decoder, options.fail_on_data_loss)
    return iter(())  # Spark makes one partition where there is none


def _read_files(
    partition: LogPart, options: SourceOptions, decoder: Decoder
) -> Iterator[pa.RecordBatch]:
    part = partition.part
    try:
        check_same(part, partition.witness)
        yield from read_part(
            part,
            decoder,
            partition.selection,
            verify=options.verify,
            on_damage=_pass_over if options.permissive else None,
        )
    except FileNotFoundError as error:
        if options.fail_on_data_loss:
            raise OffsetOutOfRangeError(
                f"{part.path} was deleted while it was read: log offsets {part.begin} to "
                f"{part.end} are lost to this query (failOnDataLoss=false reads on behind them)",
                part.segment_end,
                part.segment_end,
            ) from error
        log.warning("data lost", extra={"begin": part.begin, "end": part.end, "file": part.path})


def _pass_over(path: str, damage: object) -> None:
    """Permissive: the damage is a row of the table `damage`."""
