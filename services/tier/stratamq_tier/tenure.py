"""The time in which this service writes a broker's tier: from its claim until the log is a slave's,
begins another generation, or another writer claims the tier.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial

from stratamq.formats.tier_manifest import Epoch, Manifest
from stratamq.store.generations import history
from stratamq.tier.driver.calls import Procedure
from stratamq.tier.writing.claim import claim
from stratamq.tier.writing.intake import Due, Intake, QueueKey
from stratamq.tier.writing.merging import run_to_merge
from stratamq.tier.writing.overlap import OtherMessagesError
from stratamq.tier.writing.progress import ProgressObject
from stratamq.tier.writing.queue_writer import QueueWriter
from stratamq_tier.followed_log import LogState
from stratamq_tier.indexing import Indexing
from stratamq_tier.log_reading import LogReading
from stratamq_tier.parts import Parts
from stratamq_tier.taking_over import require_ours, take_over
from stratamq_tier.tasks import first_ended
from stratamq_tier.uploads import Uploads
from stratamq_tier.writers import Writers

log = logging.getLogger(__name__)

PROGRESS_INTERVAL_NS = 60_000_000_000
"""How far the stored progress may lag behind, in time: a start reads so much of the log again."""


class Tenure:
    """Belongs to the event loop, for one generation of the log. `wake` is set when the log or an
    upload has come further."""

    def __init__(self, parts: Parts, state: LogState, wake: asyncio.Event) -> None:
        self.position = 0
        """Of the log, up to where it is read."""
        self.committed_messages = self.committed_bytes = 0
        self._advanced_ms = parts.clock.wall_ms()
        self._oldest_ms: int | None = None
        self._is_behind = False
        self.begun = asyncio.Event()
        """The tier is claimed, and is this log's: `writers` and `epoch` are there."""
        self.epoch: Epoch = (0, 0)
        self._parts = parts
        self._begun = state
        self._wake = wake
        config = parts.config
        self.intake = Intake(config.intake_limits, config.wants, parts.floor)
        self._reading = LogReading(parts.files, state.segment_bytes, self.intake)
        self.uploads = Uploads(
            self._commit, wake.set, config.uploads_at_once, config.retry_longest_ms
        )
        self.indexing: Indexing | None = None
        """Once the tier is claimed; None too where keys are not indexed."""
        self._writers: Writers
        self._progress: ProgressObject
        self._stored_ns = 0
        self._left_out: set[str] = set()
        """Topics that were named in the log of this service."""

    async def run(self) -> None:
        """Raises StrataError: FencedError for good, others for the time being."""
        parts, state = self._parts, self._begun
        config = parts.config
        await require_ours(parts, state)
        epoch = await parts.runner.start(claim(config.cluster, parts.broker, state.generation))
        self.epoch = epoch
        listed = await parts.reading.run(partial(history, parts.files))
        self._progress = ProgressObject(config.cluster, parts.broker, epoch, listed)
        self._writers = Writers(
            parts.runner, config.cluster, parts.broker, epoch, config.limits, parts.table.put
        )
        self.indexing = await parts.index(epoch)
        # No earlier writer begins anything from here on but what it has under way.
        await parts.look()
        try:
            self.position = await take_over(
                parts, state, self._progress, self._reading, self._writers, self._cutting
            )
            self._settle()
            self.begun.set()
            await first_ended(self.uploads.run(), self._rounds())
        finally:
            await parts.reading.run(self._reading.close)
        if self.uploads.fenced is not None:
            raise self.uploads.fenced

    def _cutting(self, ends: Mapping[QueueKey, int]) -> AbstractAsyncContextManager[None]:
        """While queues are cut at these queue offsets."""
        if self.indexing is None or not ends:
            return nullcontext()
        return self.indexing.cutting(ends)

    @property
    def writers(self) -> Writers:
        """For what is done to queues beside uploads; once it has begun."""
        return self._writers

    async def _rounds(self) -> None:
        while self._goes_on():
            self._wake.clear()
            await self._round()
            self._settle()
            await self._store_progress()
            if self._goes_on():
                await self._rest()

    def _goes_on(self) -> bool:
        state = self._parts.log.state
        same = state.generation == self._begun.generation and not state.is_slave
        return same and self.uploads.fenced is None

    async def _round(self) -> None:
        """Read what the log has, as far as there is memory, and send what is due on its way."""
        parts, intake = self._parts, self.intake
        from_ms = parts.config.from_ms
        full = False
        while not full and self._goes_on():
            step = partial(
                self._reading.step,
                self.position,
                parts.log.state.readable,
                parts.clock.wall_ms(),
                from_ms,
            )
            self.position, all_due = await parts.reading.run(step)
            self._name_left_out()
            for due in all_due:
                await self._raise_reach()
                self.uploads.add(due)
            if self.position >= parts.log.state.readable:
                break
            full = intake.bytes + self.uploads.bytes >= parts.config.budget_bytes

    def _name_left_out(self) -> None:
        for topic in sorted(self.intake.unnamable - self._left_out):
            log.error(
                "topic left out of the tier: no path can have its name; its messages go with the "
                "log's segments",
                extra={"topic": topic},
            )
        self._left_out.update(self.intake.unnamable)

    async def _raise_reach(self) -> None:
        """Before anything that has been read is uploaded. FencedError."""
        known = self._progress.known
        if known is None or known.reach < self.position:
            await self._store(self._parts.log.state.readable)

    async def _store_progress(self) -> None:
        known, now_ns = self._progress.known, self._parts.clock.monotonic_ns()
        behind = known is None or known.position < self._parts.log.committed
        if behind and now_ns - self._stored_ns >= PROGRESS_INTERVAL_NS:
            await self._store(known.reach if known else 0)

    async def _store(self, reach: int) -> None:
        committed = self._parts.log.committed
        generation = self._begun.generation
        procedure: Procedure[None] = self._progress.store(
            generation, committed, max(reach, committed)
        )
        await self._parts.runner.start(procedure)
        self._stored_ns = self._parts.clock.monotonic_ns()

    @property
    def oldest_ms(self) -> int | None:
        """When the message that waits longest was read, or the tier came further last, while it has
        not everything yet; None: it has."""
        if not self._is_behind:
            return None
        return min(self._oldest_ms or self._advanced_ms, self._advanced_ms)

    def _settle(self) -> None:
        """What is committed, for the log and its janitor."""
        places = [self.position, self.intake.oldest_place, self.uploads.oldest_place]
        followed = self._parts.log
        committed = min(place for place in places if place is not None)
        was_behind, self._is_behind = self._is_behind, committed < followed.state.readable
        if committed != followed.committed or not was_behind:
            self._advanced_ms = self._parts.clock.wall_ms()
        followed.committed = committed
        followed.read_to = self.position
        self._oldest_ms = self.intake.oldest_ms

    async def _rest(self) -> None:
        """Until the next look is due, or an upload has made room, or the log has changed hands."""
        config = self._parts.config
        loop = asyncio.get_running_loop()
        deadline = loop.time() + config.scan_interval_ms / 1000
        while self._goes_on():
            held = self.intake.bytes + self.uploads.bytes >= config.budget_bytes
            unread = self._parts.log.state.readable - self.position
            if unread >= config.batch_bytes and not held:
                return
            try:
                async with asyncio.timeout_at(deadline):
                    await self._wake.wait()
            except TimeoutError:
                return
            self._wake.clear()
            self._settle()

    async def _commit(self, due: Due) -> None:
        now_ms = self._parts.clock.wall_ms()

        def work(writer: QueueWriter, *, may_cut: bool) -> Procedure[Manifest]:
            if due.goes_back:
                yield from writer.cut(due.batch.first, now_ms)
            manifest = yield from writer.commit(due.batch, now_ms, may_cut=may_cut)
            if run_to_merge(manifest):
                yield from writer.merge(now_ms)
            return manifest

        try:
            async with self._cutting({due.key: due.batch.first} if due.goes_back else {}):
                manifest = await self._writers.run(due.key, partial(work, may_cut=False))
        except OtherMessagesError as others:
            # The index must know first which messages of the queue others take the place of.
            async with self._cutting({due.key: others.leaves}):
                manifest = await self._writers.run(due.key, partial(work, may_cut=True))
        if self.indexing is not None:
            self.indexing.take(due.batch, manifest)
        self.committed_messages += len(due.batch.sizes)
        self.committed_bytes += len(due.batch.records)
