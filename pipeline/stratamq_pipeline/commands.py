"""`stratamq pipeline`: jobs over a whole log on Spark.

What works is imported when it is called: every other command of `stratamq` imports this module.
"""

import importlib.util
import shutil
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stratamq.errors import ConfigurationError, StrataError

if TYPE_CHECKING:
    from stratamq_pipeline.jobs.dispatched import Reading
    from stratamq_pipeline.jobs.geometry import GeometryOptions
    from stratamq_pipeline.jobs.session import SparkOptions
    from stratamq_pipeline.jobs.summary import Summary

PANEL = "Jobs over a whole log"
"""The part of `stratamq --help` in which they are."""
NEEDED = ("pyarrow", "pyspark", "pandas")


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="a table, or one JSON object as the last line")
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        help="Spark's master: local[N], spark://HOST:PORT, yarn, k8s://…; otherwise what "
        "spark-submit sets, or local[*]",
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", help="KEY=VALUE, a setting of Spark's, as often as needed"),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="show what would be done, and do nothing")
]
LogArgument = Annotated[str, typer.Argument(help="a store's directory, ours or RocketMQ's")]
ReadableArgument = Annotated[
    str,
    typer.Argument(
        help="a store's directory, ours or RocketMQ's; or a running broker: HOST:PORT of any of "
        "its services, several of them, or of a name for them"
    ),
]
ReadBrokerOption = Annotated[
    str | None,
    typer.Option(
        "--broker",
        help="the broker of this name, where brokers of several names are at the address",
    ),
]
TierOfOption = Annotated[str | None, typer.Option(help="whose tier; not needed where there is one")]
TopicsOption = Annotated[
    list[str] | None, typer.Option("--topic", help="only this topic, as often as needed")
]
FaultsOption = Annotated[
    str | None,
    typer.Option(
        "--out",
        help="a directory, not there yet, that gets all faults as Parquet; the driver and all "
        "workers share it, or it is given with its file system, as hdfs://HOST/PATH",
    ),
]
QueueFileBytesOption = Annotated[
    int | None,
    typer.Option(
        min=20, help="size of a queue file; otherwise that of the files there, or 6 000 000"
    ),
]
IndexSlotsOption = Annotated[
    int | None,
    typer.Option(min=1, help="slots of an index file; otherwise as recorded, or 5 000 000"),
]
IndexItemsOption = Annotated[
    int | None,
    typer.Option(min=2, help="items of an index file; otherwise as recorded, or 20 000 000"),
]
DelayLevelsOption = Annotated[
    str | None,
    typer.Option(help="the delays of levels 1, 2, … as the log's service has them: '1s 5s 10s'"),
]


def register(app: typer.Typer) -> None:
    """Called by the command line through the entry-point group `stratamq.commands`."""
    app.add_typer(_jobs(), rich_help_panel=PANEL)


def submitted() -> None:
    """The same jobs as a program of their own, for spark-submit."""
    try:
        _jobs()()
    except StrataError as error:
        sys.exit(f"error: {' '.join(str(error).split())}")


