"""`offload`: what the log of a store has, copied into a tier, each queue by one task.

The job claims the tier once; its workers commit under that epoch, through the manifests, as the
tier service does. What the tier has already is left out, so that a job that was broken off is begun
again. Nothing of the store is changed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.files.clock import SystemClock
from stratamq.files.real import RealFiles
from stratamq.formats.tier_manifest import Manifest
from stratamq.store.hidden_messages import hidden_messages
from stratamq.table.log_files import LogFiles
from stratamq.tier.containers.place import broker_folder
from stratamq.tier.driver.opening import open_storage
from stratamq.tier.driver.storage import Storage, run
from stratamq.tier.reading.manifests import load_manifests
from stratamq.tier.reading.verify import queues_of
from stratamq.tier.writing.backfill import check_copy
from stratamq.tier.writing.claim import claim
from stratamq.tier.writing.collecting import OFFLINE_GENERATION
from stratamq.tier.writing.export import MetadataExport
from stratamq.tier.writing.intake import QueueKey
from stratamq.tier.writing.lives import Life, Lives
from stratamq_pipeline.jobs.dispatched import PART_BYTES, log_parts, spark_schema
from stratamq_pipeline.jobs.session import SparkOptions, spark_session
from stratamq_pipeline.jobs.summary import Progress, Summary, silent
from stratamq_pipeline.offload.committing import (
    COMMITTED,
    LIVES,
    RECORDS,
    Offload,
    commit_queues,
    read_lives,
    read_records,
)
from stratamq_pipeline.same_file import log_for_workers
from stratamq_pipeline.tier_view import target_for_workers

ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_BATCH_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class OffloadOptions:
    log: str
    to: str
    cluster: str = "DefaultCluster"
    broker: str = "broker-a"
    topics: tuple[str, ...] = ()
    export: str | None = None
    """A store directory below which RocketMQ's metadata of the tier is written."""
    part_bytes: int = PART_BYTES
    dry_run: bool = False


def run_offload(
    options: OffloadOptions, spark: SparkOptions, progress: Progress = silent
) -> Summary:
    """NotFoundError, InvalidRequestError, also when workers do not see the log or the tier;
    FencedError when a service has claimed the tier; OtherMessagesError when it is another log's."""
    target = target_for_workers(options.to)
    export = Path(options.export) if options.export else None
    check_copy(Path(options.log), options.to, options.cluster, options.broker, export)
    log = log_for_workers(options.log)
    if not log.segments:
        raise NotFoundError(f"the log of {options.log} is empty")
    facts: dict[str, Any] = {
        "log": log.root,
        "begin_offset": log.minimum,
        "end_offset": log.end,
        "tier": target,
        "cluster": options.cluster,
        "broker": options.broker,
        "dry_run": options.dry_run,
    }
    summary = Summary("offload", facts)
    if options.dry_run:
        return summary
    folder = broker_folder(options.cluster, options.broker)
    # A directory's lock is the driver's as long as the job runs.
    with (
        spark_session("pipeline offload", spark) as session,
        small_batches(session),
        open_storage(target, for_writing=folder) as storage,
    ):
        manifests = _copy(session, options, target, log, storage, facts, progress)
    if export is not None:
        export.mkdir(parents=True, exist_ok=True)
        MetadataExport(RealFiles(export)).write(manifests, SystemClock().wall_ms())
    return summary


def _copy(
    spark: SparkSession,
    options: OffloadOptions,
    target: str,
    log: LogFiles,
    storage: Storage,
    facts: dict[str, Any],
    progress: Progress,
) -> list[Manifest]:
    progress("looking through the log")
    lives = read_all_lives(spark, log, options.part_bytes)
    if missing := sorted(set(options.topics) - lives.topics):
        raise NotFoundError(f"the log of {options.log} has no message of {', '.join(missing)}")
    before = _messages(_manifests(options, storage))
    epoch = run(claim(options.cluster, options.broker, OFFLINE_GENERATION), storage)
    work = Offload(
        target,
        options.cluster,
        options.broker,
        epoch,
        frozenset(options.topics),
        hidden_messages(RealFiles(Path(options.log))).floors,
        lives.begins,
    )
    progress("committing the messages of each queue")
    committed = offloaded(spark, log, work, options.part_bytes).collect()
    manifests = _manifests(options, storage)
    left_out = _check(work, lives, manifests)
    facts["queues"] = len(committed)
    facts["messages_added"] = _messages(manifests) - before
    facts["messages_in_tier"] = _messages(manifests)
    facts["topics_left_out"] = len(left_out)
    if left_out:
        progress(f"left out, no path can have their names: {', '.join(left_out[:20])}")
    return manifests


def read_all_lives(spark: SparkSession, log: LogFiles, part_bytes: int) -> Lives:
    """Read the queues' lives from the whole log; the driver receives a row for each queue in each
    part."""
    rows = log_parts(spark, log, part_bytes).mapInArrow(read_lives, spark_schema(LIVES))
    lives = Lives()
    for row in rows.orderBy("part").toLocalIterator():
        life = Life(row["first"], row["place"], row["end"], row["begins"])
        lives.join((row["topic"], row["queueId"]), life)
    return lives


def offloaded(spark: SparkSession, log: LogFiles, work: Offload, part_bytes: int) -> DataFrame:
    """Commits when it is read: a row for each queue. All messages of a queue are one task's."""
    parts = log_parts(spark, log, part_bytes)
    records = parts.mapInArrow(read_records(work), spark_schema(RECORDS))
    usual = int(spark.conf.get("spark.sql.shuffle.partitions", "4") or "4")
    tasks = max(usual, (log.end - log.minimum) // PART_BYTES)
    by_queue = records.repartition(tasks, "topic", "queueId")
    ordered = by_queue.sortWithinPartitions("topic", "queueId", "physicalOffset")
    return ordered.mapInArrow(commit_queues(work), spark_schema(COMMITTED))


@contextmanager
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Rows go to Python by size, too: a record may have 4 MiB."""
    before = spark.conf.get(ARROW_BYTES, None)
    spark.conf.set(ARROW_BYTES, str(_BATCH_BYTES))
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(ARROW_BYTES)
        else:
            spark.conf.set(ARROW_BYTES, before)


def _manifests(options: OffloadOptions, storage: Storage) -> list[Manifest]:
    places = run(queues_of(options.cluster, options.broker), storage)
    return run(load_manifests(places), storage)


def _messages(manifests: list[Manifest]) -> int:
    return sum(segment.count for one in manifests for segment in one.records)


def _check(work: Offload, lives: Lives, manifests: list[Manifest]) -> list[str]:
    """The driver sees in the tier what the workers committed, or InvalidRequestError. Topics whose
    names no path can have, by name."""
    ends: dict[QueueKey, int] = {one.key: one.end_offset for one in manifests}
    intake = work.intake()
    left_out = set()
    for key, life in lives.found.items():
        if not intake.takes(key[0]):
            if work.wants(key[0]):
                left_out.add(key[0])
        elif life.end > work.floors.get(key, 0) and ends.get(key, 0) < life.end:
            raise InvalidRequestError(
                f"queue {key[1]} of {key[0]} should reach offset {life.end} in the tier, and the "
                f"driver sees it end at {ends.get(key, 0)}: all workers have to write to what the "
                f"driver sees as {work.target}"
            )
    return sorted(left_out)
