"""The key index beside uploads: keys of what is committed, in memory first, in files now and then.

Indexing never holds up an upload. Batches wait here for their turn, up to `MAX_WAITING_BYTES`; of
a queue whose batches found no room, or were committed while nothing indexed, the records are read
from the tier.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from stratamq.errors import CorruptionError, StrataError
from stratamq.files.port import Clock
from stratamq.formats.tier_index_manifest import IndexManifest
from stratamq.formats.tier_manifest import Manifest
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.driver.calls import Procedure
from stratamq.tier.driver.running import Runner
from stratamq.tier.reading.key_index import KeyIndex
from stratamq.tier.writing.batch import TierBatch
from stratamq.tier.writing.claim import FencedError
from stratamq.tier.writing.index_writer import IndexWriter
from stratamq.tier.writing.intake import QueueKey
from stratamq_tier.queue_table import TierQueueTable

log = logging.getLogger(__name__)

T, K = TypeVar("T"), TypeVar("K")
MAX_WAITING_BYTES = 32 << 20
CAUGHT_UP_BYTES = 64 << 20
"""Read of one queue before another one gets its turn."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 30.0


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """`queues_behind`: whose messages are not all indexed."""

    items: int = 0
    waiting_items: int = 0
    files: int = 0
    queues_behind: int = 0
    failure: str = ""


