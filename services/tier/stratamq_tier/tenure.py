"""The time in which this service writes a broker's tier: from its claim until the log is a slave's,
begins another generation, or another writer claims the tier.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial

from stratamq.errors import CorruptRecordError, UnavailableError
from stratamq.formats.tier_manifest import Epoch, Manifest
from stratamq.service.tasks import first_ended
from stratamq.store.generations import history
from stratamq.tier.driver.calls import Procedure
from stratamq.tier.writing.claim import claim
from stratamq.tier.writing.intake import Due, Intake, QueueKey
from stratamq.tier.writing.merging import run_to_merge
from stratamq.tier.writing.overlap import OtherMessagesError
from stratamq.tier.writing.progress import ProgressObject
from stratamq.tier.writing.queue_list import QueueList
from stratamq.tier.writing.queue_writer import TierQueueWriter
from stratamq_tier.followed_log import FollowedState
from stratamq_tier.gaps import Gaps
from stratamq_tier.indexing import Indexing
from stratamq_tier.log_reading import LogReading
from stratamq_tier.parts import Parts
from stratamq_tier.taking_over import Before, require_ours, take_over
from stratamq_tier.uploads import Uploads
from stratamq_tier.writers import Writers
from stratamq_tier.written_tier import Seen, recall, remember

log = logging.getLogger(__name__)

PROGRESS_INTERVAL_NS = 60_000_000_000
"""How far the stored progress may lag behind, in time: a start reads so much of the log again."""


class Tenure:
    """Belongs to the event loop, for one generation of the log. `wake` is set when the log or an
    upload has come further."""

    def __init__(
        self,
        parts: Parts,
        state: FollowedState,
        wake: asyncio.Event,
        put_back: Callable[[], None] = lambda: None,
        *,
        doubted: bool = False,
    ) -> None:
        """`put_back` is called when the tier turns out to be older than it was; `doubted`: that was
        found before."""
        self.position = 0
        """The log is read up to this offset."""
        self.committed_messages = self.committed_bytes = 0
        self._advanced_ms = parts.monotonic_ms
        self._oldest_ms: int | None = None
        self._is_behind = False
        self.begun = asyncio.Event()
        """The tier is claimed, and is this log's: `writers` and `epoch` are there."""
        self.epoch: Epoch = (0, 0)
        self.accounted = False
        """What the tier misses of what the log has no more is in the manifests, as gaps."""
        self._put_back = put_back
        self._doubted = doubted
        self._gaps = Gaps(parts.config, parts.floor, ())
        self._ends: tuple[int, dict[QueueKey, int]] | None = None
        """The log's end at some time of this tenure, and the next offsets of queues then."""
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
        self._queues: QueueList
        self._unlisted: set[QueueKey] = set()
        """Queues that came into the tier and are not in its list yet."""
        self._stored_ns = 0
        self._left_out: set[str] = set()
        """Topics that were named in the log of this service."""

    async def run(self) -> None:
        """Raises StrataError: FencedError for good, others for the time being."""
        parts, state = self._parts, self._begun
        config = parts.config
        names = config.cluster, parts.broker
        last = await require_ours(parts, state)
        seen = await parts.reading.run(partial(recall, parts.files, config, parts.broker))
        above = max(last, seen[1]) if seen is not None else last
        epoch = await parts.runner.start(claim(*names, state.generation, above))
        self.epoch = epoch
        self._queues = QueueList(*names, epoch)
        await parts.runner.start(self._queues.hold())
        listed = frozenset(self._queues.names)
        generations = await parts.reading.run(partial(history, parts.files))
        self._progress = ProgressObject(*names, epoch, generations)
        self._writers = Writers(
            parts.runner,
            *names,
            epoch,
            config.limits,
            parts.table.put,
            listed.__contains__,
            lambda *gap: self._gaps.holes(*gap),
        )
        self.indexing = await parts.index(epoch)
        # No earlier writer begins anything from here on but what it has under way.
        await parts.look()
        try:
            self.position, self._gaps = await take_over(
                parts,
                state,
                self._progress,
                self._reading,
                self._writers,
                self._cutting,
                await self._before(listed, seen),
                self._put_back,
            )
            await self._list()
            await self._remember()
            self._settle()
            self.begun.set()
            await first_ended(self.uploads.run(), self._rounds())
        finally:
            await parts.reading.run(self._reading.close)
        if self.uploads.fenced is not None:
            raise self.uploads.fenced

    async def _before(self, listed: Collection[QueueKey], seen: Seen | None) -> Before:
        """What was known of the tier. A queue that ends before its keys do was put back; those are
        indexed again."""
        covered = self.indexing.covered if self.indexing is not None else {}
        ends = {one.key: one.end_offset for one in self._parts.table.manifests()}
        older = {
            key: end for key, end in ends.items() if key in listed and covered.get(key, 0) > end
        }
        if self.indexing is not None and older:
            async with self.indexing.cutting(older):
                pass
        doubted = self._doubted or bool(self._parts.table.put_back or older)
        return Before(listed, seen, doubted)

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
        while self._is_current_tenure():
            self._wake.clear()
            await self._round()
            self._settle()
            await self._store_progress()
            await self._account()
            if self._is_current_tenure():
                await self._rest()

    def _is_current_tenure(self) -> bool:
        state = self._parts.log.state
        same = state.generation == self._begun.generation and not state.is_slave
        return same and self.uploads.fenced is None

    async def _round(self) -> None:
        """Read what the log has, as far as there is memory, and send what is due on its way."""
        parts, intake = self._parts, self.intake
        from_ms = parts.config.from_ms
        full = False
        while not full and self._is_current_tenure():
            step = partial(
                self._reading.step,
                self.position,
                parts.log.state.readable,
                parts.monotonic_ms,
                from_ms,
            )
            self.position, all_due = await parts.reading.run(step)
            if self._reading.passed_over:
                raise UnavailableError(
                    "the log has deleted messages that were not in the tier yet: what is missing "
                    "is recorded"
                )
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
        committed, segment_bytes = self._parts.log.committed, self._begun.segment_bytes
        position, reach = (known.position, known.reach) if known is not None else (0, 0)
        # The log deletes whole segments, and shows when everything is there.
        is_due = committed // segment_bytes > position // segment_bytes
        is_due = committed > position and (is_due or not self._is_behind)
        if now_ns - self._stored_ns < PROGRESS_INTERVAL_NS and not is_due:
            return
        if committed > position:
            await self._store(reach)
        else:
            # Nothing is written: is the tier still what it was?
            await self._parts.runner.start(self._progress.load())
            self._stored_ns = now_ns

    async def _store(self, reach: int, *, recorded: bool = False) -> None:
        """The log may delete what is committed then. FencedError."""
        await self._list()
        committed = self._parts.log.committed
        procedure: Procedure[None] = self._progress.store(
            self._begun.generation,
            committed,
            max(reach, committed),
            recorded=recorded,
        )
        await self._parts.runner.start(procedure)
        await self._remember()
        self._stored_ns = self._parts.clock.monotonic_ns()

    async def _list(self) -> None:
        """Every queue of which something is committed is in the tier's list of queues."""
        new = self._unlisted
        if not self.begun.is_set():
            new = {one.key for one in self._parts.table.manifests() if one.records}
        if new:
            await self._parts.runner.start(self._queues.add(new))
            self._unlisted = self._unlisted - new

    async def _remember(self) -> None:
        """What the progress says now, here too; then the log may delete what is below it."""
        parts, known = self._parts, self._progress.known
        if known is not None:
            work = partial(remember, parts.files, parts.config, parts.broker, known)
            await parts.reading.run(work)
            parts.log.durable = known.position

    async def _account(self) -> None:
        """Once, when everything is in the tier that the log had at some time of this tenure: what
        it misses of queues that have no message behind that is recorded, too."""
        parts = self._parts
        if self.accounted:
            return
        if self._ends is None:
            try:
                self._ends = await parts.queue_ends()
            except UnavailableError:
                return
        end, ends = self._ends
        if parts.log.committed < end:
            return
        for key, next_offset in ends.items():
            if parts.table.end_of(key) < next_offset and parts.config.wants(key[0]):
                await self._record_missing(key, next_offset)
        known = self._progress.known
        await self._store(known.reach if known else 0, recorded=True)
        self.accounted = True

    async def _record_missing(self, key: QueueKey, end: int) -> None:
        now_ms = self._parts.clock.wall_ms()
        try:
            await self._writers.run(key, lambda writer: writer.account(end, now_ms))
        except CorruptRecordError as error:
            log.warning(
                "what the tier has of a queue is not known",
                extra={"topic": key[0], "queue": key[1], "reason": str(error)},
            )

    @property
    def lag_ms(self) -> int:
        """Since the message that waits longest was read, or the tier came further last, while it
        has not everything yet; 0: it has."""
        if not self._is_behind:
            return 0
        since_ms = min(self._oldest_ms or self._advanced_ms, self._advanced_ms)
        return self._parts.monotonic_ms - since_ms

    def _settle(self) -> None:
        """What is committed, for the log and its janitor."""
        places = [self.position, self.intake.oldest_place, self.uploads.oldest_place]
        followed = self._parts.log
        committed = min(place for place in places if place is not None)
        was_behind, self._is_behind = self._is_behind, committed < followed.state.readable
        if committed != followed.committed or not was_behind:
            self._advanced_ms = self._parts.monotonic_ms
        followed.committed = committed
        followed.read_to = self.position
        self._oldest_ms = self.intake.oldest_ms

    async def _rest(self) -> None:
        """Until the next look is due, or an upload has made room, or the log has changed hands."""
        config = self._parts.config
        loop = asyncio.get_running_loop()
        deadline = loop.time() + config.scan_interval_ms / 1000
        while self._is_current_tenure():
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

        def work(writer: TierQueueWriter, *, may_cut: bool) -> Procedure[Manifest]:
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
        if due.key not in self._queues.names:
            self._unlisted.add(due.key)
        if self.indexing is not None:
            self.indexing.take(due.batch, manifest)
        self.committed_messages += len(due.batch.sizes)
        self.committed_bytes += len(due.batch.records)
