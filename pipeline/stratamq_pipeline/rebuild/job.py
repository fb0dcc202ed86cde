"""`rebuild`: consume queues and index files from the log alone, into a fresh directory.

    stage    what is done                                      kept for a run that continues
    rows     the log read once, its dispatch columns kept      <out>.partial/rows, Parquet by part
    queues   one shuffle by topic and queue, files written     <out>.partial/made/consumequeue
    index    files cut by number of items, each built alone    <out>.partial/made/index

The bytes are those that the dispatcher and the index service make of the same log: the pure
builders of `stratamq.formats` are theirs.
"""

import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from stratamq.errors import InvalidRequestError
from stratamq.formats.store_paths import CONSUME_QUEUES, INDEX
from stratamq.table.log_files import LogFiles
from stratamq_pipeline.jobs.dispatched import FrameReading, dispatched, log_parts, queued
from stratamq_pipeline.jobs.geometry import GeometryOptions, StoreGeometry, store_geometry
from stratamq_pipeline.jobs.output_files import LocalFiles, local_output, not_shared, sync
from stratamq_pipeline.jobs.session import SparkOptions, spark_session
from stratamq_pipeline.jobs.summary import Progress, Summary, silent
from stratamq_pipeline.jobs.target import Target
from stratamq_pipeline.rebuild.index_files import (
    IndexGeometry,
    index_files,
    items_by_part,
    name_files,
    plan_files,
)
from stratamq_pipeline.rebuild.queue_files import queue_files
from stratamq_pipeline.same_file import log_for_workers


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    log: str
    out: str
    geometry: GeometryOptions = field(default_factory=GeometryOptions)
    reading: FrameReading = field(default_factory=FrameReading)
    part_bytes: int = 128 << 20
    dry_run: bool = False


def run_rebuild(
    options: RebuildOptions, spark: SparkOptions, progress: Progress = silent
) -> Summary:
    """Everything under `out` is whole and durable on return, or `out` is not there.

    InvalidRequestError and NotFoundError: what cannot be rebuilt; CorruptionError where the log
    is damaged: a queue with a hole is worth less than no queue. Workers write below `out` with
    plain system calls, so it is a directory that they and the driver share, or InvalidRequestError.
    """
    out = local_output(options.out)
    target = Target(out)
    log = log_for_workers(options.log)
    if log.root is None:
        raise InvalidRequestError("rebuild reads a store's directory, not single files")
    geometry = store_geometry(Path(log.root), options.geometry)
    summary = _plan(options, log, geometry)
    if options.dry_run:
        return summary
    with spark_session("pipeline rebuild", spark) as session:
        target.check_shared(session)
        resumed = target.begin(_identity(options, log, geometry))
        if resumed:
            progress("continuing an earlier run")
        work = Work(session, options, log, geometry, target, out.above())
        facts = _run(work, progress)
    progress("publishing")
    target.publish()
    summary.facts |= facts | {"went_on": resumed}
    return summary


def _plan(options: RebuildOptions, log: LogFiles, geometry: StoreGeometry) -> Summary:
    facts: dict[str, Any] = {
        "log": log.root,
        "out": options.out,
        "segments": len(log.segments),
        "begin_offset": log.minimum,
        "end_offset": log.end,
        "parts": len(log.parts(part_bytes=options.part_bytes)),
        "queue_file_bytes": geometry.queues.file_bytes,
        "index_slots": geometry.index_slots,
        "index_items": geometry.index_items,
        "dry_run": options.dry_run,
    }
    return Summary("rebuild", facts)


def _identity(options: RebuildOptions, log: LogFiles, geometry: StoreGeometry) -> dict[str, Any]:
    """What makes two runs the same."""
    return {
        "log": log.root,
        "segments": [(one.start, one.size) for one in log.segments],
        "end": log.end,
        "part_bytes": options.part_bytes,
        "geometry": asdict(geometry),
        "reading": asdict(options.reading),
    }


