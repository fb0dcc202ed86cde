"""What is done to the tier beside uploads: retention by topic, the objects that left, RocketMQ's
metadata. One round after the other, while this service writes.
"""

import asyncio
import logging
from functools import partial
from operator import methodcaller

from stratamq.errors import StrataError
from stratamq.follow.followed_topics import Export
from stratamq.formats.replication_metadata import NO_MARK, MetadataKind
from stratamq.formats.store_paths import TIER_METADATA_PATH
from stratamq.formats.tier_manifest import Manifest
from stratamq.tier.consumer_offsets import ConsumerOffsetsCopy
from stratamq.tier.writing.claim import FencedError
from stratamq.tier.writing.export import MetadataExport
from stratamq.tier.writing.intake import QueueKey
from stratamq.tier.writing.retention import plan_expiry
from stratamq_tier.indexing import Indexing
from stratamq_tier.parts import Parts
from stratamq_tier.tenure import Tenure

log = logging.getLogger(__name__)

EXPORT_INTERVAL_S = 10.0
_INCARNATION_BYTES = 8
"""A mark begins with what start of its owner it is of."""
EXPORT_SHARE = 20
"""The export takes at most this part of the time: it grows with the queues."""
ORPHANS_AGE_MS = 86_400_000
"""What nothing names is deleted so long after it was written."""


async def expire(parts: Parts, tenure: Tenure, now_ms: int) -> int:
    """Take out what is too old or was purged, delete what was taken out before the grace time. How
    many segments were taken out. FencedError."""
    before_ms = now_ms - parts.config.grace_ms
    expired = 0
    for manifest in parts.table.manifests():
        key = manifest.key
        retention_ms, floor = parts.config.retention_ms(manifest.topic), parts.floor(key)
        gone = 0
        try:
            if min(floor, manifest.end_offset) > manifest.minimum:
                gone = await tenure.writers.run(key, methodcaller("purge", floor, now_ms))
            if retention_ms is not None and _has_old(manifest, now_ms - retention_ms):
                gone += await tenure.writers.run(
                    key, methodcaller("expire", now_ms - retention_ms, now_ms)
                )
            if gone:
                log.info(
                    "segments left the tier",
                    extra={"topic": key[0], "queue": key[1], "segments": gone},
                )
                expired += gone
            if any(one.since_ms < before_ms for one in manifest.dropped):
                await tenure.writers.run(key, methodcaller("collect", before_ms))
        except FencedError:
            raise
        except StrataError as error:
            log.warning(
                "retention in the tier failed, and is tried again",
                extra={"topic": key[0], "queue": key[1], "reason": str(error)},
            )
        await asyncio.sleep(0)
    return expired


def _has_old(manifest: Manifest, older_than_ms: int) -> bool:
    return any(fate.goes for fate in plan_expiry(manifest, older_than_ms)[:1])


async def expire_regularly(parts: Parts, tenure: Tenure) -> None:
    """Until it is cancelled. FencedError.

    A round goes by one reading of the wall clock, and deletes nothing unless the log, asked after
    the reading, believes the clock. Example: set forward by four days, everything in the tier would
    be older than its retention of three.
    """
    sweeping, reported = Sweeping(parts, tenure), ""
    while True:
        await asyncio.sleep(parts.config.retention_interval_ms / 1000)
        now_ms = parts.clock.wall_ms()
        doubt = await _doubt(parts)
        if doubt and not reported:
            log.error("tier retention suspended", extra={"reason": doubt})
        reported = doubt
        if doubt:
            continue
        await expire(parts, tenure, now_ms)
        await sweeping.sweep(now_ms)
        if tenure.indexing is not None:
            await expire_index(parts, tenure.indexing, now_ms)


async def _doubt(parts: Parts) -> str:
    try:
        return await parts.clock_doubt()
    except StrataError as error:
        return f"whether the log believes the wall clock is not known: {error}"


async def expire_index(parts: Parts, indexing: Indexing, now_ms: int) -> None:
    """Index files whose messages have all left, and files that were merged. FencedError."""
    retention_ms = parts.config.index_retention_ms
    try:
        if retention_ms is not None:
            await indexing.expire(now_ms - retention_ms, now_ms)
        await indexing.collect(now_ms - parts.config.grace_ms)
        await indexing.sweep(now_ms - ORPHANS_AGE_MS)
    except FencedError:
        raise
    except StrataError as error:
        log.warning(
            "retention of the tier's key index failed, and is tried again",
            extra={"reason": str(error)},
        )


