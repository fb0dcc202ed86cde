"""The options of `stratamq pipeline export --format iceberg`. Imports pyiceberg when it is used."""

import importlib.util
import threading
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from stratamq.errors import ConfigurationError, InvalidRequestError
from stratamq.files.clock import SystemClock
from stratamq_pipeline.jobs.showing import JobOutput, OutputOption, show

if TYPE_CHECKING:
    from stratamq_pipeline.bodies.schema_file import BodySchema
    from stratamq_pipeline.jobs.summary import Progress, Summary

DEFAULT_TABLE = "stratamq.messages"
_NEEDED = ("pyarrow", "pyiceberg", "sqlalchemy")


class ExportFormat(StrEnum):
    PARQUET = "parquet"
    ICEBERG = "iceberg"


FormatOption = Annotated[
    ExportFormat,
    typer.Option("--format", help="Write Parquet files by Spark, or an Iceberg table without it."),
]


CatalogOption = Annotated[
    str | None,
    typer.Option(
        help="Iceberg: use this catalog: http(s)://… of a REST catalog, a URL of SQLAlchemy's, or "
        "a name in pyiceberg's configuration; the default is the file OUT/catalog.db."
    ),
]
TableOption = Annotated[str, typer.Option(help="Iceberg: this table, NAMESPACE.NAME.")]


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """What only an Iceberg table takes."""

    catalog: CatalogOption = None
    table: TableOption = DEFAULT_TABLE
    roll_back: Annotated[
        bool,
        typer.Option(
            "--roll-back",
            help="Iceberg: if the log was cut below what was exported, roll the table back to a "
            "snapshot in front of the cut.",
        ),
    ] = False

    tier: Annotated[
        str | None,
        typer.Option(
            metavar="TIER",
            help="Iceberg: read what the log of a store's directory has no more from this tier: a "
            "directory, or s3://BUCKET/PREFIX, gs://…, az://….",
        ),
    ] = None
    commit_bytes: Annotated[
        int,
        typer.Option(min=1, help="Iceberg: commit after so many bytes, and at the log's end."),
    ] = 4 << 30
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Iceberg: go on with what is new until SIGINT or SIGTERM, and merge small files.",
        ),
    ] = False
    interval: Annotated[
        float, typer.Option(min=0.1, help="Iceberg: seconds between the rounds of --follow.")
    ] = 30.0

    def refuse(self) -> None:
        """InvalidRequestError if one of them is given for another format."""
        for one in fields(self):
            if getattr(self, one.name) != one.default:
                name = one.name.replace("_", "-")
                raise InvalidRequestError(f"--{name} needs --format iceberg")


@dataclass(frozen=True, slots=True)
class LogSelection:
    """What is exported, and from where."""

    log: str
    topics: tuple[str, ...]
    decompress: bool
    broker: str | None
    accept_gap: bool
    bodies: "BodySchema | None"


def export_to_iceberg(
    given: LogSelection, out: str, table: IcebergTable, dry_run: bool, progress: "Progress"
) -> "Summary":
    """ConfigurationError with what to install when pyiceberg is not there."""
    _need_pyiceberg()
    from stratamq_pipeline.iceberg.job import IcebergOptions, run_iceberg_export
    from stratamq_pipeline.iceberg.position import ExportSelection

    options = IcebergOptions(
        given.log,
        out,
        table.table,
        table.catalog,
        ExportSelection(given.topics, given.decompress),
        given.accept_gap,
        table.roll_back,
        given.broker,
        dry_run,
        table.tier,
        table.commit_bytes,
        bodies=given.bodies,
    )
    if not table.follow:
        return run_iceberg_export(options, progress)
    from stratamq_pipeline.iceberg.following import follow_iceberg_export, stopped_by_signals

    if dry_run:
        raise InvalidRequestError("--follow has no end: leave out --dry-run")
    stop = threading.Event()
    with stopped_by_signals(stop):
        return follow_iceberg_export(options, table.interval, stop, SystemClock(), progress)


def iceberg_orphans(
    out: Annotated[str, typer.Argument(help="The warehouse of an export to Iceberg.")],
    catalog: CatalogOption = None,
    table: TableOption = DEFAULT_TABLE,
    hours: Annotated[
        float,
        typer.Option(
            min=0,
            help="Leave files that were written within so many hours: longer than a commit takes.",
        ),
    ] = 72.0,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove them, instead of counting them.")
    ] = False,
    output: OutputOption = JobOutput.TABLE,
) -> None:
    """Count or remove the files below an Iceberg table that no snapshot names.

    They are of runs that were killed and of snapshots that were removed. Tables that others have
    put into the same directory are not known: their files would be taken for orphans.
    """
    _need_pyiceberg()
    from stratamq_pipeline.iceberg.orphans import OrphanOptions, run_iceberg_orphans

    options = OrphanOptions(out, table, catalog, hours, remove)
    show(partial(run_iceberg_orphans, options, SystemClock()), output)


def _need_pyiceberg() -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            [f"{', '.join(missing)} not installed: pip install 'stratamq[iceberg]'"]
        )