class Indexing:
    """Belongs to the event loop, for one claim of the tier. The writer's procedures run one at a
    time."""

    def __init__(
        self,
        runner: Runner,
        clock: Clock,
        names: tuple[str, str],
        writer: IndexWriter,
        table: TierQueueTable,
        interval_ms: int,
        most_items: int,
    ) -> None:
        """`names`: cluster and broker; a file is made every `interval_ms`, and of `most_items`."""
        self._runner = runner
        self._clock = clock
        self._names = names
        self._writer = writer
        self._table = table
        self._interval_ns = interval_ms * 1_000_000
        self._most_items = most_items
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._waiting: deque[tuple[TierBatch, Manifest]] = deque()
        self._waiting_bytes = 0
        self._behind: dict[QueueKey, None] = {}
        self._owed: Counter[QueueKey] = Counter()
        """For each queue: the batches that wait, and one more while it is behind."""
        self._topics_owed: Counter[str] = Counter()
        """For each topic: its queues in `_owed`."""
        self._held: Counter[QueueKey] = Counter()
        """Queues that are being cut."""
        self._damaged: set[QueueKey] = set()
        self._flushed_ns = clock.monotonic_ns()
        self._failure = ""

    async def open(self) -> None:
        """No earlier writer can change the index any more. FencedError."""
        await self._do(self._writer.open())

    @property
    def covered(self) -> Mapping[QueueKey, int]:
        """By queue: the tier has had it up to that queue offset."""
        return self._writer.manifest.covered

    def take(self, batch: TierBatch, manifest: Manifest) -> None:
        """Messages that were just committed, the last ones of the manifest."""
        key = manifest.key
        if self._waiting_bytes >= MAX_WAITING_BYTES:
            self._falls_behind(key)
        elif key not in self._behind:
            self._waiting.append((batch, manifest))
            self._waiting_bytes += len(batch.records)
            self._mark_behind(key)
        self._wake.set()

    @asynccontextmanager
    async def cutting(self, ends: Mapping[QueueKey, int]) -> AsyncIterator[None]:
        """While queues are cut at these queue offsets: what will be there instead is not indexed.
        FencedError."""
        self._held.update(ends.keys())
        try:
            waiting, self._waiting, self._waiting_bytes = self._waiting, deque(), 0
            for batch, manifest in waiting:
                if manifest.key in ends:
                    self._falls_behind(manifest.key)
                    self._settle(manifest.key)
                else:
                    self._waiting.append((batch, manifest))
                    self._waiting_bytes += len(batch.records)
            await self._do(self._writer.limit(ends))
            yield
        finally:
            self._release(ends)
            self._wake.set()

    async def run(self) -> None:
        """Until it is cancelled. FencedError."""
        for manifest in self._table.manifests():
            if self._writer.lacks(manifest):
                self._falls_behind(manifest.key)
        pause_s = FIRST_PAUSE_S
        while True:
            self._wake.clear()
            try:
                await self._round()
                self._failure, pause_s = "", FIRST_PAUSE_S
            except FencedError:
                raise
            except StrataError as error:
                self._note(str(error))
                await asyncio.sleep(pause_s)
                pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
                continue
            await self._rest()

    async def expire(self, older_than_ms: int, now_ms: int) -> None:
        """Files whose last message is older leave. FencedError; errors of the storage."""
        await self._do(self._writer.expire(older_than_ms, now_ms))

    async def collect(self, before_ms: int) -> None:
        """Files that left before that time are deleted. FencedError; errors of the storage."""
        await self._do(self._writer.collect(before_ms))

    async def sweep(self, before_ms: int) -> int:
        """Files that nothing names, of crashes before that time, are deleted: how many.
        FencedError; errors of the storage."""
        return len(await self._do(self._writer.sweep(before_ms)))

    @property
    def manifest(self) -> IndexManifest:
        return self._writer.manifest

    def reader(self) -> KeyIndex:
        """What is indexed now."""
        return self._writer.reader()

    def queues_behind(self, topic: str) -> int:
        """Count the topic's queues whose messages are not all indexed."""
        return self._topics_owed[topic] + sum(key[0] == topic for key in self._damaged)

    @property
    def status(self) -> IndexStatus:
        files = self._writer.files
        return IndexStatus(
            sum(file.items for file in files),
            self._writer.items,
            len(files),
            len(self._owed) + len(self._damaged),
            self._failure,
        )

    async def _round(self) -> None:
        """What waits now, one piece of one queue that is behind, and a file where one is due."""
        for _ in range(len(self._waiting)):
            if not self._waiting:
                break
            batch, manifest = self._waiting[0]
            added = await self._do(_adding(self._writer, batch, manifest))
            # It may have been taken out by a cut meanwhile.
            if self._waiting and self._waiting[0][0] is batch:
                self._waiting.popleft()
                self._waiting_bytes -= len(batch.records)
                if not added:
                    self._falls_behind(manifest.key)
                self._settle(manifest.key)
            await self._flush(self._writer.items >= self._most_items)
        key = next((key for key in self._behind if key not in self._held), None)
        if key is not None:
            await self._catch_up(key)
        await self._flush(self._clock.monotonic_ns() - self._flushed_ns >= self._interval_ns)

    async def _catch_up(self, key: QueueKey) -> None:
        place = QueuePlace(*self._names, *key)
        try:
            count = await self._do(self._writer.catch_up(place, CAUGHT_UP_BYTES))
        except CorruptionError as error:
            self._is_caught_up(key)
            self._damaged.add(key)
            log.error(
                "a queue of the tier is damaged, and its keys are indexed up to there",
                extra={"topic": key[0], "queue": key[1], "reason": str(error)},
            )
            return
        entry = self._table.get(*key)
        self._is_caught_up(key)
        if count and entry is not None and self._writer.lacks(entry.manifest):
            self._falls_behind(key)

    async def _flush(self, due: bool) -> None:
        if not due:
            return
        now_ms = self._clock.wall_ms()
        await self._do(self._writer.flush())
        self._flushed_ns = self._clock.monotonic_ns()
        while await self._do(self._writer.merge(now_ms)):
            pass

    async def _rest(self) -> None:
        """Until there is something to do."""
        if self._waiting or any(key not in self._held for key in self._behind):
            return
        due_ns = self._flushed_ns + self._interval_ns - self._clock.monotonic_ns()
        try:
            async with asyncio.timeout(max(0.0, due_ns / 1e9)):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _do(self, procedure: Procedure[T]) -> T:
        async with self._turn:
            return await self._runner.start(procedure)

    def _falls_behind(self, key: QueueKey) -> None:
        if key not in self._behind and key not in self._damaged:
            self._behind[key] = None
            self._mark_behind(key)

    def _is_caught_up(self, key: QueueKey) -> None:
        if key in self._behind:
            del self._behind[key]
            self._settle(key)

    def _mark_behind(self, key: QueueKey) -> None:
        self._owed[key] += 1
        if self._owed[key] == 1:
            self._topics_owed[key[0]] += 1

    def _settle(self, key: QueueKey) -> None:
        if _counted_down(self._owed, key):
            _counted_down(self._topics_owed, key[0])

    def _release(self, keys: Iterable[QueueKey]) -> None:
        for key in keys:
            _counted_down(self._held, key)

    def _note(self, failure: str) -> None:
        if failure != self._failure:
            log.warning("tier key index suspended", extra={"reason": failure})
        self._failure = failure


def _adding(writer: IndexWriter, batch: TierBatch, manifest: Manifest) -> Procedure[bool]:
    """Makes no call: where procedures run, and not on the event loop."""
    return writer.add(batch, manifest)
    yield  # pragma: no cover


def _counted_down(counts: Counter[K], key: K) -> bool:
    """By one; whether none is left. Its cost does not depend on the number of keys."""
    counts[key] -= 1
    if counts[key]:
        return False
    del counts[key]
    return True
