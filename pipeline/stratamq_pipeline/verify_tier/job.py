"""`verify-tier`: every record, unit and index item of a tier, and its messages against the log's.

Manifests are read by a task each, records by chunks of 64 MiB, index files by a task each; keys and
items, and messages of tier and log, meet by topic and queue. The rules are those of `stratamq tier
verify`. Nothing is changed.
"""

import os
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from stratamq.errors import CorruptionError, NotFoundError
from stratamq.formats.tier_index_manifest import IndexManifest
from stratamq.table.log_files import LogFiles
from stratamq.table.tier_parts import TierName, chosen_broker
from stratamq.tier.driver.opening import open_storage
from stratamq.tier.driver.running import Runner
from stratamq.tier.reading.key_index import index_place, load_index
from stratamq.tier.reading.queue_list import load_queue_list, missing_queues
from stratamq.tier.reading.verify import queues_of
from stratamq_pipeline.audit.faults import CONSEQUENCES, FAULTS, summarize, write
from stratamq_pipeline.jobs.dispatched import log_parts, one_each, spark_schema, tasks_for
from stratamq_pipeline.jobs.output_files import open_output
from stratamq_pipeline.jobs.session import SparkOptions, spark_session
from stratamq_pipeline.jobs.summary import Progress, Summary, silent
from stratamq_pipeline.jobs.target import Target
from stratamq_pipeline.same_file import log_for_workers
from stratamq_pipeline.tier_view import THREADS, target_for_workers
from stratamq_pipeline.verify_tier import comparing
from stratamq_pipeline.verify_tier.reading import (
    ROWS,
    TierOfBroker,
    look_at_queues,
    read_chunks,
    read_index_files,
    read_log,
)

_QUEUES_OF_A_TASK = 200
_NUMBER = pa.field("number", pa.int64())


@dataclass(frozen=True, slots=True)
class VerifyTierOptions:
    tier: str
    cluster: str | None = None
    broker: str | None = None
    log: str | None = None
    """A store's directory, whose log the messages are compared with."""
    out: str | None = None
    """A directory for all faults as Parquet."""
    part_bytes: int = 128 << 20
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class LookedAt:
    """What the driver reads of a tier."""

    tier: TierOfBroker
    queues: tuple[tuple[str, int], ...]
    index: IndexManifest | None
    index_fault: str


def run_verify_tier(
    options: VerifyTierOptions, spark: SparkOptions, progress: Progress = silent
) -> Summary:
    """`failed` when there is a fault. NotFoundError; InvalidRequestError when workers do not see
    the tier or the log, or `out` is there already."""
    log = log_for_workers(options.log) if options.log else None
    found = look_at(options)
    files = found.index.files if found.index else ()
    facts: dict[str, Any] = {
        "tier": found.tier.target,
        "cluster": found.tier.cluster,
        "broker": found.tier.broker,
        "queues": len(found.queues),
        "index_files": len(files),
        "index_items": sum(file.items for file in files),
        "dry_run": options.dry_run,
    }
    summary = Summary("verify-tier", facts)
    if options.dry_run:
        return summary
    with spark_session("pipeline verify-tier", spark) as session:
        target = Target(open_output(session, options.out)) if options.out else None
        if target is not None:
            target.check_shared(session)
        progress("reading records, units and index items")
        with closing(_Verification(session, found, log, options.part_bytes)) as work:
            facts |= work.figures()
            faults = work.faults().persist()
            summarize(summary, faults)
            if target is not None:
                progress("writing the faults")
                write(session, target, faults, facts["faults"])
            faults.unpersist()
    return summary


def look_at(options: VerifyTierOptions) -> LookedAt:
    """NotFoundError when there is no such tier."""
    target = target_for_workers(options.tier)
    if "://" not in target and not os.path.isdir(target):
        raise NotFoundError(f"there is no directory {target}")
    with open_storage(target) as storage, closing(Runner(storage, THREADS)) as runner:
        name = TierName(target, options.cluster, options.broker)
        tier = TierOfBroker(target, *runner.run(chosen_broker(name)))
        listed = runner.run(load_queue_list(tier.cluster, tier.broker))
        places = runner.run(queues_of(tier.cluster, tier.broker))
        gone = missing_queues(tier.cluster, tier.broker, listed, places)
        tier = replace(tier, listed=frozenset(listed))
        index, fault = None, ""
        try:
            index = runner.run(load_index(tier.cluster, tier.broker))
        except CorruptionError as error:
            fault = f"{index_place(tier.cluster, tier.broker).manifest}: {error.message}"
    return LookedAt(
        tier, tuple((place.topic, place.queue_id) for place in (*places, *gone)), index, fault
    )


