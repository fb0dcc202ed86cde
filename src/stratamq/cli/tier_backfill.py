"""`stratamq tier backfill`: what a broker's log has, copied into a tier."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import NotFoundError
from stratamq.files.clock import SystemClock
from stratamq.files.real import RealFiles
from stratamq.formats.dispatch import dispatch_columns
from stratamq.formats.tier_manifest import Manifest
from stratamq.formats.tier_metadata import METADATA_NAME, TierMetadata, format_tier_metadata
from stratamq.store.frame_windows import next_frames
from stratamq.table.log_files import Part, open_log
from stratamq.tier.containers.place import TierLimits
from stratamq.tier.driver.storage import Storage, run
from stratamq.tier.reading.rocketmq import read_metadata
from stratamq.tier.writing.backfill import Backfill
from stratamq.tier.writing.claim import claim
from stratamq.tier.writing.collecting import OFFLINE_GENERATION
from stratamq.tier.writing.export import metadata_of
from stratamq.tier.writing.intake import Intake, IntakeLimits, goes_into_tier

if TYPE_CHECKING:
    from stratamq.files.port import File

_FRAMES_AT_ONCE = 4096


def backfill(
    store: Path, storage: Storage, cluster: str, broker: str, topics: list[str]
) -> tuple[int, list[Manifest]]:
    """Messages that the tier did not have, and the manifests of all queues that were met."""
    log = open_log(store)
    if not log.segments:
        raise NotFoundError(f"the log of {store} is empty")

    def wanted(topic: str) -> bool:
        return goes_into_tier(topic) and (not topics or topic in topics)

    epoch = run(claim(cluster, broker, OFFLINE_GENERATION), storage)
    intake = Intake(IntakeLimits(wait_ms=1 << 60), wanted)
    work = Backfill(cluster, broker, epoch, storage.positions, TierLimits(), intake)
    added = 0
    for part in log.parts():
        for data, base, lengths in _frames(part):
            intake.add(data, base, dispatch_columns(data, base, lengths), 0)
            added += _commit(work, storage, everything=False)
        print(f"read up to log offset {part.end}, {added} messages added", file=sys.stderr)
    added += _commit(work, storage, everything=True)
    return added, list(work.manifests())


def export_metadata(path: Path, manifests: list[Manifest]) -> None:
    """RocketMQ's metadata file in a store directory: topics keep the ids that it has."""
    target = path / "config" / METADATA_NAME
    known = read_metadata(target.read_bytes(), None) if target.exists() else TierMetadata()
    ids = {name: topic.topic_id for name, topic in known.topics.items()}
    following = known.topic_serial_number + 1
    for topic in sorted({manifest.topic for manifest in manifests} - ids.keys()):
        ids[topic] = following
        following += 1
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(format_tier_metadata(metadata_of(manifests, ids, SystemClock().wall_ms())))


def _commit(work: Backfill, storage: Storage, *, everything: bool) -> int:
    return sum(one.added for one in run(work.commit_due(everything=everything), storage))


def _frames(part: Part) -> Iterator[tuple[bytes, int, NDArray[np.uint32]]]:
    """Frames of a part of the log, some at a time: bytes, log offset, lengths."""
    path = Path(part.path)
    file: File = RealFiles(path.parent).open(path.name)
    try:
        place = part.begin

        def window(offset: int, limit: int) -> bytes:
            return file.read(offset - part.segment_start, limit)

        while place < part.end:
            data, lengths = next_frames(window, place, part.end, _FRAMES_AT_ONCE)
            yield bytes(data), place, lengths
            place += int(lengths.sum())
    finally:
        file.close()