@dataclass(frozen=True, slots=True)
class Work:
    """What every stage is given."""

    spark: SparkSession
    options: RebuildOptions
    log: LogFiles
    geometry: StoreGeometry
    target: Target
    files: LocalFiles
    """Those of `target`."""

    @property
    def made(self) -> Path:
        return self.files.path(self.target.made)

    @property
    def rows(self) -> str:
        return f"{self.target.partial}/rows"

    def refuse(self, what: str, expected: int, found: int) -> None:
        """InvalidRequestError when they differ."""
        if expected != found:
            raise not_shared(self.files, f"{expected} {what} were handed out, {found} came back")


def _run(work: Work, progress: Progress) -> dict[str, Any]:
    target = work.target
    place = work.files.spark_path(work.rows)
    if target.finished("rows") is None:
        progress("reading the log")
        target.finish("rows", {"rows": _rows(work, place)})
    stored = work.spark.read.parquet(place) if work.log.end > work.log.minimum else None
    queues = target.finished("queues")
    if queues is None:
        progress("writing consume queues")
        queues = _queues(work, stored)
        target.finish("queues", queues)
    index = target.finished(INDEX)
    if index is None:
        progress("writing index files")
        index = _index(work, stored)
        target.finish(INDEX, index)
    return {**queues, **index}


def _rows(work: Work, place: str) -> int:
    """The log's rows as Parquet; how many. As many as were read are there on return."""
    parts = log_parts(work.spark, work.log, work.options.part_bytes)
    read = Observation("read")
    rows = dispatched(parts, work.options.reading).observe(read, F.count(F.lit(1)).alias("rows"))
    rows.write.partitionBy("part").mode("overwrite").parquet(place)
    count = int(read.get["rows"])
    written = work.spark.read.schema("physicalOffset long").parquet(place).count()
    work.refuse("rows", count, written)
    return count


def _queues(work: Work, stored: DataFrame | None) -> dict[str, Any]:
    root = work.made / CONSUME_QUEUES
    # What an earlier run has made of some queues is removed: half of one cannot be recognised.
    _fresh(root)
    if stored is None:
        return {"queues": 0, "queue_files": 0, "units": 0, "went_back": 0}
    aside = _fresh(work.files.path(f"{work.target.partial}/queues"))
    found = queue_files(stored, work.made, aside, work.geometry.queues).collect()
    work.refuse("messages", queued(stored).count(), sum(row["messages"] for row in found))
    files = sum(row["files"] for row in found)
    work.refuse(
        "queue files", files, len(work.files.files_below(f"{work.target.made}/{CONSUME_QUEUES}"))
    )
    return {
        "queues": len(found),
        "queue_files": files,
        "units": sum(row["units"] for row in found),
        "went_back": sum(row["wentBack"] for row in found),
    }


def _index(work: Work, stored: DataFrame | None) -> dict[str, Any]:
    made = _fresh(work.made / INDEX)
    sizes = IndexGeometry(work.geometry.index_slots, work.geometry.index_items)
    by_part = items_by_part(stored) if stored is not None else {}
    plans = plan_files(by_part, sizes.items_per_file)
    if not plans:
        return {"index_files": 0, "items": 0}
    aside = _fresh(work.files.path(f"{work.target.partial}/index"))
    rows = work.files.path(work.rows)
    built = index_files(work.spark, rows, plans, sizes, aside).collect()
    found = sorted(built, key=lambda row: row["number"])
    items = sum(row["items"] for row in found)
    work.refuse("index items", sum(by_part.values()), items)
    there = sum((aside / str(row["number"])).is_file() for row in found)
    work.refuse("index files", len(plans), there)
    for row, name in zip(found, name_files([row["beginTimestamp"] for row in found]), strict=True):
        (aside / str(row["number"])).rename(made / name)
    sync(made)
    return {"index_files": len(found), "items": items}


def _fresh(directory: Path) -> Path:
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir(parents=True)
    return directory
