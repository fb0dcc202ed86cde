"""The corruption report as a table: a row for each stretch of the log that cannot be read."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from stratamq.formats.log_damage import Damage
from stratamq.table.decode import Decoder
from stratamq.table.part_reader import read_part
from stratamq.table.selection import Selection
from stratamq_pipeline.batch import divide
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.partition import LogPart
from stratamq_pipeline.places import logs_of
from stratamq_pipeline.same_file import check_same, log_for_workers
from stratamq_pipeline.table_columns import TableColumns

DAMAGE_SCHEMA = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("startOffset", pa.int64(), nullable=False),
        pa.field("endOffset", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
    ]
)


class DamageReader(DataSourceReader):
    """Verifies every frame, whatever is selected."""

    def __init__(self, options: SourceOptions, columns: TableColumns) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        everything = Selection(queued_only=False)
        return [
            LogPart(part, everything)
            for one in logs_of(self.options)
            for part in divide(log_for_workers(one.path), one, everything)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LogPart):
            return  # Spark makes one partition where there is none
        check_same(partition.part, partition.witness)
        found: list[tuple[str, Damage]] = []
        batches = read_part(
            partition.part,
            Decoder(("size",)),
            partition.selection,
            verify=True,
            on_damage=lambda path, damage: found.append((path, damage)),
        )
        for _ in batches:
            pass
        if found:
            rows = [
                {
                    "file": path,
                    "startOffset": one.start,
                    "endOffset": one.end,
                    "reason": one.reason,
                }
                for path, one in found
            ]
            yield self.columns.rows(pa.RecordBatch.from_pylist(rows, schema=DAMAGE_SCHEMA))