async def copy_consumer_offsets(parts: Parts, tenure: Tenure, export: Export) -> None:
    """Keep consumer groups' offsets in the tier, until it is cancelled. FencedError."""
    copy = ConsumerOffsetsCopy(parts.config.cluster, parts.broker, tenure.epoch)
    mark, failing = NO_MARK, False
    while True:
        try:
            mark = await _take_offsets(copy, export, mark)
            if copy.changed:
                await parts.runner.start(copy.store(parts.clock.wall_ms()))
            failing = False
        except FencedError:
            raise
        except StrataError as error:
            if not failing:
                log.warning(
                    "consumer offsets are not in the tier yet", extra={"reason": str(error)}
                )
            failing = True
        await asyncio.sleep(parts.config.consumer_offsets_interval_ms / 1000)


async def _take_offsets(copy: ConsumerOffsetsCopy, export: Export, mark: bytes) -> bytes:
    """All that is new behind `mark`; the next mark."""
    while True:
        page = await export(MetadataKind.CONSUMER_OFFSETS, mark)
        if mark == NO_MARK or page.mark[:_INCARNATION_BYTES] != mark[:_INCARNATION_BYTES]:
            # The dispatcher has restarted, and gives everything from the beginning.
            copy.begin_again()
        if page.document:
            copy.take(page.document)
        mark = page.mark
        if not page.more:
            return mark


class RegularExport:
    """RocketMQ's metadata file of the store, from the manifests."""

    def __init__(self, parts: Parts, indexing: Indexing | None) -> None:
        self._parts = parts
        self._indexing = indexing
        self._export = MetadataExport(parts.files)
        self._written = 0, 0
        """Revisions of the table and the key index that it was made from."""

    async def run(self) -> None:
        """Until it is cancelled; then what changed is written once more."""
        pause_s = EXPORT_INTERVAL_S
        clock = self._parts.clock
        try:
            while True:
                await asyncio.sleep(pause_s)
                begun_ns = clock.monotonic_ns()
                await self.write()
                took_s = (clock.monotonic_ns() - begun_ns) / 1e9
                pause_s = max(EXPORT_INTERVAL_S, EXPORT_SHARE * took_s)
        finally:
            await self.write()

    async def write(self) -> None:
        """Nothing, unless a manifest has changed."""
        index = self._indexing.manifest if self._indexing is not None else None
        revisions = self._parts.table.revision, index.revision if index is not None else 0
        if revisions == self._written:
            return
        manifests, now_ms = self._parts.table.manifests(), self._parts.clock.wall_ms()
        try:
            await self._parts.reading.run(partial(self._export.write, manifests, now_ms, index))
        except OSError as error:
            log.warning(
                "RocketMQ's metadata of the tier cannot be written",
                extra={"file": TIER_METADATA_PATH, "error": str(error)},
            )
            return
        self._written = revisions


class Sweeping:
    """Deletes what crashes left in the tier, during one tenure: each queue is looked at once a day.

    A pass lists the objects of some queues: as many as make all of them in a day. Nothing of a
    queue without a manifest is deleted: its next message gives it one.
    """

    def __init__(self, parts: Parts, tenure: Tenure) -> None:
        self._parts = parts
        self._tenure = tenure
        self._due: list[QueueKey] = []

    async def sweep(self, now_ms: int) -> int:
        """One pass: how many objects were deleted. FencedError."""
        if not self._due:
            self._due = [one.key for one in self._parts.table.manifests()]
        share = self._parts.config.retention_interval_ms / ORPHANS_AGE_MS
        count = 1 + int(len(self._parts.table) * share)
        looked, self._due = self._due[:count], self._due[count:]
        before_ms = now_ms - ORPHANS_AGE_MS
        deleted = 0
        for key in looked:
            try:
                gone = await self._tenure.writers.run(key, methodcaller("tidy", before_ms))
            except FencedError:
                raise
            except StrataError as error:
                log.warning(
                    "the tier was not swept, and is tried again tomorrow",
                    extra={"topic": key[0], "queue": key[1], "reason": str(error)},
                )
                continue
            deleted += len(gone)
            if gone:
                log.info(
                    "what a crash had left in the tier was deleted",
                    extra={"topic": key[0], "queue": key[1], "objects": len(gone)},
                )
        return deleted