def _jobs() -> typer.Typer:
    pipeline = typer.Typer(
        name="pipeline",
        help="Jobs over a whole log on Spark: on this machine, or on a cluster with --master.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    for job in (audit, export, offload, rebuild, stats, verify_tier):
        pipeline.command(job.__name__.replace("_", "-"))(job)
    pipeline.command("zip")(pack)
    return pipeline


def audit(
    log: LogArgument,
    out: FaultsOption = None,
    queue_file_bytes: QueueFileBytesOption = None,
    index_slots: IndexSlotsOption = None,
    index_items: IndexItemsOption = None,
    delay_levels: DelayLevelsOption = None,
    dry_run: DryRunOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Hold every frame, queue unit and index item of a store against each other.

    A fault is a row: file, position, kind, consequence. Damaged stretches of the log, units and
    items that are missing, wrong or too many, broken chains, files that do not belong. Nothing is
    changed. Exit code 1 when there is a fault. What services have not come to yet is not missed.
    """
    spark = spark_options(master, conf)
    geometry, reading = _store(queue_file_bytes, index_slots, index_items, delay_levels)
    from stratamq_pipeline.audit.job import AuditOptions, run_audit

    options = AuditOptions(log, out, geometry, reading, dry_run=dry_run)
    _run(run_audit, options, spark, output)


def export(
    log: ReadableArgument,
    out: Annotated[
        str,
        typer.Argument(
            help="the export, fresh or that of earlier runs: a directory that the driver and all "
            "workers share, or one with its file system, as hdfs://HOST/PATH"
        ),
    ],
    topic: TopicsOption = None,
    decompress: Annotated[bool, typer.Option(help="bodies as producers had them")] = False,
    accept_gap: Annotated[
        bool, typer.Option("--accept-gap", help="go on behind what retention took unexported")
    ] = False,
    broker: ReadBrokerOption = None,
    dry_run: DryRunOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write what is new in a log as Parquet files by topic and date of the store time (UTC).

    Each run continues where the one before it ended: OUT/_exports has a manifest for every run,
    with its log offsets, queue offsets and files. A run appears as a whole; one that is killed
    leaves neither a gap nor a duplicate when it is run again. Messages are counted where they are
    read and again in OUT's files; a run whose counts differ is not published. Read OUT with
    anything that reads directories of the kind topic=T/date=D. Topics that look like numbers stay
    words in Spark with spark.sql.sources.partitionColumnTypeInference.enabled=false.
    """
    spark = spark_options(master, conf)
    from stratamq_pipeline.export.job import ExportOptions, run_export

    options = ExportOptions(
        log, out, tuple(topic or ()), decompress, accept_gap, dry_run=dry_run, broker=broker
    )
    _run(run_export, options, spark, output)


def offload(
    log: LogArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="TIER",
            help="a directory that the driver and all workers share, or s3://BUCKET/PREFIX, gs://, "
            "az://",
        ),
    ],
    cluster: Annotated[str, typer.Option(help="brokerClusterName")] = "DefaultCluster",
    broker: Annotated[str, typer.Option(help="brokerName")] = "broker-a",
    topic: TopicsOption = None,
    export: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="of a directory: RocketMQ's metadata for the tier, below this store directory",
        ),
    ] = None,
    dry_run: DryRunOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Copy what the log of a store has into a tier, a task for each queue.

    The same as `stratamq tier backfill`, which reads the log in one process. What the tier has
    already is left out: a job that was broken off is begun again and adds what is missing. Refused
    where a tier service has claimed the tier. Nothing of the store is changed.
    """
    spark = spark_options(master, conf)
    from stratamq_pipeline.offload.job import OffloadOptions, run_offload

    options = OffloadOptions(log, to, cluster, broker, tuple(topic or ()), export, dry_run=dry_run)
    _run(run_offload, options, spark, output)


def rebuild(
    log: LogArgument,
    out: Annotated[
        str,
        typer.Argument(
            help="a directory that is not there yet; the driver and all workers share it"
        ),
    ],
    queue_file_bytes: QueueFileBytesOption = None,
    index_slots: IndexSlotsOption = None,
    index_items: IndexItemsOption = None,
    delay_levels: DelayLevelsOption = None,
    dry_run: DryRunOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Rebuild the consume queues and index files of a log in a fresh directory.

    OUT gets consumequeue/ and index/, byte for byte what the services make of the same log; it
    appears only when it is complete. Run an interrupted rebuild again with the same arguments to
    continue it (OUT.partial holds what is done). Damage in the log ends the job and is reported
    with its place: see `stratamq pipeline audit`. To use the result, stop the store, move its
    consumequeue/ and index/ away, and put these in their place.
    """
    spark = spark_options(master, conf)
    geometry, reading = _store(queue_file_bytes, index_slots, index_items, delay_levels)
    from stratamq_pipeline.rebuild.job import RebuildOptions, run_rebuild

    options = RebuildOptions(log, out, geometry, reading, dry_run=dry_run)
    _run(run_rebuild, options, spark, output)


