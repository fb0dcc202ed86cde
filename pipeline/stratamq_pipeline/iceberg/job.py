"""`export --format iceberg`: the messages of a log as an Iceberg table, each exactly once.

A run takes the log from the table's position to where the log ends, and commits rows and position
together, every `commit_bytes` and at the end. What is not committed does not exist: a run that was
killed leaves files that no snapshot names, and the next one begins at the table's position.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from stratamq.errors import InvalidRequestError, OffsetOutOfRangeError
from stratamq.table.schema import SCHEMA
from stratamq_pipeline.bodies.rows import BodyRows
from stratamq_pipeline.bodies.schema_file import BodySchema
from stratamq_pipeline.iceberg.committing import commit_rows
from stratamq_pipeline.iceberg.position import (
    ExportPosition,
    ExportSelection,
    LastMessage,
    lineage_positions,
    position_of,
)
from stratamq_pipeline.iceberg.queue_ends import queue_ends
from stratamq_pipeline.iceberg.source import (
    LogToExport,
    has_message,
    last_message_of,
    open_log_to_export,
)
from stratamq_pipeline.iceberg.table import (
    add_columns,
    catalog_at,
    existing_table,
    open_table,
)
from stratamq_pipeline.iceberg.writing import DataFileWriter, FileLimits
from stratamq_pipeline.jobs.summary import Progress, Summary, silent


@dataclass(frozen=True, slots=True)
class IcebergOptions:
    log: str
    """A store's directory, or the address of a running broker."""
    out: str
    """The warehouse: a directory, or an object store's URL."""
    table: str
    catalog: str | None = None
    """None: a file in `out`."""
    selection: ExportSelection = field(default_factory=ExportSelection)
    accept_gap: bool = False
    """Go on behind what retention has taken before it was exported."""
    roll_back: bool = False
    """Where the log was cut, roll the table back to a snapshot in front of the cut."""
    broker: str | None = None
    dry_run: bool = False
    tier: str | None = None
    """Where messages of a store's directory were uploaded."""
    commit_bytes: int = 4 << 30
    """So many bytes of Arrow are in one commit: what a killed run does again."""
    limits: FileLimits = field(default_factory=FileLimits)
    bodies: BodySchema | None = None
    """What makes columns of bodies, which are decompressed then."""


def run_iceberg_export(options: IcebergOptions, progress: Progress = silent) -> Summary:
    """Everything up to the log's end is in the table on return.

    OffsetOutOfRangeError when retention was faster (unless `accept_gap`); InvalidRequestError when
    the table holds another export, or messages that the log has no more; BusyError when another
    exporter writes to the table.
    """
    if options.dry_run:
        return _dry_run(options, progress)
    with catalog_at(options.out, options.catalog) as catalog:
        export = IcebergExport(options, catalog, progress)
        export.run()
        return export.summary()


def _dry_run(options: IcebergOptions, progress: Progress) -> Summary:
    """What a run would begin with. Nothing is written: no catalog and no table, either."""
    options = _with_decoded_bodies(options)[0]
    with (
        _opened(options) as log,
        existing_table(options.out, options.catalog, options.table) as table,
    ):
        begin = _begin(options, log, table)
        progress(f"a run would export log offsets {begin.offset} to {log.end}")
        return _summary(options, table, (begin.offset, log.end), "dry run")


class IcebergExport:
    """An export to one table, run by run, and what the runs have done together.

    It creates a missing table, but not for a log that cannot be read."""

    def __init__(self, options: IcebergOptions, catalog: Catalog, progress: Progress) -> None:
        self._options, self._bodies = options, bodies = _with_decoded_bodies(options)
        self._progress = progress
        schema = SCHEMA if bodies is None else bodies.schema
        with _opened(self._options):
            self.table = open_table(catalog, options.out, options.table, schema)
        _last_position(self._options, self.table)
        add_columns(self.table, schema)
        self._offsets: tuple[int, int] | None = None
        self._messages = 0
        self._files = 0
        self._commits = 0

    def run(self, stopped: Callable[[], bool] = lambda: False) -> list[DataFile]:
        """Export up to the log's end, or, after a commit, until `stopped`. The new files."""
        options, committed = self._options, []
        self.table.refresh()
        with _opened(options) as log:
            begin = _begin(options, log, self.table)
            self._offsets = self._offsets or (begin.offset, log.end)
            if begin.partial or begin.offset < log.end:
                self._progress(f"exporting log offsets {begin.offset} to {log.end}")
            for commit in _commits(options, log, self.table, begin, self._bodies):
                committed += commit.files
                self._commits += 1
                self._messages += commit.messages
                self._offsets = self._offsets[0], commit.position.offset
                self._progress(f"committed up to log offset {commit.position.offset}")
                if stopped():
                    break
        self._files += len(committed)
        return committed

    def summary(self) -> Summary:
        offsets = self._offsets or (0, 0)
        result = "published" if self._commits else "nothing new"
        done = self._messages, self._files, self._commits
        return _summary(self._options, self.table, offsets, result, *done)


def _with_decoded_bodies(options: IcebergOptions) -> tuple[IcebergOptions, BodyRows | None]:
    """A table with columns of bodies is one of decompressed bodies."""
    if options.bodies is None:
        return options, None
    bodies = BodyRows(options.bodies)
    selection = replace(options.selection, decompress=True, bodies=bodies.name)
    return replace(options, selection=selection), bodies


def _opened(options: IcebergOptions) -> AbstractContextManager[LogToExport]:
    return open_log_to_export(options.log, options.selection, options.broker, options.tier)


