"""`export`: the messages of a log as Parquet by topic and date, each exactly once.

A run takes the log from where the run before it ended to where the log ends now. Its place in the
log is its memory: nothing is asked of the messages themselves. What the last run exported last must
still stand in the log, else it is another log and the job stops.
"""

from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from stratamq.errors import InvalidRequestError, OffsetOutOfRangeError
from stratamq.table.schema import COLUMNS
from stratamq.table.selection import Selection
from stratamq_pipeline.bodies.rows import BodyRows
from stratamq_pipeline.bodies.schema_file import BodySchema
from stratamq_pipeline.export.manifest import (
    DIRECTORY,
    STAGING,
    Anchor,
    ExportDirectory,
    ExportManifest,
    published_name,
)
from stratamq_pipeline.jobs.messages import Wanted, messages, open_log_to_read
from stratamq_pipeline.jobs.output_files import (
    OutputFiles,
    check_shared,
    not_shared,
    open_output,
)
from stratamq_pipeline.jobs.session import SparkOptions, spark_session
from stratamq_pipeline.jobs.summary import Progress, Summary, silent
from stratamq_pipeline.log_view import LogView
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.partition import read_partition

_ANCHOR_COLUMNS = ("physicalOffset", "size", "bodyCrc", "storeTimestamp")
_ANCHOR_REACH = 64 << 20


@dataclass(frozen=True, slots=True)
class ExportOptions:
    log: str
    """A store's directory, or the address of a running broker."""
    out: str
    topics: tuple[str, ...] = ()
    decompress: bool = False
    accept_gap: bool = False
    """Go on behind what retention has taken before it was exported."""
    part_bytes: int = 128 << 20
    dry_run: bool = False
    broker: str | None = None
    """The one to read where brokers of several names are at the address."""
    bodies: BodySchema | None = None
    """What makes columns of bodies, which are decompressed then."""

    def selection(self) -> dict[str, object]:
        """What every run of one export must agree in."""
        said: dict[str, object] = {"topics": sorted(self.topics), "decompress": self.decompress}
        if self.bodies is not None:
            said |= {"decompress": True, "bodies": BodyRows(self.bodies).name}
        return said


def run_export(options: ExportOptions, spark: SparkOptions, progress: Progress = silent) -> Summary:
    """Everything up to the log's end is published and durable on return.

    Rows are counted where they are read and again in the files to be published: nothing is
    published unless both agree. OffsetOutOfRangeError when retention was faster (unless
    `accept_gap`); InvalidRequestError when `out` holds an export of something else, or when it is
    not one directory to the driver and all workers; BusyError when another run is under way.
    """
    with (
        spark_session("pipeline export", spark) as session,
        closing(open_log_to_read(options.log, options.broker)) as log,
    ):
        files = open_output(session, options.out)
        _check_place(files)
        directory = ExportDirectory(files)
        if options.dry_run:
            return _summary(
                options, files.shown, _next(options, log, directory.manifests()), "dry run"
            )
        with directory.locked():
            try:
                return _run(session, options, log, directory, progress)
            finally:
                directory.remove_if_unused()


def _run(
    spark: SparkSession,
    options: ExportOptions,
    log: LogView,
    directory: ExportDirectory,
    progress: Progress,
) -> Summary:
    if directory.recover():
        progress("an earlier run that was broken off is complete now")
    planned = _next(options, log, directory.manifests())
    if planned.begin >= planned.end:
        return _summary(options, directory.files.shown, planned, "nothing new")
    check_shared(spark, directory.files, f"{STAGING}/shared")
    progress(f"exporting log offsets {planned.begin} to {planned.end}")
    offsets = (planned.begin, planned.end)
    wanted = Wanted(offsets, COLUMNS, options.topics, options.decompress, options.bodies)
    place = directory.files.spark_path(directory.rows(planned.run))
    read = write(messages(spark, log, wanted, options.part_bytes), place)
    progress("counting")
    manifest = _counted(spark, planned, log, directory, read)
    progress("publishing")
    directory.publish(manifest)
    return _summary(options, directory.files.shown, manifest, "published")


@dataclass(frozen=True, slots=True)
class Counted:
    """Rows, and the exclusive or of hashes of their places, which differs for other rows."""

    rows: int
    places: int


def _counts() -> tuple[Column, Column]:
    """The columns of `Counted`."""
    places = F.bit_xor(F.xxhash64("physicalOffset", "queueId", "queueOffset"))
    return F.count(F.lit(1)).alias("rows"), F.coalesce(places, F.lit(0)).alias("places")


def write(rows: DataFrame, place: str) -> Counted:
    """Parquet by topic and date (of the store time, UTC) below `place`; what was read for it."""
    read = Observation("read")
    # Not to_date: that would ask for the session's time zone.
    day = "date_from_unix_date(CAST(unix_micros(storeTimestamp) DIV 86400000000 AS INT))"
    dated = rows.observe(read, *_counts()).withColumn("date", F.expr(day))
    dated.write.partitionBy("topic", "date").mode("overwrite").parquet(place)
    return Counted(**read.get)


def _check_place(files: OutputFiles) -> None:
    if not files.above().exists():
        raise InvalidRequestError(f"there is no directory {files.above().shown}")
    names = [entry.name for entry in files.entries()]
    if names and DIRECTORY not in names:
        raise InvalidRequestError(f"{files.shown} is there and is no export")


