"""`stats`: rates, sizes, keys, tags, producers and gaps of a log, by topic and time."""

import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from stratamq.errors import InvalidRequestError
from stratamq_pipeline.jobs.messages import Wanted, messages, open_log_to_read
from stratamq_pipeline.jobs.session import SparkOptions, spark_session
from stratamq_pipeline.jobs.summary import Progress, Summary, silent
from stratamq_pipeline.log_view import LogView
from stratamq_pipeline.stats import tables
from stratamq_pipeline.stats.figures import Figures, Rows, bucket_for

MAX_GAPS = 200


@dataclass(frozen=True, slots=True)
class StatsOptions:
    log: str
    """A store's directory, or the address of a running broker."""
    html: str | None = None
    topics: tuple[str, ...] = ()
    most: int = 20
    """Rows of what is listed by frequency."""
    part_bytes: int = 128 << 20
    dry_run: bool = False
    broker: str | None = None
    """The one to read where brokers of several names are at the address."""


def run_stats(options: StatsOptions, spark: SparkOptions, progress: Progress = silent) -> Summary:
    """The page is there as a whole or not at all; one that was there is replaced."""
    place = Path(options.html).absolute() if options.html else None
    if place is not None and not place.parent.is_dir():
        raise InvalidRequestError(f"there is no directory {place.parent}")
    if options.dry_run:
        with closing(open_log_to_read(options.log, options.broker)) as log:
            return _summary(log, options)
    with (
        spark_session("pipeline stats", spark) as session,
        closing(open_log_to_read(options.log, options.broker)) as log,
    ):
        summary = _summary(log, options)
        found = figures(session, log, options, progress)
    facts = summary.facts
    if place is not None:
        from stratamq_pipeline.stats.page import page

        progress("drawing")
        _replace(place, page(found))
        facts["html"] = os.fspath(place)
    facts["messages"] = sum(row["messages"] for row in found.topics)
    facts["bytes"] = sum(row["bytes"] for row in found.topics)
    facts["queue_gaps"] = len(found.gaps)
    summary.rows_title = "topics"
    summary.rows = [_shown(row) for row in found.topics]
    return summary


def _summary(log: LogView, options: StatsOptions) -> Summary:
    facts: dict[str, Any] = {
        "log": options.log,
        "begin_offset": log.minimum,
        "end_offset": log.end,
        "dry_run": options.dry_run,
    }
    return Summary("stats", facts)


def figures(
    spark: SparkSession, log: LogView, options: StatsOptions, progress: Progress = silent
) -> Figures:
    """One pass over the log; what is needed of it is kept while the tables are made."""
    wanted = Wanted((log.minimum, log.end), tables.COLUMNS, options.topics)
    found = Figures(options.log, log.minimum, log.end)
    rows = messages(spark, log, wanted, options.part_bytes).persist()
    try:
        progress("reading the log")
        found.topics = _rows(tables.topics(rows))
        if not found.topics:
            return found
        first = min(row["first"] for row in found.topics)
        last = max(row["last"] for row in found.topics)
        found.bucket_ms = bucket_for(round((last - first).total_seconds() * 1000))
        progress("counting")
        most = options.most
        found.times = _rows(tables.times(rows, found.bucket_ms))
        found.sizes = _rows(tables.sizes(rows))
        found.tags = _rows(tables.tags(rows, most))
        found.keys = _rows(tables.keys(rows, most))
        found.producers = _rows(tables.producers(rows, most))
        found.gaps = _rows(tables.queue_gaps(rows).limit(MAX_GAPS))
        found.silences = _rows(tables.silences(rows, most))
    finally:
        rows.unpersist()
    return found


def _rows(frame: DataFrame) -> Rows:
    return [row.asDict() for row in frame.collect()]


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "topic": row["topic"],
        "messages": row["messages"],
        "bytes": row["bytes"],
        "queues": row["queues"],
        "median_size": row["medianSize"],
        "p99_size": row["p99Size"],
        "keys": row["keys"],
        "producers": row["producers"],
        "per_second": row["messagesPerSecond"],
    }


def _replace(place: Path, text: str) -> None:
    partial = place.with_name(place.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, place)
