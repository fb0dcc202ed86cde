"""`stratamq tier backfill`: what a broker's log has, copied into a tier."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import NotFoundError
from stratamq.files.real import RealFiles
from stratamq.formats.dispatch import dispatch_columns
from stratamq.formats.tier_manifest import Manifest
from stratamq.store.hidden_messages import hidden_messages
from stratamq.store.log_pieces import next_frames
from stratamq.table.log_files import SegmentPart, open_log
from stratamq.tier.containers.place import TierLimits
from stratamq.tier.driver.storage import Storage, run
from stratamq.tier.reading.manifests import load_manifests
from stratamq.tier.reading.verify import queues_of
from stratamq.tier.writing.backfill import Backfill
from stratamq.tier.writing.claim import claim
from stratamq.tier.writing.collecting import OFFLINE_GENERATION
from stratamq.tier.writing.intake import Intake, IntakeLimits, goes_into_tier
from stratamq.tier.writing.lives import Lives

if TYPE_CHECKING:
    from stratamq.files.port import File

_FRAMES_AT_ONCE = 4096


def backfill(
    store: Path, storage: Storage, cluster: str, broker: str, topics: list[str]
) -> tuple[int, list[Manifest]]:
    """Messages that the tier did not have, and the manifests of all queues of the broker.

    Purged messages and deleted topics are left out; if a queue was reset, only messages since the
    reset are copied. Raises OtherMessagesError if the tier has another log's messages.
    """
    log = open_log(store)
    if not log.segments:
        raise NotFoundError(f"the log of {store} is empty")
    lives = _look_through(log.parts())
    if missing := sorted(set(topics) - lives.topics):
        raise NotFoundError(f"the log of {store} has no message of {', '.join(missing)}")

    def wanted(topic: str) -> bool:
        return goes_into_tier(topic) and (not topics or topic in topics)

    floor = hidden_messages(RealFiles(store)).floor
    epoch = run(claim(cluster, broker, OFFLINE_GENERATION), storage)
    intake = Intake(IntakeLimits(wait_ms=1 << 60), wanted, floor, lives.begins)
    work = Backfill(cluster, broker, epoch, storage.positions, TierLimits(), intake)
    added = 0
    for part in log.parts():
        for data, base, lengths in _frames(part):
            intake.add(data, base, dispatch_columns(data, base, lengths), 0)
            added += _commit(work, storage, everything=False)
        print(f"read up to log offset {part.end}, {added} messages added so far", file=sys.stderr)
    added += _commit(work, storage, everything=True)
    for topic in sorted(intake.unnamable):
        print(f"left out, no path can have its name: topic {topic!r}", file=sys.stderr)
    places = run(queues_of(cluster, broker), storage)
    return added, run(load_manifests(places), storage)


def _look_through(parts: list[SegmentPart]) -> Lives:
    lives = Lives()
    for part in parts:
        for data, base, lengths in _frames(part):
            lives.add(dispatch_columns(data, base, lengths))
    return lives


def _commit(work: Backfill, storage: Storage, *, everything: bool) -> int:
    return sum(one.added for one in run(work.commit_due(everything=everything), storage))


def _frames(part: SegmentPart) -> Iterator[tuple[bytes, int, NDArray[np.uint32]]]:
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