def _summary(
    options: IcebergOptions,
    table: Table | None,
    offsets: tuple[int, int],
    result: str,
    messages: int = 0,
    files: int = 0,
    commits: int = 0,
) -> Summary:
    current = table.current_snapshot() if table is not None else None
    facts: dict[str, Any] = {
        "log": options.log,
        "out": options.out,
        "table": options.table,
        "begin_offset": offsets[0],
        "end_offset": offsets[1],
        "messages": messages,
        "files": files,
        "commits": commits,
        "snapshot": str(current.snapshot_id) if current else "",
        "metadata": table.metadata_location if table is not None else "",
        "result": result,
        "dry_run": options.dry_run,
    }
    return Summary("export", facts)


def _begin(options: IcebergOptions, log: LogToExport, table: Table | None) -> ExportPosition:
    """Where the run begins. The table is rolled back if the log was cut and that is allowed."""
    wanted = options.selection.to_json()
    last = _last_position(options, table)
    generation = log.history[-1][0] if log.history else None
    if last is None or table is None:
        older = log.has_older and (log.minimum > 0 or log.end == 0)
        offset = 0 if older else log.minimum
        return ExportPosition(offset, generation, wanted, partial=older)
    last = _in_one_log(options, log, table, last)
    begin = last.offset
    if last.partial or (log.minimum > begin and log.has_older):
        return ExportPosition(begin, generation, wanted, last.last, partial=True)
    if log.minimum > begin:
        if not options.accept_gap:
            raise OffsetOutOfRangeError(
                f"messages from {begin} to {log.minimum} were deleted before they were exported: "
                "--accept-gap continues without them",
                log.minimum,
                log.end,
            )
        begin = log.minimum
    return ExportPosition(begin, generation, wanted, last.last)


def _last_position(options: IcebergOptions, table: Table | None) -> ExportPosition | None:
    """InvalidRequestError for a table that was begun with other options."""
    if table is None:
        return None
    last = position_of(table.metadata, options.table)
    wanted = options.selection.to_json()
    if last is not None and last.selection != wanted:
        raise InvalidRequestError(
            f"{options.table} was begun with {last.selection}; this run has {wanted}"
        )
    return last


def _in_one_log(
    options: IcebergOptions, log: LogToExport, table: Table, last: ExportPosition
) -> ExportPosition:
    """`last`, or the position that the table was rolled back to."""
    cut = last.cut_at(log.history)
    if cut is None and log.end < last.offset:
        raise InvalidRequestError(
            f"{options.log} ends at {log.end}, and {options.table} has what was exported up to "
            f"{last.offset}: of a slave that is behind its master run this again later, or read "
            "the master; a log that is another one needs a table of its own"
        )
    if cut is None and has_message(log, last.last):
        return last
    if not cut:
        raise InvalidRequestError(
            f"{options.log} is not the log that {options.table} was exported from: what was "
            f"exported up to {last.offset} does not stand there. Name another table"
        )
    return _rolled_back(options, log, table, cut)


def _rolled_back(
    options: IcebergOptions, log: LogToExport, table: Table, cut: int
) -> ExportPosition:
    said = (
        f"{options.log} was cut at log offset {cut}, and {options.table} has messages from behind "
        "it, which the log has lost"
    )
    in_front = (
        (snapshot, position)
        for snapshot, position in lineage_positions(table.metadata)
        if position.offset <= cut and has_message(log, position.last)
    )
    snapshot, position = next(in_front, (None, None))
    if snapshot is None or position is None:
        raise InvalidRequestError(
            f"{said}: it has no snapshot from in front of the cut. Export to another table"
        )
    if not options.roll_back:
        raise InvalidRequestError(
            f"{said}: --roll-back takes them back, by rolling the table back to snapshot "
            f"{snapshot}, which ends at {position.offset}, and continues from there"
        )
    if not options.dry_run:
        table.manage_snapshots().rollback_to_snapshot(snapshot).commit()
    return position


@dataclass(frozen=True, slots=True)
class _Commit:
    position: ExportPosition
    messages: int
    files: list[DataFile]


def _commits(
    options: IcebergOptions,
    log: LogToExport,
    table: Table,
    begin: ExportPosition,
    bodies: BodyRows | None,
) -> Iterator[_Commit]:
    """Commit what the log has, and yield after each commit."""
    before = position_of(table.metadata, options.table)
    if begin.partial:
        batches = log.behind(queue_ends(table), options.accept_gap)
    else:
        batches = log.batches(begin.offset, log.end)
    if bodies is not None:
        batches = map(bodies.rows, batches)
    now = begin
    while True:
        writer = DataFileWriter(table, options.limits)
        last, at_end = _written(batches, writer, options.commit_bytes)
        now = _next(now, log, last, at_end)
        if writer.rows or not now.says_as_much_as(before):
            files = writer.finish()
            commit_rows(table, files, before, now)
            yield _Commit(now, writer.rows, files)
            before = now
        if at_end:
            return


def _next(
    now: ExportPosition, log: LogToExport, last: LastMessage | None, at_end: bool
) -> ExportPosition:
    """The position behind what was written."""
    if now.partial:
        # Messages of a tier have no place in the log, and without a log there is no end of it.
        offset = log.end if at_end else now.offset
        return now.at(offset, None, partial=not at_end or log.end == 0)
    return now.at(log.end if at_end else sum(last[:2]) if last else now.offset, last)


def _written(
    batches: Iterator[pa.RecordBatch], writer: DataFileWriter, most_bytes: int
) -> tuple[LastMessage | None, bool]:
    """The last message that was written, and whether there are no more."""
    last, size = None, 0
    for batch in batches:
        writer.write(batch)
        last = last_message_of(batch) or last
        size += batch.nbytes
        if size >= most_bytes:
            return last, False
    return last, True
