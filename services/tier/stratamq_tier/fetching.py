"""Messages of a queue from the storage, as consumers ask for them.

A fetch reads to the end of the part that has its first message, and keeps what was not asked for:
the reads that follow are answered from memory. When several want the same at once, one reads.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from stratamq.errors import (
    CorruptionError,
    LostMessagesError,
    OffsetOutOfRangeError,
    UnavailableError,
)
from stratamq.files.port import Clock
from stratamq.formats.message_status import PullStatus
from stratamq.formats.tier_manifest import Manifest
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.driver.calls import AbsentError
from stratamq.tier.driver.running import Runner
from stratamq.tier.reading.checked import pull_checked
from stratamq.tier.reading.manifests import ManifestQueue, load_manifest, queue_of
from stratamq.tier.reading.pull import TierPull
from stratamq.tier.reading.records import NO_RECORDS, TierRecords
from stratamq.tier.reading.times import offset_by_time
from stratamq.tier.writing.intake import QueueKey
from stratamq_tier.queue_table import TierQueueTable
from stratamq_tier.read_ahead import Chunk, ReadAhead, ReadLimits

log = logging.getLogger(__name__)

T = TypeVar("T")
LEAST_AHEAD = 256
"""After a chunk of fewer messages nothing is read ahead."""
MAX_LOOKED_QUEUES = 1_000
LOOK_NS = 5_000_000_000
OPEN_BYTES = 64 << 20
"""About seventy thousand parts."""
_QUEUE_BYTES, _PART_BYTES = 2_000, 900
"""In memory, of a queue and of a part: the part, its places in both chains, its point of time."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """`minimum` ≤ offsets < `end` are in the tier; all 0 when it has nothing of the queue
    (NO_MATCHED_LOGIC_QUEUE)."""

    status: PullStatus
    next_offset: int
    minimum: int = 0
    end: int = 0
    messages: TierRecords = NO_RECORDS


class Fetcher:
    """Belongs to the event loop; reads over `runner`."""

    def __init__(
        self,
        runner: Runner,
        cluster: str,
        table: TierQueueTable,
        cache: ReadAhead,
        limits: ReadLimits,
        clock: Clock,
        broker: Callable[[], str],
        writing: Callable[[], bool],
        require_explained: Callable[[str, bool], None] = lambda topic, has_some: None,
    ) -> None:
        """`writing`: whether the table has every change of the tier, because it is made here.
        `require_explained`: UnavailableError unless it is known why the tier has nothing behind
        what it has of a topic's queue, or nothing at all."""
        self._require_explained = require_explained
        self._clock = clock
        self._broker = broker
        self._writing = writing
        self._looked: OrderedDict[QueueKey, int] = OrderedDict()
        self._runner = runner
        self._cluster = cluster
        self._table = table
        self._cache = cache
        self._limits = limits
        self._open = OpenQueues()
        self._turns = asyncio.Semaphore(runner.threads)
        """What is read and was not given yet is in memory: of so many reads."""
        self._reading: dict[tuple[QueueKey, int], asyncio.Task[Chunk]] = {}

    async def fetch(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        most_messages: int,
        most_bytes: int,
        log_minimum: int = 0,
    ) -> Fetched:
        """Messages from queue offset `offset` on: at least one, whatever its size. `log_minimum`:
        the queue's first offset in the log.

        UnavailableError when the storage does not answer in time, and when it is not known yet
        whether messages that log and tier do not have are lost; LostMessagesError;
        CorruptionError for a damaged manifest.
        """
        await self._look_again((topic, queue_id), offset)
        self._table.require_readable((topic, queue_id))
        entry = self._table.get(topic, queue_id)
        end = entry.manifest.end_offset if entry is not None else 0
        if end <= offset < log_minimum:
            self._require_explained(topic, entry is not None)
        if entry is None:
            return Fetched(PullStatus.NO_MATCHED_LOGIC_QUEUE, offset)
        manifest = entry.manifest
        for hole in manifest.lost:
            if hole.start <= offset < hole.end:
                raise LostMessagesError.of_queue(topic, queue_id, offset, hole.end)
        bounds = manifest.minimum, manifest.end_offset
        if offset < manifest.minimum:
            return Fetched(PullStatus.OFFSET_TOO_SMALL, manifest.minimum, *bounds)
        if offset >= manifest.end_offset:
            badly = offset > manifest.end_offset
            status = PullStatus.OFFSET_OVERFLOW_BADLY if badly else PullStatus.OFFSET_OVERFLOW_ONE
            return Fetched(status, manifest.end_offset, *bounds)
        key, cached = (topic, queue_id), (topic, queue_id, manifest.epoch)
        chunk = self._cache.find(cached, offset)
        if chunk is None:
            chunk = await self._read(key, manifest, offset, most_messages, most_bytes)
        low, high = _within(chunk.messages, offset, most_messages, most_bytes)
        messages = chunk.messages.between(low, high)
        more = low < high < len(chunk.messages)
        next_offset = int(messages.offsets[-1]) + 1 if more else chunk.end
        self._prepare(key, manifest, chunk, next_offset)
        if not len(messages):
            return Fetched(PullStatus.NO_MATCHED_MESSAGE, next_offset, *bounds)
        return Fetched(PullStatus.FOUND, next_offset, *bounds, messages)

    def known(self, topic: str, queue_id: int) -> ManifestQueue | None:
        """A queue that is open with what the table has of it; None: it is not. Of any thread."""
        entry, opened = self._table.get(topic, queue_id), self._open.get((topic, queue_id))
        if entry is None or opened is None or not self._writing():
            return None
        return opened if _is_same(opened.manifest, entry.manifest) else None

    async def offset_at(self, topic: str, queue_id: int, time_ms: int, *, upper: bool) -> int:
        """0 for a queue that the tier does not have. UnavailableError; CorruptRecordError."""
        await self._look_again((topic, queue_id), None)
        self._table.require_readable((topic, queue_id))
        entry = self._table.get(topic, queue_id)
        if entry is None:
            return 0
        opened = await self.in_time(self._opened((topic, queue_id), entry.manifest))
        if not opened.queue.units:
            ends = [hole.start for hole in entry.manifest.lost]
            return min(ends, default=entry.manifest.end_offset)
        search = offset_by_time(opened.queue, time_ms, upper, opened.points)
        return await self.in_time(self._runner.start(search))

    async def _read(
        self, key: QueueKey, manifest: Manifest, offset: int, most_messages: int, most_bytes: int
    ) -> Chunk:
        """One chunk from `offset` on. One reads for all who want it at once."""
        task = self._reading.get((key, offset))
        if task is None:
            task = self._begin(key, manifest, offset, most_messages, most_bytes)
        return await self.in_time(asyncio.shield(task))

    def _begin(
        self, key: QueueKey, manifest: Manifest, offset: int, most_messages: int, most_bytes: int
    ) -> "asyncio.Task[Chunk]":
        reading = self._read_chunk(key, manifest, offset, most_messages, most_bytes)
        task = asyncio.ensure_future(reading)
        self._reading[key, offset] = task
        task.add_done_callback(partial(self._ended, (key, offset)))
        return task

    def _prepare(self, key: QueueKey, manifest: Manifest, chunk: Chunk, next_offset: int) -> None:
        """Behind a fetch that leaves less than half of a chunk: what comes next is read meanwhile,
        and one that is read to its end gives way to others."""
        cached = (*key, manifest.epoch)
        if next_offset >= chunk.end:
            self._cache.spend(cached, chunk)
        small = len(chunk.messages) < LEAST_AHEAD
        if small or 2 * next_offset < chunk.first + chunk.end or chunk.end >= manifest.end_offset:
            return
        following = key, chunk.end
        known = following in self._reading or self._cache.has(cached, chunk.end)
        if self._cache.takes_more and not known:
            self._begin(key, manifest, chunk.end, self._limits.messages, self._limits.bytes)

    def _ended(self, name: tuple[QueueKey, int], task: "asyncio.Task[Chunk]") -> None:
        del self._reading[name]
        if not task.cancelled():
            task.exception()  # a caller that still waits is given it

    async def _read_chunk(
        self, key: QueueKey, manifest: Manifest, offset: int, most_messages: int, most_bytes: int
    ) -> Chunk:
        opened = await self._opened(key, manifest)
        limits = count, size = most_messages, most_bytes
        ahead = self._cache.takes_more
        if ahead and most_messages > 1:
            count = max(count, _end_of_part(opened, offset) - offset)
            count, size = min(count, self._limits.messages), self._limits.bytes
        async with self._turns:
            found = await self._pull(opened, key, offset, (count, size), limits)
        chunk = Chunk(offset, max(found.next, offset + 1), found.messages)
        if ahead:
            self._cache.put((*key, manifest.epoch), chunk)
        return chunk

    async def _pull(
        self,
        opened: ManifestQueue,
        key: QueueKey,
        offset: int,
        ahead: tuple[int, int],
        limits: tuple[int, int],
    ) -> TierPull:
        """`ahead`, `asked`: messages and bytes. Where something of `ahead` is not there or cannot
        be believed, what was asked for, as far as the first part has it."""
        place = QueuePlace(self._cluster, opened.manifest.broker, *key).folder
        try:
            checked = await self._runner.start(pull_checked(opened.queue, offset, *ahead, place))
        except (AbsentError, CorruptionError, OffsetOutOfRangeError):
            left = _end_of_part(opened, offset) - offset
            narrow = min(limits[0], left), limits[1]
            if left <= 0 or narrow == ahead:
                raise
            checked = await self._runner.start(pull_checked(opened.queue, offset, *narrow, place))
        if checked.missing:
            log.error(
                "messages are left out: their records are not where the units say",
                extra={"place": place, "from": offset, "below": checked.pulled.next,
                       "messages": checked.missing},
            )  # fmt: skip
        return checked.pulled

    async def _look_again(self, key: QueueKey, offset: int | None) -> None:
        """Where another service writes: what the tier has of the queue now; asked again at once for
        an offset that it did not have."""
        if self._writing():
            return
        entry, now_ns = self._table.get(*key), self._clock.monotonic_ns()
        known = entry is not None and (offset is None or offset < entry.manifest.end_offset)
        if known and now_ns - self._looked.get(key, 0) < LOOK_NS:
            return
        place = QueuePlace(self._cluster, self._broker(), *key)
        manifest = await self.in_time(self._runner.start(load_manifest(place)))
        if manifest is not None:
            self._table.put(manifest, entry.manifest if entry is not None else None)
        self._looked[key] = now_ns
        self._looked.move_to_end(key)
        if len(self._looked) > MAX_LOOKED_QUEUES:
            self._looked.popitem(last=False)

    async def _opened(self, key: QueueKey, manifest: Manifest) -> ManifestQueue:
        known = self._open.use(key)
        if known is not None and _is_same(known.manifest, manifest):
            return known
        place = QueuePlace(self._cluster, manifest.broker, *key)
        opened = await self._runner.start(queue_of(place, manifest, known))
        self._open.put(key, opened)
        return opened

    async def in_time(self, work: Awaitable[T]) -> T:
        """The result of `work`. UnavailableError when it takes longer than a fetch may."""
        try:
            async with asyncio.timeout(self._limits.timeout_ms / 1000):
                return await work
        except TimeoutError:
            raise UnavailableError(
                f"the tier's storage did not answer within {self._limits.timeout_ms} ms"
            ) from None


