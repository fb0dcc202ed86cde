"""`export`: the messages of a log as Parquet by topic and date, each exactly once.

A run takes the log from where the run before it ended to where the log ends now. Its place in the
log is its memory: nothing is asked of the messages themselves. What the last run exported last must
still stand in the log, else it is another log and the job stops.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from stratamq.errors import InvalidRequestError, OffsetOutOfRangeError
from stratamq.table.decode import Decoder
from stratamq.table.log_files import LogFiles, open_log
from stratamq.table.part_reader import read_part
from stratamq.table.schema import COLUMNS
from stratamq.table.selection import Selection
from stratamq_pipeline.export.manifest import Anchor, ExportDirectory, Manifest
from stratamq_pipeline.jobs.messages import Wanted, messages
from stratamq_pipeline.jobs.session import SparkOptions, Tell, silent, spark_session
from stratamq_pipeline.jobs.summary import Summary

_ANCHOR_COLUMNS = ("physicalOffset", "size", "bodyCrc", "storeTimestamp")
_ANCHOR_REACH = 64 << 20


@dataclass(frozen=True, slots=True)
class ExportOptions:
    log: str
    out: str
    topics: tuple[str, ...] = ()
    decompress: bool = False
    accept_gap: bool = False
    """Go on behind what retention has taken before it was exported."""
    part_bytes: int = 128 << 20
    dry_run: bool = False

    def selection(self) -> dict[str, object]:
        """What every run of one export must agree in."""
        return {"topics": sorted(self.topics), "decompress": self.decompress}


def run_export(options: ExportOptions, spark: SparkOptions, tell: Tell = silent) -> Summary:
    """Everything up to the log's end is published and durable on return.

    OffsetOutOfRangeError when retention was faster (unless `accept_gap`); InvalidRequestError when
    `out` holds an export of something else; BusyError when another run is under way.
    """
    log = open_log(options.log)
    directory = ExportDirectory(Path(options.out).absolute())
    _check_place(directory.out)
    if options.dry_run:
        manifests = directory.manifests()
        return _summary(options, _next(options, log, manifests), "dry run")
    with directory.locked():
        manifests = directory.manifests()
        carried = directory.recover(manifests)
        if carried:
            tell("an earlier run that was broken off is complete now")
        planned = _next(options, log, manifests)
        if planned.begin >= planned.end:
            return _summary(options, planned, "nothing new")
        with spark_session("pipeline export", spark) as session:
            tell(f"exporting log offsets {planned.begin} to {planned.end}")
            staging = directory.staging(planned.run)
            wanted = Wanted(
                (planned.begin, planned.end),
                COLUMNS,
                options.topics,
                options.decompress,
            )
            write(messages(session, log, wanted, options.part_bytes), staging, planned.run)
            tell("publishing")
            manifest = _completed(session, planned, log, staging)
            directory.publish(manifest)
    return _summary(options, manifest, "published")


def write(rows: DataFrame, staging: Path, run: int) -> None:
    """Parquet by topic and date (of the store time, UTC) below `staging`; names tell the run."""
    # Not to_date: that would ask for the session's time zone.
    day = "date_from_unix_date(CAST(unix_micros(storeTimestamp) DIV 86400000000 AS INT))"
    dated = rows.withColumn("date", F.expr(day))
    dated.write.partitionBy("topic", "date").mode("overwrite").parquet(os.fspath(staging))
    for path in sorted(staging.rglob("*")):
        if path.is_file():
            if path.suffix == ".parquet":
                path.rename(path.with_name(f"r{run:08d}-{path.name.removeprefix('part-')}"))
            else:
                path.unlink()


def _check_place(out: Path) -> None:
    if not out.parent.is_dir():
        raise InvalidRequestError(f"there is no directory {out.parent}")
    if out.exists() and not (out / "_exports").is_dir() and any(out.iterdir()):
        raise InvalidRequestError(f"{out} is there and is no export")


def _next(options: ExportOptions, log: LogFiles, manifests: list[Manifest]) -> Manifest:
    """The run to come, without what it will hold."""
    last = manifests[-1] if manifests else None
    selection = options.selection()
    if last is None:
        return Manifest(1, log.minimum, log.end, 0, (), {}, selection, None)
    if last.selection != selection:
        raise InvalidRequestError(
            f"{options.out} was begun with {last.selection}; this run has {selection}"
        )
    if log.end < last.end or not _stands(log, last.anchor):
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
                "exported: --accept-gap goes on without them",
                log.minimum,
                log.end,
            )
        gap_from, begin = last.end, log.minimum
    return Manifest(
        last.run + 1, begin, log.end, 0, (), {}, selection, last.anchor, gap_from=gap_from
    )


def _stands(log: LogFiles, anchor: Anchor | None) -> bool:
    """Whether the log still has that message; true when it is too old to tell."""
    if anchor is None or anchor.physical_offset < log.minimum:
        return True
    return _anchor(log, anchor.physical_offset, anchor.physical_offset + 1) == anchor


def _anchor(log: LogFiles, begin: int, end: int) -> Anchor | None:
    """The last message that begins in [begin, end) of the log."""
    found = None
    decoder = Decoder(_ANCHOR_COLUMNS)
    for part in log.parts(begin, end):
        for batch in read_part(part, decoder, Selection(queued_only=False)):
            row = batch.slice(batch.num_rows - 1).to_pylist()[0]
            moment = round(row["storeTimestamp"].timestamp() * 1000)
            found = Anchor(row["physicalOffset"], row["size"], row["bodyCrc"], moment)
    return found


def _last_anchor(log: LogFiles, begin: int, end: int) -> Anchor | None:
    """Looked for from behind, because most of the log need not be read for it."""
    high = end
    while high > begin:
        low = max(begin, high - _ANCHOR_REACH)
        found = _anchor(log, low, high)
        if found is not None:
            return found
        high = low
    return None


def _completed(spark: SparkSession, planned: Manifest, log: LogFiles, staging: Path) -> Manifest:
    files = sorted(os.fspath(path.relative_to(staging)) for path in staging.rglob("*.parquet"))
    queues: dict[str, dict[str, tuple[int, int]]] = {}
    count = 0
    if files:
        spark_rows = _read(spark, staging)
        for row in (
            spark_rows.groupBy("topic", "queueId")
            .agg(
                F.min("queueOffset").alias("first"),
                F.max("queueOffset").alias("last"),
                F.count("*").alias("messages"),
            )
            .orderBy("topic", "queueId")
            .collect()
        ):
            queues.setdefault(row["topic"], {})[str(row["queueId"])] = (
                row["first"],
                row["last"] + 1,
            )
            count += row["messages"]
    anchor = _last_anchor(log, planned.begin, planned.end) or planned.anchor
    return Manifest(
        planned.run,
        planned.begin,
        planned.end,
        count,
        tuple(files),
        queues,
        planned.selection,
        anchor,
        planned.gap_from,
    )


def _read(spark: SparkSession, staging: Path) -> DataFrame:
    """Topics are words even when they look like numbers."""
    schema = "topic string, date date, queueId int, queueOffset long"
    return spark.read.schema(schema).parquet(os.fspath(staging))


def _summary(options: ExportOptions, manifest: Manifest, result: str) -> Summary:
    facts: dict[str, Any] = {
        "log": options.log,
        "out": options.out,
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