def _next(options: ExportOptions, log: LogView, manifests: list[ExportManifest]) -> ExportManifest:
    """The run to come, without what it will hold."""
    last = manifests[-1] if manifests else None
    selection = options.selection()
    if last is None:
        return ExportManifest(1, log.minimum, log.end, 0, (), {}, selection, None)
    if last.selection != selection:
        raise InvalidRequestError(
            f"{options.out} was begun with {last.selection}; this run has {selection}"
        )
    if log.end < last.end:
        raise InvalidRequestError(
            f"{options.log} ends at {log.end}, and {options.out} has what was exported up to "
            f"{last.end}: of a slave that is behind its master run this again later, or read the "
            "master; a log that was cut, or is another one, needs an export of its own"
        )
    if not _has_message(log, last.anchor):
        raise InvalidRequestError(
            f"{options.log} is not the log that {options.out} was exported from, or it was cut: "
            f"what was exported up to {last.end} does not stand there"
        )
    gap_from = None
    begin = last.end
    if log.minimum > last.end:
        if not options.accept_gap:
            raise OffsetOutOfRangeError(
                f"messages from {last.end} to {log.minimum} were deleted before they were "
                "exported: --accept-gap continues without them",
                log.minimum,
                log.end,
            )
        gap_from, begin = last.end, log.minimum
    return ExportManifest(
        last.run + 1, begin, log.end, 0, (), {}, selection, last.anchor, gap_from=gap_from
    )


def _has_message(log: LogView, anchor: Anchor | None) -> bool:
    """Whether the log still has that message; true when that cannot be determined."""
    if anchor is None or anchor.physical_offset < log.minimum:
        return True
    begin = anchor.physical_offset
    return _last_anchor(log, begin, begin + anchor.size) == anchor


def _last_anchor(log: LogView, begin: int, end: int) -> Anchor | None:
    """The last message that begins in [begin, end) of the log. Looked for from behind, because most
    of the log need not be read for it."""
    selection = Selection(queued_only=False, physical=(begin, end))
    for piece in reversed(log.pieces(begin, end, _ANCHOR_REACH, selection)):
        found = None
        for batch in read_partition(piece, SourceOptions(""), _ANCHOR_COLUMNS):
            row = batch.slice(batch.num_rows - 1).to_pylist()[0]
            moment = round(row["storeTimestamp"].timestamp() * 1000)
            found = Anchor(row["physicalOffset"], row["size"], row["bodyCrc"], moment)
        if found is not None:
            return found
    return None


def _counted(
    spark: SparkSession,
    planned: ExportManifest,
    log: LogView,
    directory: ExportDirectory,
    read: Counted,
) -> ExportManifest:
    """The run with what it holds. InvalidRequestError unless the files that the driver sees hold
    exactly the rows that were read."""
    place = directory.rows(planned.run)
    there = {name for name in directory.files.files_below(place) if name.endswith(".parquet")}
    queues: dict[str, dict[str, tuple[int, int]]] = {}
    written, named = Counted(0, 0), set()
    if there:
        rows = _read(spark, directory.files.spark_path(place))
        written = Counted(*rows.agg(*_counts()).collect()[0])
        paths = rows.select(F.col("_metadata.file_path").alias("path")).distinct().collect()
        named = {unquote(row["path"]).partition(f"/{place}/")[2] for row in paths}
        for row in (
            rows.groupBy("topic", "queueId")
            .agg(F.min("queueOffset").alias("first"), F.max("queueOffset").alias("last"))
            .orderBy("topic", "queueId")
            .collect()
        ):
            of_topic = queues.setdefault(row["topic"], {})
            of_topic[str(row["queueId"])] = (row["first"], row["last"] + 1)
    check_counts(directory.files, read, written, named, there)
    return replace(
        planned,
        messages=written.rows,
        files=tuple(sorted(published_name(name, planned.run) for name in there)),
        queues=queues,
        anchor=_last_anchor(log, planned.begin, planned.end) or planned.anchor,
    )


def check_counts(
    files: OutputFiles, read: Counted, written: Counted, named: set[str], there: set[str]
) -> None:
    """InvalidRequestError unless the files that are there hold the rows that were read; `named` are
    those in which Spark found rows."""
    if written != read or named != there:
        raise not_shared(
            files,
            f"{read.rows} messages were read, and {written.rows} are in the {len(there)} files "
            "that the driver sees",
        )


def _read(spark: SparkSession, place: str) -> DataFrame:
    """Topics are words even when they look like numbers."""
    schema = "topic string, date date, queueId int, queueOffset long, physicalOffset long"
    return spark.read.schema(schema).parquet(place)


def _summary(options: ExportOptions, out: str, manifest: ExportManifest, result: str) -> Summary:
    facts: dict[str, Any] = {
        "log": options.log,
        "out": out,
        "run": manifest.run,
        "begin_offset": manifest.begin,
        "end_offset": manifest.end,
        "messages": manifest.messages,
        "files": len(manifest.files),
        "result": result,
        "dry_run": options.dry_run,
    }
    notes = []
    if manifest.gap_from is not None:
        notes.append(f"missing: log offsets {manifest.gap_from} to {manifest.begin} were deleted")
    rows = [
        {"topic": topic, "queue": int(queue), "first": first, "end": end}
        for topic, by_id in manifest.queues.items()
        for queue, (first, end) in by_id.items()
    ]
    return Summary("export", facts, rows, "queues", notes)