def _is_same(one: Manifest, other: Manifest) -> bool:
    """Two states of a queue: one that was put back is given revisions again, with other epochs."""
    return (one.revision, one.epoch) == (other.revision, other.epoch)


def _end_of_part(opened: ManifestQueue, offset: int) -> int:
    """Where the part ends that has the message, in queue offsets."""
    for _, parts in opened.parts:
        if parts and offset < parts[-1].first + parts[-1].count:
            for part in parts:
                if offset < part.first + part.count:
                    return part.first + part.count
    return offset


def _within(
    messages: TierRecords, offset: int, most_messages: int, most_bytes: int
) -> tuple[int, int]:
    """Which records from queue offset `offset` on: one at least, if there is one, whatever its
    size."""
    low = int(np.searchsorted(messages.offsets, offset))
    sizes = messages.sizes[low : low + most_messages].cumsum()
    return low, low + max(min(1, len(sizes)), int(np.searchsorted(sizes, most_bytes, "right")))


class OpenQueues:
    """Those that were used last. `get` is of any thread, the rest of one. One queue is kept even
    where it is larger than all may be together."""

    def __init__(self, most_bytes: int = OPEN_BYTES) -> None:
        self.bytes = 0
        """About what they take in memory."""
        self._most_bytes = most_bytes
        self._queues: OrderedDict[QueueKey, ManifestQueue] = OrderedDict()

    def __len__(self) -> int:
        return len(self._queues)

    def get(self, key: QueueKey) -> ManifestQueue | None:
        return self._queues.get(key)

    def use(self, key: QueueKey) -> ManifestQueue | None:
        """Return what `get` does, and make it the queue that was used last."""
        if key in self._queues:
            self._queues.move_to_end(key)
        return self._queues.get(key)

    def put(self, key: QueueKey, queue: ManifestQueue) -> None:
        """Those that were not used for longest give way."""
        before = self._queues.pop(key, None)
        self.bytes += _size(queue) - (_size(before) if before is not None else 0)
        self._queues[key] = queue
        while self.bytes > self._most_bytes and len(self._queues) > 1:
            _, gone = self._queues.popitem(last=False)
            self.bytes -= _size(gone)


def _size(queue: ManifestQueue) -> int:
    return _QUEUE_BYTES + _PART_BYTES * len(queue.points)
