"""`rebuild`: consume queues and index files from the log alone, into a fresh directory.

    stage    what is done                                      kept for a run that goes on
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

from pyspark.sql import SparkSession

from stratamq.errors import InvalidRequestError
from stratamq.formats.queue_paths import ROOT
from stratamq.table.log_files import LogFiles, open_log
from stratamq_pipeline.jobs.dispatched import Reading, dispatched, log_parts
from stratamq_pipeline.jobs.geometry import GeometryOptions, StoreGeometry, store_geometry
from stratamq_pipeline.jobs.session import SparkOptions, Tell, silent, spark_session
from stratamq_pipeline.jobs.summary import Summary
from stratamq_pipeline.jobs.target import Target, sync
from stratamq_pipeline.rebuild.index_files import (
    IndexGeometry,
    index_files,
    items_by_part,
    name_files,
    plan_files,
)
from stratamq_pipeline.rebuild.queue_files import queue_files

INDEX = "index"


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    log: str
    out: str
    geometry: GeometryOptions = field(default_factory=GeometryOptions)
    reading: Reading = field(default_factory=Reading)
    part_bytes: int = 128 << 20
    dry_run: bool = False


def run_rebuild(options: RebuildOptions, spark: SparkOptions, tell: Tell = silent) -> Summary:
    """Everything under `out` is whole and durable on return, or `out` is not there.

    InvalidRequestError and NotFoundError say what cannot be rebuilt; CorruptionError where the log
    is damaged: a queue with a hole is worth less than no queue.
    """
    target = Target(Path(options.out).absolute())
    log = open_log(options.log)
    if log.root is None:
        raise InvalidRequestError("rebuild reads a store's directory, not single files")
    geometry = store_geometry(Path(log.root), options.geometry)
    summary = _plan(options, log, geometry)
    if options.dry_run:
        return summary
    resumed = target.begin(_identity(options, log, geometry))
    if resumed:
        tell("going on with an earlier run")
    with spark_session("pipeline rebuild", spark) as session:
        facts = _run(session, options, log, geometry, target, tell)
    tell("publishing")
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


def _run(
    spark: SparkSession,
    options: RebuildOptions,
    log: LogFiles,
    geometry: StoreGeometry,
    target: Target,
    tell: Tell,
) -> dict[str, Any]:
    rows = target.partial / "rows"
    if target.finished("rows") is None:
        tell("reading the log")
        parts = log_parts(spark, log, options.part_bytes)
        dispatched(parts, options.reading).write.partitionBy("part").mode("overwrite").parquet(
            str(rows)
        )
        target.finish("rows", {})
    stored = spark.read.parquet(str(rows)) if log.end > log.minimum else None
    queues = target.finished("queues")
    if queues is None:
        tell("writing consume queues")
        queues = _queues(stored, geometry, target)
        target.finish("queues", queues)
    index = target.finished("index")
    if index is None:
        tell("writing index files")
        index = _index(spark, stored, rows, geometry, target)
        target.finish("index", index)
    return {**queues, **index}


def _queues(stored: Any, geometry: StoreGeometry, target: Target) -> dict[str, Any]:
    (target.made / ROOT).mkdir(exist_ok=True)
    if stored is None:
        return {"queues": 0, "queue_files": 0, "units": 0, "went_back": 0}
    work = _fresh(target.partial / "queues")
    # What an earlier run has made of some queues is thrown away: half of one cannot be told.
    shutil.rmtree(target.made / ROOT)
    (target.made / ROOT).mkdir()
    found = queue_files(stored, target.made, work, geometry.queues).collect()
    return {
        "queues": len(found),
        "queue_files": sum(row["files"] for row in found),
        "units": sum(row["units"] for row in found),
        "went_back": sum(row["wentBack"] for row in found),
    }


def _index(
    spark: SparkSession, stored: Any, rows: Path, geometry: StoreGeometry, target: Target
) -> dict[str, Any]:
    made = _fresh(target.made / INDEX)
    sizes = IndexGeometry(geometry.index_slots, geometry.index_items)
    plans = plan_files(items_by_part(stored), sizes.items_per_file) if stored is not None else []
    if not plans:
        return {"index_files": 0, "items": 0}
    work = _fresh(target.partial / "index")
    found = sorted(index_files(spark, rows, plans, sizes, work).collect(), key=lambda row: row[0])
    for row, name in zip(found, name_files([row["beginTimestamp"] for row in found]), strict=True):
        (work / str(row["number"])).rename(made / name)
    sync(made)
    return {"index_files": len(found), "items": sum(row["items"] for row in found)}


def _fresh(directory: Path) -> Path:
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir(parents=True)
    return directory