class _Verification:
    """DataFrames of one run; what executors have read is kept until `close`."""

    def __init__(
        self, spark: SparkSession, found: LookedAt, log: LogFiles | None, part_bytes: int
    ) -> None:
        self._spark = spark
        self._found = found
        rows = [("", *queue, 0, 0, "") for queue in found.queues]
        self._queues = self._read(rows, look_at_queues(found.tier), _QUEUES_OF_A_TASK).persist()
        chunks = self._queues.where("kind = 'chunk'")
        tasks = max(tasks_for(spark, 0), chunks.count())
        covered = found.index.covered if found.index else {}
        read = read_chunks(found.tier, covered, digests=log is not None)
        schema = spark_schema(ROWS)
        self._records = chunks.repartition(tasks).mapInArrow(read, schema).persist()
        self._items = self._index_items().persist()
        keys, items = self._of("key"), self._items.where("kind = 'item'")
        self._keys = comparing.key_counts(keys, items)
        self._states = None
        if log is not None:
            of_log = log_parts(spark, log, part_bytes).mapInArrow(read_log, schema)
            ends = self._queues.where("kind = 'queue'")
            states = comparing.beside_the_log(self._of("message"), of_log, ends)
            self._states = states.persist()

    def figures(self) -> dict[str, Any]:
        counts = self._of("count").agg(F.sum("position"), F.sum("value")).collect()[0]
        lost = self._queues.where("kind = 'lost'").agg(F.sum("position")).collect()[0][0]
        stale = self._keys.where("key = 0").agg(F.sum("items")).collect()[0][0]
        figures = {
            "messages": counts[0] or 0,
            "bytes": counts[1] or 0,
            "lost": lost or 0,
            "keys": self._keys.where("key = 1").count(),
            "stale_items": stale or 0,
        }
        if self._states is not None:
            rows = self._states.groupBy("state").count().collect()
            states = {row["state"]: row["count"] for row in rows}
            figures |= {"in_both": states.get("same", 0), "waiting": states.get("waiting", 0)}
        return figures

    def faults(self) -> DataFrame:
        """Return the faults with the columns of `audit.faults.FAULTS`."""
        found = self._known_faults()
        for rows in (self._queues, self._records, self._items):
            found = found.unionByName(rows.where("kind LIKE 'tier-%'"))
        found = found.unionByName(comparing.missing_keys(self._keys))
        if self._states is not None:
            found = found.unionByName(comparing.differences(self._states))
        consequences = F.create_map(
            *(F.lit(word) for pair in CONSEQUENCES.items() for word in pair)
        )
        of_queue = F.concat_ws("/", F.lit(self._found.tier.broker), "topic", "queueId")
        of_file = F.col("kind") == "tier-index-file"
        return found.select(
            F.when(of_file, F.col("topic")).otherwise(of_queue).alias("file"),
            "position",
            "kind",
            consequences[F.col("kind")].alias("consequence"),
            "detail",
        ).select(*FAULTS.names)

    def close(self) -> None:
        for kept in (self._queues, self._records, self._items, self._states):
            if kept is not None:
                kept.unpersist()

    def _of(self, kind: str) -> DataFrame:
        return self._records.where(F.col("kind") == kind)

    def _index_items(self) -> DataFrame:
        index = self._found.index
        files = {file.name: file for file in index.files} if index else {}
        topics = {number: topic for topic, number in index.topics.items()} if index else {}
        rows = [("", "", 0, 0, 0, name) for name in files]
        return self._read(rows, read_index_files(self._found.tier, files, topics), 1)

    def _known_faults(self) -> DataFrame:
        """What the manifest of the index says by itself."""
        index, rows = self._found.index, []
        if self._found.index_fault:
            rows.append(("tier-index-file", "index", 0, 0, 0, self._found.index_fault))
        for topic, queue_id in index.covered if index else ():
            if index is not None and topic not in index.topics:
                sentence = f"the index has no number for the topic {topic}"
                rows.append(("tier-index-file", topic, queue_id, 0, 0, sentence))
        return self._spark.createDataFrame(rows, spark_schema(ROWS))

    def _read(self, rows: list[Any], function: Any, of_a_task: int) -> DataFrame:
        numbered = [(number, *row) for number, row in enumerate(rows)]
        schema = ROWS.insert(0, _NUMBER)
        frame = one_each(self._spark, numbered, schema, -(-len(rows) // of_a_task) or None)
        return frame.drop("number").mapInArrow(function, spark_schema(ROWS))
