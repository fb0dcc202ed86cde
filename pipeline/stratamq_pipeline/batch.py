"""Batch reads: the driver divides the log into parts, executors read and decode theirs."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from stratamq.table.decode import Decoder
from stratamq.table.log_files import LogFiles, Part, open_log
from stratamq.table.part_reader import read_part
from stratamq.table.selection import Selection
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.pushdown import push


class LogPart(InputPartition):
    """A part of the log's files, and what is wanted of it."""

    def __init__(self, part: Part, selection: Selection) -> None:
        super().__init__(None)
        self.part = part
        self.selection = selection


class BatchReader(DataSourceReader):
    """Rows of the log. Pickled to the executors."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns
        self.selection = options.selection()

    def partitions(self) -> Sequence[InputPartition]:
        parts = divide(open_log(self.options.path), self.options, self.selection)
        return [LogPart(part, self.selection) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogPart)
        options = self.options
        return read_part(
            partition.part,
            Decoder(self.columns, options.decompress),
            partition.selection,
            verify=options.verify,
            on_damage=_pass_over if options.permissive else None,
        )


class PushingBatchReader(BatchReader):
    """The same, for a planner that hands filters over."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        self.selection, left = push(self.selection, filters)
        return left


def divide(log: LogFiles, options: SourceOptions, selection: Selection) -> list[Part]:
    """The parts that can hold something of the selection."""
    begin, end = log.within(selection.since_ms, selection.until_ms)
    if selection.physical is not None:
        begin, end = max(begin, selection.physical[0]), min(end, selection.physical[1])
    part_bytes = options.partition_bytes
    if options.min_partitions and end > begin:
        part_bytes = min(part_bytes, max(1, (end - begin) // options.min_partitions))
    return log.parts(begin, end, part_bytes)


def _pass_over(path: str, damage: object) -> None:
    """Permissive: the damage is a row of the table `damage`."""
