"""What tests ask of an Iceberg export: its table by pyiceberg, its rows, and those of a scan."""

from pathlib import Path

from pyiceberg.table import Table
from stratamq_pipeline.iceberg.command import DEFAULT_TABLE
from stratamq_pipeline.iceberg.job import IcebergOptions, run_iceberg_export
from stratamq_pipeline.iceberg.position import lineage_positions, position_of
from stratamq_pipeline.iceberg.table import catalog_at
from stratamq_pipeline.iceberg.writing import DataFileWriter, FileLimits

import stratamq
from stratamq.files.metadata import MetadataFile
from stratamq.files.real import RealFiles
from stratamq.formats.store_paths import GENERATIONS_PATH
from stratamq.store.generations import generations_document
from tests.pipeline.written_log import WrittenLog

SMALL = 4000
"""Bytes of Arrow in a commit: a few messages."""


def export(log: object, out: object, table: str = DEFAULT_TABLE, **more):
    return run_iceberg_export(IcebergOptions(str(log), str(out), table, **more))


def table_of(out: object, catalog: str | None = None, name: str = DEFAULT_TABLE) -> Table:
    with catalog_at(str(out), catalog) as opened:
        return opened.load_table(name)


def rows(out: Path, **scan) -> list[dict]:
    """All columns, in the log's order."""
    return in_order(table_of(out).scan(**scan).to_arrow().to_pylist())


def scanned(log: object, **more) -> list[dict]:
    return in_order(stratamq.scan(log, **more).to_arrow().to_pylist())


def in_order(found: list[dict]) -> list[dict]:
    return sorted(found, key=lambda row: row["physicalOffset"])


def positions(out: Path, *of_table: str) -> list[int]:
    """Log offsets at which snapshots end, from the newest back. `of_table`: catalog and name."""
    metadata = table_of(out, *of_table).metadata
    return [position.offset for _, position in lineage_positions(metadata)]


def batches_and_position(log: WrittenLog, table: Table, begin: int):
    """The files of one more commit, which begins at the table's position."""
    before = position_of(table.metadata, "messages")
    writer = DataFileWriter(table, FileLimits())
    for batch in stratamq.scan(log.root):
        mine = batch.filter([value >= begin for value in batch["physicalOffset"].to_pylist()])
        writer.write(mine)
    return table, writer.finish(), before, before.at(log.end, None)


def compact(table: Table) -> None:
    """As another program does: all rows in new files, in a snapshot without our words."""
    writer = DataFileWriter(table, FileLimits())
    for batch in table.scan().to_arrow_batch_reader():
        writer.write(batch)
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as snapshot:
        for task in table.scan().plan_files():
            snapshot.delete_data_file(task.file)
        for file in writer.finish():
            snapshot.append_data_file(file)


def list_generations(log: WrittenLog, *generations: tuple[int, int]) -> None:
    """As the log service does before it serves in one: (number, start) each."""
    MetadataFile(RealFiles(log.root), GENERATIONS_PATH).store(
        generations_document(generations, log.segment_bytes)
    )