def stats(
    log: ReadableArgument,
    html: Annotated[
        str | None, typer.Option("--html", help="write a page with charts: one file")
    ] = None,
    topic: TopicsOption = None,
    most: Annotated[
        int, typer.Option(min=1, max=1000, help="so many tags, keys and producers are listed")
    ] = 20,
    broker: ReadBrokerOption = None,
    dry_run: DryRunOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Rates, sizes, keys, tags, producers and gaps of a log, by topic and time.

    The table has a row for each topic; the page shows messages and bytes over time, sizes, the most
    frequent tags and producers, keys that stand in several messages, the longest silence of each
    topic, and where queue offsets leave some out.
    """
    spark = spark_options(master, conf)
    if html is not None:
        need("matplotlib")
    from stratamq_pipeline.stats.job import StatsOptions, run_stats

    options = StatsOptions(log, html, tuple(topic or ()), most, dry_run=dry_run, broker=broker)
    _run(run_stats, options, spark, output)


def verify_tier(
    tier: Annotated[str, typer.Argument(help="a directory, or s3://BUCKET/PREFIX, gs://…, az://…")],
    log: Annotated[
        str | None,
        typer.Option(help="a store's directory: its messages are compared with the tier's"),
    ] = None,
    cluster: TierOfOption = None,
    broker: TierOfOption = None,
    out: FaultsOption = None,
    dry_run: DryRunOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Read every record, unit and index item of a broker's tier, and hold them against each other.

    The rules are those of `stratamq tier verify`. With --log each message that log and tier both
    should have is compared by its content; what the tier has not come to yet is counted as waiting.
    A fault is a row: queue, queue offset, kind, consequence. Nothing is changed. Exit code 1 when
    there is a fault.
    """
    spark = spark_options(master, conf)
    from stratamq_pipeline.verify_tier.job import VerifyTierOptions, run_verify_tier

    options = VerifyTierOptions(tier, cluster, broker, log, out, dry_run=dry_run)
    _run(run_verify_tier, options, spark, output)


def pack(
    path: Annotated[Path, typer.Argument(help="the zip to write")],
) -> None:
    """Write the code as one zip, and the program for spark-submit beside it.

    Executors need PySpark and the libraries that the last line names; nothing of StrataMQ has to be
    installed there. Jobs begun with `stratamq pipeline JOB --master …` send this zip by themselves.
    """
    from stratamq_pipeline.code_zip import LIBRARIES, submit_script, write_code_zip

    modules = write_code_zip(path)
    script = path.with_name("stratamq_job.py")
    shutil.copyfile(submit_script(), script)
    sys.stdout.write(
        f"{path}: {modules} modules\n"
        f"spark-submit --master spark://HOST:PORT --py-files {path} {script} JOB …\n"
        f"executors need: {' '.join(LIBRARIES)}\n"
    )


def spark_options(master: str | None, conf: list[str] | None) -> "SparkOptions":
    """ConfigurationError with what to install when Spark is not there."""
    need(*NEEDED)
    from stratamq_pipeline.jobs.session import SparkOptions, parse_settings

    return SparkOptions(master, parse_settings(conf or []), progress=sys.stderr.isatty())


def need(*modules: str) -> None:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            [
                f"{', '.join(missing)} not installed: pip install 'stratamq[pipeline]'",
                "Spark needs Java 17 or later, too",
            ]
        )


def _store(
    queue_file_bytes: int | None,
    index_slots: int | None,
    index_items: int | None,
    delay_levels: str | None,
) -> "tuple[GeometryOptions, Reading]":
    from stratamq.formats.delay import parse_delay_levels
    from stratamq_pipeline.jobs.dispatched import Reading
    from stratamq_pipeline.jobs.geometry import GeometryOptions

    reading = Reading(parse_delay_levels(delay_levels)) if delay_levels else Reading()
    return GeometryOptions(queue_file_bytes, index_slots, index_items), reading


def _run(
    job: "Callable[..., Summary]", options: object, spark: "SparkOptions", output: Output
) -> None:
    """Show each step on standard error, with the time since the start, and then what was done; exit
    code 1 when the job requires it."""
    from rich.console import Console

    from stratamq.files.clock import SystemClock
    from stratamq_pipeline.jobs.summary import as_json, print_table

    errors, clock = Console(stderr=True), SystemClock()
    start = clock.monotonic_ns()

    def progress(what: str) -> None:
        if errors.is_terminal or output is Output.TABLE:
            seconds = (clock.monotonic_ns() - start) / 1e9
            errors.print(f"{seconds:7.1f} s  {what}", markup=False, highlight=False)

    summary = job(options, spark, progress)
    if output is Output.JSON:
        sys.stdout.write(as_json(summary) + "\n")
    else:
        print_table(summary, Console(width=None if sys.stdout.isatty() else 160))
    if summary.failed:
        raise typer.Exit(1)
