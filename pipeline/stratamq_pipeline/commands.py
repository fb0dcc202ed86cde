"""`stratamq pipeline`: jobs over a whole log on Spark, and one without it.

What works is imported when it is called: every other command of `stratamq` imports this module.
"""

import importlib.util
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stratamq.errors import ConfigurationError, InvalidRequestError, StrataError
from stratamq.option_groups import option_groups
from stratamq_pipeline.bodies.command import BodyColumns
from stratamq_pipeline.iceberg.command import (
    ExportFormat,
    FormatOption,
    IcebergTable,
    LogSelection,
    export_to_iceberg,
    iceberg_orphans,
)
from stratamq_pipeline.jobs.showing import JobOutput, OutputOption, show

if TYPE_CHECKING:
    from stratamq_pipeline.jobs.dispatched import FrameReading
    from stratamq_pipeline.jobs.geometry import GeometryOptions
    from stratamq_pipeline.jobs.session import SparkOptions
    from stratamq_pipeline.jobs.summary import Progress, Summary

PANEL = "Spark jobs"
"""The part of `stratamq --help` in which they are."""
NEEDED = ("pyarrow", "pyspark", "pandas")


MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        help="Use this Spark master: local[N], spark://HOST:PORT, yarn, k8s://…; the default is "
        "what spark-submit sets, or local[*].",
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="Set a setting of Spark's; repeatable."),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done without doing it.")
]
LogArgument = Annotated[str, typer.Argument(help="Store directory of StrataMQ or RocketMQ.")]
ReadableArgument = Annotated[
    str,
    typer.Argument(
        help="Store directory of StrataMQ or RocketMQ, or HOST:PORT of any service of a running "
        "broker; several addresses separated by commas, or a DNS name for several."
    ),
]
ReadBrokerOption = Annotated[
    str | None,
    typer.Option(
        "--broker",
        help="Select one broker by name, if the address leads to several.",
    ),
]
TierOfOption = Annotated[
    str | None, typer.Option(help="Select the tier by this name, if there are several.")
]
TopicsOption = Annotated[
    list[str] | None, typer.Option("--topic", help="Process only this topic; repeatable.")
]
FaultsOption = Annotated[
    str | None,
    typer.Option(
        "--out",
        help="Write all faults as Parquet to this new directory, which the driver and all workers "
        "share, or hdfs://HOST/PATH.",
    ),
]
QueueFileBytesOption = Annotated[
    int | None,
    typer.Option(
        min=20,
        help="Set the size of a queue file; the default is that of existing files, or 6 000 000.",
    ),
]
IndexSlotsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Set the slots of an index file; the default is what is recorded, or 5 000 000.",
    ),
]
IndexItemsOption = Annotated[
    int | None,
    typer.Option(
        min=2,
        help="Set the items of an index file; the default is what is recorded, or 20 000 000.",
    ),
]
DelayLevelsOption = Annotated[
    str | None,
    typer.Option(
        help="Set the delays of levels 1, 2, … as in commitlog.message_delay_level: '1s 5s 10s'."
    ),
]


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How a store's queues and index are made, where its files do not tell."""

    queue_file_bytes: QueueFileBytesOption = None
    index_slots: IndexSlotsOption = None
    index_items: IndexItemsOption = None
    delay_levels: DelayLevelsOption = None

    def geometry(self) -> "GeometryOptions":
        from stratamq_pipeline.jobs.geometry import GeometryOptions

        return GeometryOptions(self.queue_file_bytes, self.index_slots, self.index_items)

    def reading(self) -> "FrameReading":
        from stratamq.formats.delay import parse_delay_levels
        from stratamq_pipeline.jobs.dispatched import FrameReading

        levels = self.delay_levels
        return FrameReading(parse_delay_levels(levels)) if levels else FrameReading()


@dataclass(frozen=True, slots=True)
class Running:
    """How and where a job runs."""

    dry_run: DryRunOption = False
    master: MasterOption = None
    conf: ConfOption = None
    output: OutputOption = JobOutput.TABLE

    def refuse_spark(self) -> None:
        """InvalidRequestError if the job is to run on Spark and does not."""
        if self.master is not None or self.conf:
            raise InvalidRequestError("--master and --conf are for jobs that run on Spark")

    def spark_options(self) -> "SparkOptions":
        """ConfigurationError with what to install when Spark is not there."""
        need(*NEEDED)
        from stratamq_pipeline.jobs.session import SparkOptions, parse_settings

        settings = parse_settings(self.conf or [])
        return SparkOptions(self.master, settings, progress=sys.stderr.isatty())


