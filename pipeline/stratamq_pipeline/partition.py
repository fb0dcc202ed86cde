"""What an executor is given to read: frames that begin in a range of a log, or parts of a tier.

Each kind of partition reads itself, where it is: here a part of a log's files, in `broker_view` a
range of a running broker's log, in `tier_view` parts of a tier. It selects some of the messages.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from stratamq.errors import OffsetOutOfRangeError
from stratamq.table.decode import Decoder
from stratamq.table.log_files import SegmentPart
from stratamq.table.part_reader import read_part
from stratamq.table.selection import Selection
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.same_file import check_same, witness

log = logging.getLogger(__name__)


class Partition(InputPartition, ABC):
    """Pickled to an executor."""

    def __init__(self, selection: Selection) -> None:
        super().__init__(None)
        self.selection = selection

    @abstractmethod
    def read(self, options: SourceOptions, decoder: Decoder) -> Iterator[pa.RecordBatch]: ...


class LogPart(Partition):
    """A part of the log's files, and what is wanted of it."""

    def __init__(self, part: SegmentPart, selection: Selection) -> None:
        super().__init__(selection)
        self.part = part
        self.witness = witness(part)
        """What the driver, who makes this, saw of the file."""

    def read(self, options: SourceOptions, decoder: Decoder) -> Iterator[pa.RecordBatch]:
        part = self.part
        try:
            check_same(part, self.witness)
            yield from read_part(
                part,
                decoder,
                self.selection,
                verify=options.verify,
                on_damage=pass_over if options.permissive else None,
            )
        except FileNotFoundError as error:
            if options.fail_on_data_loss:
                raise OffsetOutOfRangeError(
                    f"{part.path} was deleted while it was read: log offsets {part.begin} to "
                    f"{part.end} are lost to this query (failOnDataLoss=false reads on behind "
                    "them)",
                    part.segment_end,
                    part.segment_end,
                ) from error
            log.warning(
                "data lost", extra={"begin": part.begin, "end": part.end, "file": part.path}
            )


def read_partition(
    partition: InputPartition, options: SourceOptions, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Batches of one partition."""
    if isinstance(partition, Partition):
        return partition.read(options, Decoder(columns, options.decompress))
    return iter(())  # Spark makes one partition where there is none


def pass_over(path: str, damage: object) -> None:
    """Permissive: the damage is a row of the table `damage`."""
