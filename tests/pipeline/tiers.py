"""Tiers for the source and the jobs, filled by `stratamq tier backfill`."""

import shutil
from pathlib import Path

from stratamq.cli.tier_backfill import backfill
from stratamq.formats.store_paths import COMMIT_LOG
from stratamq.tier.containers.place import broker_folder
from stratamq.tier.driver.opening import open_storage
from stratamq.tier.driver.storage import run
from stratamq.tier.reading.verify import queues_of
from stratamq.tier.writing.claim import claim
from stratamq.tier.writing.collecting import OFFLINE_GENERATION
from stratamq.tier.writing.index_writer import IndexWriter
from stratamq.tier.writing.intake import goes_into_tier

STORE = "5.5.1-small-clean"
CLUSTER, BROKER = "DefaultCluster", "broker-a"
NOW_MS = 1_800_000_000_000


def in_tier(line) -> bool:
    return goes_into_tier(line["topic"])


def uploaded(store: Path, target: Path) -> Path:
    with open_storage(str(target), for_writing=broker_folder(CLUSTER, BROKER)) as storage:
        backfill(store, storage, CLUSTER, BROKER, [])
    return target


def cut_log(store: Path, into: Path, segments: int) -> Path:
    """A store with the first segments alone."""
    (into / COMMIT_LOG).mkdir(parents=True)
    (into / "config").mkdir()
    for path in sorted((store / COMMIT_LOG).iterdir())[:segments]:
        shutil.copy(path, into / COMMIT_LOG)
    return into


def without_place(rows):
    """Without what depends on where a message is."""
    kept = []
    for row in rows:
        properties = [pair for pair in row["properties"] if pair[0] != "__CRC32#"]
        others = ("physicalOffset", "msgId", "properties")
        kept.append({**{name: row[name] for name in row if name not in others},
                     "properties": properties})  # fmt: skip
    return sorted(kept, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))


def indexed(target: Path) -> Path:
    """With a key index of everything in it."""
    with open_storage(str(target), for_writing=broker_folder(CLUSTER, BROKER)) as storage:
        epoch = run(claim(CLUSTER, BROKER, OFFLINE_GENERATION), storage)
        index = IndexWriter(CLUSTER, BROKER, epoch, storage.positions, most_items=400)
        run(index.open(), storage)
        for place in run(queues_of(CLUSTER, BROKER), storage):
            run(index.catch_up(place), storage)
        run(index.flush(), storage)
    return target