AS_FOUND, LOCALLY = StoreOptions(), Running()
MESSAGES_TABLE, AS_STORED = IcebergTable(), BodyColumns()


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
        help="Run Spark jobs over a whole log, on this machine or (--master) on a cluster.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    for job in (audit, export, iceberg_orphans, offload, rebuild, stats, verify_tier):
        pipeline.command(job.__name__.replace("_", "-"))(option_groups(job))
    pipeline.command("zip")(pack)
    return pipeline


def audit(
    log: LogArgument,
    out: FaultsOption = None,
    store: StoreOptions = AS_FOUND,
    running: Running = LOCALLY,
) -> None:
    """Verify every frame, queue unit and index item of a store against each other.

    Each fault is a row with file, position, kind and consequence: damaged ranges of the log; units
    and items that are missing, wrong or superfluous; broken chains; unknown files. Nothing is
    changed. Exit code 1 if there is a fault. What services have yet to process is no fault.
    """
    spark = running.spark_options()
    geometry, reading = store.geometry(), store.reading()
    from stratamq_pipeline.audit.job import AuditOptions, run_audit

    options = AuditOptions(log, out, geometry, reading, dry_run=running.dry_run)
    _run(run_audit, options, spark, running.output)


def export(
    log: ReadableArgument,
    out: Annotated[
        str,
        typer.Argument(
            help="Directory of the export, new or of earlier runs, which the driver and all "
            "workers share, or hdfs://HOST/PATH."
        ),
    ],
    topic: TopicsOption = None,
    decompress: Annotated[bool, typer.Option(help="Decompress bodies.")] = False,
    accept_gap: Annotated[
        bool,
        typer.Option(
            "--accept-gap", help="Continue even if retention deleted messages before their export."
        ),
    ] = False,
    broker: ReadBrokerOption = None,
    format: FormatOption = ExportFormat.PARQUET,
    bodies: BodyColumns = AS_STORED,
    iceberg: IcebergTable = MESSAGES_TABLE,
    running: Running = LOCALLY,
) -> None:
    """Write new messages of a log as Parquet files by topic and date of the store time (UTC).

    Each run continues where the previous one ended: OUT/_exports has a manifest for every run, with
    its log offsets, queue offsets and files. A run is published as a whole; if it is killed, run it
    again: there is neither a gap nor a duplicate. Messages are counted when they are read and again
    in OUT's files; a run whose counts differ is not published. Any program that reads directories
    of the form topic=T/date=D can read OUT. In Spark, topics that look like numbers stay strings
    with spark.sql.sources.partitionColumnTypeInference.enabled=false.

    With --format iceberg OUT is a warehouse with an Iceberg table, which is written without Spark.
    Its snapshots have the position in the log, committed together with the rows.
    """
    topics = tuple(topic or ())
    if format is ExportFormat.ICEBERG:
        bodies_schema = bodies.read(topics)
        given = LogSelection(log, topics, decompress, broker, accept_gap, bodies_schema)
        running.refuse_spark()
        work = partial(export_to_iceberg, given, out, iceberg, running.dry_run)
        show(work, running.output)
        return
    iceberg.refuse()
    spark = running.spark_options()
    from stratamq_pipeline.export.job import ExportOptions, run_export

    options = ExportOptions(
        log,
        out,
        topics,
        decompress,
        accept_gap,
        dry_run=running.dry_run,
        broker=broker,
        bodies=bodies.read(topics),
    )
    _run(run_export, options, spark, running.output)


def offload(
    log: LogArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="TIER",
            help="Write to this directory, which the driver and all workers share, or to "
            "s3://BUCKET/PREFIX, gs://…, az://….",
        ),
    ],
    cluster: Annotated[
        str, typer.Option(help="Cluster name (brokerClusterName).")
    ] = "DefaultCluster",
    broker: Annotated[str, typer.Option(help="Broker name (brokerName).")] = "broker-a",
    topic: TopicsOption = None,
    export: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="For a tier in a directory: write RocketMQ's tier metadata below this store "
            "directory.",
        ),
    ] = None,
    running: Running = LOCALLY,
) -> None:
    """Copy the messages of a store's log to a tier, with one task for each queue.

    It does the same as `stratamq tier backfill`, which runs in one process. What the tier already
    has is skipped: run an interrupted job again to add what is missing. Refused if a tier service
    has claimed the tier. The store is not changed.
    """
    spark = running.spark_options()
    from stratamq_pipeline.offload.job import OffloadOptions, run_offload

    options = OffloadOptions(
        log, to, cluster, broker, tuple(topic or ()), export, dry_run=running.dry_run
    )
    _run(run_offload, options, spark, running.output)


