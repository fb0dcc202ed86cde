"""`audit`: every frame, queue unit and index item of a store against each other.

    faults(spark, store) gives the DataFrame: file, position, kind, consequence, detail

Nothing is changed. The log is read twice: once for what cannot be read, once for what can.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from stratamq.files.real import RealFiles
from stratamq.formats.log_damage import next_frame
from stratamq.formats.store_paths import COMMIT_LOG
from stratamq.store.confirmed import confirmed_end
from stratamq.table.log_files import LogFiles
from stratamq_pipeline.audit.faults import FAULTS, fault, summarize, write
from stratamq_pipeline.audit.index import index_file_faults, index_items, item_faults
from stratamq_pipeline.audit.queues import as_faults, gaps, queue_units, standing, unit_faults
from stratamq_pipeline.audit.store import AuditedStore, look_at
from stratamq_pipeline.jobs.dispatched import (
    FrameReading,
    damage,
    dispatched,
    log_parts,
    spark_schema,
)
from stratamq_pipeline.jobs.geometry import GeometryOptions
from stratamq_pipeline.jobs.output_files import open_output
from stratamq_pipeline.jobs.session import SparkOptions, spark_session
from stratamq_pipeline.jobs.summary import Progress, Summary, silent
from stratamq_pipeline.jobs.target import Target

_LOOK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class AuditOptions:
    log: str
    out: str | None = None
    """A directory for all faults as Parquet."""
    geometry: GeometryOptions = field(default_factory=GeometryOptions)
    reading: FrameReading = field(default_factory=FrameReading)
    part_bytes: int = 128 << 20
    dry_run: bool = False


def run_audit(options: AuditOptions, spark: SparkOptions, progress: Progress = silent) -> Summary:
    """`failed` when there is a fault. InvalidRequestError when `out` is there already, or is not
    one directory to the driver and all workers."""
    store = look_at(options.log, options.geometry)
    facts: dict[str, Any] = {
        "log": os.fspath(store.root),
        "begin_offset": store.log.minimum,
        "end_offset": store.log.end,
        "queue_files": len(store.queue_files),
        "index_files": len(store.index_files),
        "dry_run": options.dry_run,
    }
    summary = Summary("audit", facts)
    if options.dry_run:
        return summary
    with spark_session("pipeline audit", spark) as session:
        target = Target(open_output(session, options.out)) if options.out else None
        if target is not None:
            target.check_shared(session)
        progress("holding frames, units and items against each other")
        with faults(session, store, options.reading, options.part_bytes) as found:
            summarize(summary, found)
            if target is not None:
                progress("writing the faults")
                write(session, target, found, summary.facts["faults"])
    return summary


@contextmanager
def faults(
    spark: SparkSession, store: AuditedStore, reading: FrameReading, part_bytes: int = 128 << 20
) -> Iterator[DataFrame]:
    """Every fault of the store, a row each. What was read of the log is kept until the end."""
    log, geometry = store.log, store.geometry
    known = store.faults + list(behind_the_end(store))
    schema = spark_schema(FAULTS)
    found = spark.createDataFrame([tuple(row.values()) for row in known], schema)  # type: ignore[type-var]
    permissive = FrameReading(reading.delay_levels_ms, permissive=True, tag_hashes=True)
    rows = dispatched(log_parts(spark, log, part_bytes), permissive).persist()
    damaged = damage(log_parts(spark, log, part_bytes)).persist()
    messages = standing(rows)
    minimum, end = log.minimum, log.end
    file_bytes = geometry.queues.file_bytes
    units = queue_units(spark, store.root, store.queue_files, file_bytes)
    items = index_items(spark, store.root, store.index_files, geometry.index_slots)
    parts = [
        as_faults(
            damaged,
            _segment_of(log, F.col("startOffset")),
            _position_of(log, F.col("startOffset")),
            F.lit("frame-damaged"),
            F.format_string("%d bytes: %s", F.expr("endOffset - startOffset"), "reason"),
        ),
        _in_log(log, gaps(messages, damaged)),
        unit_faults(
            messages,
            units,
            damaged,
            geometry.queues,
            minimum=minimum,
            end=end,
            dispatched_to=store.queue_end,
        ),
        index_file_faults(
            spark, store.root, store.index_files, geometry.index_slots, geometry.index_items
        ),
        item_faults(rows, items, damaged, minimum=minimum, end=end, indexed_to=store.index_end),
    ]
    for part in parts:
        found = found.unionByName(part)
    found.persist()
    try:
        yield found
    finally:
        for kept in (found, rows, damaged):
            kept.unpersist()


def behind_the_end(store: AuditedStore) -> list[dict[str, object]]:
    """Whole frames behind the end of an untrusted log: RocketMQ would cut them."""
    if confirmed_end(RealFiles(store.root)) is not None:
        return []
    log = store.log
    for segment in log.segments:
        position = max(log.end, segment.start)
        with open(segment.path, "rb") as file:
            while position < segment.end:
                file.seek(position - segment.start)
                data = file.read(_LOOK_BYTES)
                found = next_frame(data, position, segment.end) if len(data) > 8 else None
                if found is not None:
                    name = os.fspath(Path(segment.path).relative_to(store.root))
                    detail = f"the log ends at {log.end}, and a frame begins at {position + found}"
                    return [fault(name, log.end - segment.start, "log-ends-early", detail)]
                if len(data) <= 64:
                    break
                position += len(data) - 64
    return []


def _in_log(log: LogFiles, rows: DataFrame) -> DataFrame:
    place = F.col("physicalOffset")
    return as_faults(
        rows, _segment_of(log, place), _position_of(log, place), F.col("kind"), F.col("d")
    )


def _segment_of(log: LogFiles, offset: Any) -> Any:
    start = offset - _position_of(log, offset)
    return F.format_string(f"{COMMIT_LOG}/%020d", start)


def _position_of(log: LogFiles, offset: Any) -> Any:
    """All segments but the last have one size."""
    size = log.segments[0].size if log.segments else 1
    return offset % F.lit(size)