def rebuild(
    log: LogArgument,
    out: Annotated[
        str,
        typer.Argument(
            help="New directory for the result, which the driver and all workers share."
        ),
    ],
    store: StoreOptions = AS_FOUND,
    running: Running = LOCALLY,
) -> None:
    """Rebuild the consume queues and index files of a log in a fresh directory.

    OUT has consumequeue/ and index/, byte for byte as the services would build them; it appears
    only when it is complete. Run an interrupted rebuild again with the same arguments to continue
    it (OUT.partial holds what is done). If the log is damaged, the job ends and reports the place:
    see `stratamq pipeline audit`. To use the result, stop the broker and replace its consumequeue/
    and index/ with those of OUT.
    """
    spark = running.spark_options()
    geometry, reading = store.geometry(), store.reading()
    from stratamq_pipeline.rebuild.job import RebuildOptions, run_rebuild

    options = RebuildOptions(log, out, geometry, reading, dry_run=running.dry_run)
    _run(run_rebuild, options, spark, running.output)


def stats(
    log: ReadableArgument,
    html: Annotated[
        str | None, typer.Option("--html", help="Also write a page with charts to this file.")
    ] = None,
    topic: TopicsOption = None,
    most: Annotated[
        int, typer.Option(min=1, max=1000, help="List this many tags, keys and producers.")
    ] = 20,
    broker: ReadBrokerOption = None,
    running: Running = LOCALLY,
) -> None:
    """Show rates, sizes, keys, tags, producers and gaps of a log, by topic and time.

    The table has a row for each topic. The page shows messages and bytes over time, sizes, the most
    frequent tags and producers, keys of several messages, the longest silence of each topic, and
    gaps in queue offsets.
    """
    spark = running.spark_options()
    if html is not None:
        need("matplotlib")
    from stratamq_pipeline.stats.job import StatsOptions, run_stats

    options = StatsOptions(
        log, html, tuple(topic or ()), most, dry_run=running.dry_run, broker=broker
    )
    _run(run_stats, options, spark, running.output)


def verify_tier(
    tier: Annotated[str, typer.Argument(help="Directory, or s3://BUCKET/PREFIX, gs://…, az://….")],
    log: Annotated[
        str | None,
        typer.Option(help="Compare the tier with the messages of this store directory."),
    ] = None,
    cluster: TierOfOption = None,
    broker: TierOfOption = None,
    out: FaultsOption = None,
    running: Running = LOCALLY,
) -> None:
    """Verify every record, unit and index item of a broker's tier against its manifests.

    The rules are those of `stratamq tier verify`. With --log every message that both log and tier
    should have is compared by content; messages that are not uploaded yet are counted as waiting.
    Each fault is a row with queue, queue offset, kind and consequence. Nothing is changed. Exit
    code 1 if there is a fault.
    """
    spark = running.spark_options()
    from stratamq_pipeline.verify_tier.job import VerifyTierOptions, run_verify_tier

    options = VerifyTierOptions(tier, cluster, broker, log, out, dry_run=running.dry_run)
    _run(run_verify_tier, options, spark, running.output)


def pack(
    path: Annotated[Path, typer.Argument(help="Zip file to write.")],
) -> None:
    """Write the code as one zip file, and the program for spark-submit next to it.

    Executors need PySpark and the libraries that the last line of the output names, but not
    StrataMQ. Jobs started with `stratamq pipeline JOB --master …` send this zip automatically.
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


def need(*modules: str) -> None:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            [
                f"{', '.join(missing)} not installed: pip install 'stratamq[pipeline]'",
                "Spark also needs Java 17 or later",
            ]
        )


def _run(
    job: "Callable[[Any, SparkOptions, Progress], Summary]",
    options: object,
    spark: "SparkOptions",
    output: JobOutput,
) -> None:
    show(partial(job, options, spark), output)
