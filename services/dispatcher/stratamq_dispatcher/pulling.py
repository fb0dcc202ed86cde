"""Pulls as consumers make them: at once, waiting for a first message, or without end.

An answer may hold views of the log's mapping. Its receiver copies it before waiting for
anything, and nothing here keeps one.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from stratamq.errors import (
    CorruptionError,
    LostMessagesError,
    OffsetOutOfRangeError,
    StrataError,
    UnavailableError,
)
from stratamq.files.port import Worker
from stratamq.formats.message_status import PullStatus
from stratamq.rpc.request_ids import part
from stratamq.service.awaiting import OnDone, answer, outcome
from stratamq_dispatcher.cold_reads import ColdReads, LogIdentity
from stratamq_dispatcher.consume_queue import ConsumeQueue
from stratamq_dispatcher.cursors import CURSORS_AT_ONCE, Cursor, CursorRewind, watched
from stratamq_dispatcher.engine import DispatchEngine
from stratamq_dispatcher.frame_reads import DamagedFrameError
from stratamq_dispatcher.long_poll import ANYTHING
from stratamq_dispatcher.pull import (
    PullAnswer,
    PullLimits,
    PullPlan,
    PullQuery,
    StreamPieces,
    TagFilter,
)
from stratamq_dispatcher.tier_fetches import TierFetches
from stratamq_dispatcher.tier_reads import TierReads
from stratamq_dispatcher.time_search import Boundary

T = TypeVar("T")

LEARNED_AT_ONCE = 32
"""The beginnings of so many queues are looked for before others have their turn in the lane."""
MAX_UNMENDABLE = 10_000
_NOTHING_YET = (PullStatus.OFFSET_OVERFLOW_ONE, PullStatus.NO_MESSAGE_IN_QUEUE)
_BEYOND = (
    *_NOTHING_YET,
    PullStatus.OFFSET_OVERFLOW_BADLY,
    PullStatus.NO_MATCHED_LOGIC_QUEUE,
)
_LOOK_FURTHER = (
    PullStatus.NO_MATCHED_MESSAGE,
    PullStatus.MESSAGE_WAS_REMOVING,
    PullStatus.OFFSET_FOUND_NULL,
)


class Puller:
    """Belongs to the event loop."""

    def __init__(
        self,
        engine: DispatchEngine,
        limits: PullLimits,
        cold: ColdReads,
        lane: Worker,
        tier: TierReads | None = None,
        catch_up: Callable[[], Awaitable[None]] | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tier` None: nothing is read from one. `catch_up` (`follow/demand.py`) None: what the log
        has not sent yet is not waited for."""
        self._catch_up = catch_up
        self._now_s = now_s
        self.limits = limits
        self._tier = tier or TierReads(None, lambda: engine.followed.minimum)
        self._engine = engine
        self._cold = cold
        self._lane = lane
        self._serial_reads = SerialReads()
        self._stopping = False
        self._unmendable: set[tuple[str, int, int]] = set()
        """Units that the log could not give again."""

    def stop(self) -> None:
        """Answer everyone who waits, and end the streams."""
        self._stopping = True
        self._engine.waiting.wake_all()

    async def once(self, query: PullQuery) -> PullAnswer:
        """Raises UnavailableError before the engine serves, CorruptionError for damage."""
        try:
            return await self._once(query)
        except LostMessagesError:
            raise  # of the tier: nothing here is damaged
        except CorruptionError as error:
            self._engine.findings.add_damage(error)
            if not (isinstance(error, DamagedFrameError) and await self._mend(query, error)):
                raise
        return await self._once(query)

    async def _mend(self, query: PullQuery, error: DamagedFrameError) -> bool:
        """Whether the log gave the damaged units again. Each unit is tried once."""
        unit = query.topic, query.queue_id, error.queue_offset
        if unit in self._unmendable or len(self._unmendable) >= MAX_UNMENDABLE:
            return False
        engine = self._engine
        plan = engine.mender.plan(*unit)
        if plan is not None:
            view = self._log_view()
            mended = await self._in_lane(lambda: self._cold.mend(plan, view))
            if mended is not None and await answer(partial(engine.mender.write, plan, mended)):
                return True
        self._unmendable.add(unit)
        return False

    async def _once(self, query: PullQuery) -> PullAnswer:
        plan, tier = self._engine.plan_pull(query, self.limits), self._tier
        if not tier.known:
            return plan if isinstance(plan, PullAnswer) else await self._run(plan)
        if isinstance(plan, PullAnswer):
            # A queue that never had a message has none in the tier either.
            below = plan.status is PullStatus.OFFSET_TOO_SMALL
            found = await self._from_tier(query, plan) if below else None
            return found or self._with_minimum(query, plan)
        gone = PullAnswer(PullStatus.OFFSET_TOO_SMALL, query.offset, plan.minimum, plan.maximum)
        if tier.prefers(query, plan):
            with contextlib.suppress(StrataError):
                found = await self._from_tier(query, gone)
                if found is not None:
                    return found
        try:
            return self._with_minimum(query, await self._run(replace(plan, strict=True)))
        except OffsetOutOfRangeError:
            # Deleted while it was read.
            found = await self._from_tier(query, gone)
            return found or self._with_minimum(query, await self._run(plan))

    async def _run(self, plan: PullPlan) -> PullAnswer:
        if plan.cold:
            view = self._log_view()
            with part("cold read"):
                return await self._in_lane(lambda: self._cold.pull(plan, view))
        return plan.run(self._engine.hot_log())

    async def _from_tier(self, query: PullQuery, local: PullAnswer) -> PullAnswer | None:
        """UnavailableError: no message is passed over while the tier is away."""
        queue = self._engine.queues.get(query.topic, query.queue_id)
        return await self._tier.pull(query, local, 0 if queue is None else queue.hidden_below)

    def _with_minimum(self, query: PullQuery, answer: PullAnswer) -> PullAnswer:
        key = query.topic, query.queue_id
        queue = self._engine.queues.get(*key)
        if queue is None:
            return answer
        minimum = self._tier.minimum(key, answer.minimum, queue.hidden_below)
        return answer if minimum == answer.minimum else replace(answer, minimum=minimum)

    async def reach(self, log_offset: int, limit_s: float) -> None:
        """Wait until what is before this place of the log is in the queues; not at all when
        following failed for good. UnavailableError after `limit_s`."""
        engine = self._engine
        deadline = asyncio.get_running_loop().time() + limit_s
        grown = asyncio.Event()
        with engine.waiting.watch(grown.set) as watch:
            watch.add(0, ANYTHING)
            while True:
                grown.clear()
                if (
                    engine.followed.applied >= log_offset
                    or engine.followed.stopped_reason
                    or self._stopping
                ):
                    return
                if not await _within(grown, deadline):
                    raise UnavailableError(
                        f"the queues hold the log up to {engine.followed.applied}, not yet up to "
                        f"{log_offset}"
                    )

    async def catch_up(self) -> None:
        """Have in the queues what the log had answered to producers before this call, if it sends
        that in time."""
        if self._catch_up is not None:
            await self._catch_up()

    async def waiting(self, query: PullQuery, wait_ms: int) -> PullAnswer:
        """Like `once`, but wait so long for a first message that is wanted."""
        if not wait_ms:
            before = self._engine.followed.applied
            answer = await self.once(query)
            if _is_at_end(answer):
                await self.catch_up()
                if self._engine.followed.applied != before:
                    answer = await self.once(query)
            return answer
        deadline = asyncio.get_running_loop().time() + wait_ms / 1000
        grown, in_time = asyncio.Event(), True
        with self._engine.waiting.watch(grown.set) as watch:
            watch.add(0, (query.topic, query.queue_id))
            while True:
                grown.clear()
                answer = await self.once(query)
                in_time = in_time and asyncio.get_running_loop().time() < deadline
                if not in_time or self._stopping:
                    return answer
                if answer.status in _LOOK_FURTHER:
                    query = replace(query, offset=answer.next_offset)
                    await asyncio.sleep(0)
                elif answer.status not in _NOTHING_YET or answer.next_offset != query.offset:
                    return answer
                else:
                    in_time = await _within(grown, deadline)

    async def stream(
        self,
        cursors: Iterable[Cursor],
        tag_filter: TagFilter | None,
        max_bytes: int,
        tier_max_bytes: int,
        spares: Callable[[int], bool] = lambda _: True,
    ) -> AsyncGenerator[tuple[int, PullAnswer], None]:
        """Everything from the cursors on, a piece of each queue in turn; ends when all have ended
        or the service stops. Answers that hold no message tell of offsets that moved.
        UnavailableError when all that are left wait for a tier that does not answer.

        `max_bytes`: of a piece; 0: by the reader's speed and what it `spares`. `tier_max_bytes`: of
        one from the tier, within `TierFetches`'s budget. More cursors make no message cost more.
        """
        grown, looks, pieces = asyncio.Event(), 0, StreamPieces(max_bytes, spares)
        places = CursorRewind(self._engine)
        with (
            self._engine.waiting.watch(grown.set) as watch,
            TierFetches(lambda number: watch.grown([number]), tier_max_bytes) as fetches,
        ):
            unfinished = await watched(cursors, watch)
            while unfinished and not self._stopping:
                if places.are_outdated:
                    await places.agree(unfinished, watch)
                    continue
                grown.clear()
                ready = watch.take()
                if ready is None:
                    fetches.require_others(len(unfinished))
                    await grown.wait()
                    continue
                cursor = unfinished.get(ready)
                if cursor is None or fetches.postpones(ready):
                    continue
                if self._reads_tier(cursor) and not fetches.has(ready):
                    # Other cursors do not wait for the tier.
                    fetches.begin(ready, partial(self._look, cursor, tag_filter, tier_max_bytes))
                    looks += 1
                    if looks % CURSORS_AT_ONCE == 0:
                        await asyncio.sleep(0)
                    continue
                answer = fetches.take(ready)
                answer = answer or await self._look(cursor, tag_filter, pieces.max_bytes)
                if answer.status not in _NOTHING_YET:
                    cursor.offset = answer.next_offset
                if cursor.is_done:
                    del unfinished[ready]
                elif answer.next_offset != self._end(cursor, answer):
                    watch.mark_ready(ready)
                    if answer.status in _LOOK_FURTHER:
                        await asyncio.sleep(0)
                        continue
                looks += 1
                if answer.status not in _NOTHING_YET:
                    given_s = self._now_s()
                    yield ready, answer
                    pieces.taken(self._now_s() - given_s)
                elif looks % CURSORS_AT_ONCE == 0:
                    await asyncio.sleep(0)

    def _end(self, cursor: Cursor, answer: PullAnswer) -> int:
        """The queue may have grown since the tier answered."""
        queue = self._engine.queues.get(cursor.topic, cursor.queue_id)
        return answer.maximum if queue is None else max(answer.maximum, queue.end)

    def _reads_tier(self, cursor: Cursor) -> bool:
        if not self._tier.known:
            return False
        queue = self._engine.queues.get(cursor.topic, cursor.queue_id)
        if queue is None or queue.end == 0:
            return False
        minimum = queue.known_minimum(self._engine.followed.minimum)
        return minimum is None or cursor.offset < minimum

    async def _look(
        self, cursor: Cursor, tag_filter: TagFilter | None, max_bytes: int
    ) -> PullAnswer:
        return await self.once(
            PullQuery(
                cursor.topic,
                cursor.queue_id,
                cursor.offset,
                self.limits.most_messages,
                max_bytes,
                tag_filter,
                cursor.end_offset,
            )
        )

    async def learn(self, queues: Iterable[ConsumeQueue]) -> None:
        """Have in memory where these queues begin and how old their newest messages are. What is
        not there is read, once."""
        unknown = list(filter(self._is_unknown, queues))
        for first in range(0, len(unknown), LEARNED_AT_ONCE):
            await self._serial_reads.run(
                partial(self._learn, unknown[first : first + LEARNED_AT_ONCE])
            )

    async def learn_minimums(self, queues: Iterable[ConsumeQueue]) -> None:
        """Have in memory where these queues begin."""
        minimum = self._engine.followed.minimum
        await self.learn([queue for queue in queues if queue.known_minimum(minimum) is None])

    def _is_unknown(self, queue: ConsumeQueue) -> bool:
        engine = self._engine
        if queue.known_minimum(engine.followed.minimum) is None:
            return True
        return engine.newest_store_timestamp_ms(queue) is None

    async def _learn(self, queues: Sequence[ConsumeQueue]) -> None:
        engine = self._engine
        # Another caller may have learned some meanwhile.
        unknown = list(filter(self._is_unknown, queues))
        if not unknown:
            return
        asked = [
            (queue.snapshot(queue.lowest), queue.known_minimum(engine.followed.minimum) is None)
            for queue in unknown
        ]
        versions = [queue.version for queue in unknown]
        view = self._log_view()
        found = await self._in_lane(lambda: self._cold.begin_and_newest(asked, view))
        for queue, version, one in zip(unknown, versions, found, strict=True):
            if one is not None and queue.version == version:
                if one.first is not None:
                    queue.learn_first(*one.first)
                if queue.newest_ms < 0 and one.newest_ms is not None:
                    queue.newest_ms = one.newest_ms

    async def offset_at(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary
    ) -> int:
        """0 for a queue that does not exist, as in RocketMQ."""
        engine = self._engine
        engine.require_serving()
        queue = engine.queues.get(topic, queue_id)
        if queue is None:
            return 0
        minimum = queue.minimum(engine.queues.open_files, engine.followed.minimum)
        snapshot = queue.snapshot(minimum)
        view = self._log_view()
        local = await self._in_lane(
            lambda: self._cold.offset_at(snapshot, timestamp_ms, boundary, view)
        )
        if not self._tier.known:
            return local
        found = await self._tier.offset_at(
            (topic, queue_id), timestamp_ms, local, minimum, upper=boundary is Boundary.UPPER
        )
        return max(found, queue.hidden_below)

    async def store_times(self, positions: Sequence[tuple[str, int, int]]) -> list[int | None]:
        """Store times of messages by topic, queue and offset, in ms since 1970; None: the log does
        not have it, or it cannot be read."""
        return await self._serial_reads.run(partial(self._store_times, positions))

    async def _store_times(self, positions: Sequence[tuple[str, int, int]]) -> list[int | None]:
        queues = [self._engine.queues.get(topic, number) for topic, number, _ in positions]
        asked = [
            (queue.snapshot_of(offset), offset)
            for queue, (_, _, offset) in zip(queues, positions, strict=True)
            if queue is not None
        ]
        view = self._log_view()
        found = iter(await self._in_lane(lambda: self._cold.store_times(asked, view)))
        return [None if queue is None else next(found) for queue in queues]

    def first_offset(self, queue: ConsumeQueue) -> int:
        """The queue's first message in the log or in the tier, from memory. A list is no place to
        fail for one queue: a pull from one that is damaged reports it."""
        local = queue.known_minimum(self._engine.followed.minimum)
        if local is None:
            local = max(queue.lowest, queue.hidden_below)
        return self._tier.minimum((queue.topic, queue.queue_id), local, queue.hidden_below)

    def _log_view(self) -> LogIdentity:
        engine = self._engine
        return LogIdentity(
            engine.followed.segment_bytes,
            engine.history,
            engine.followed.minimum,
            engine.sealed_from,
        )

    async def _in_lane(self, task: Callable[[], T]) -> T:
        def submit(on_done: OnDone[T]) -> None:
            try:
                self._lane.submit(task, on_done)
            except RuntimeError as error:
                raise UnavailableError("the dispatcher is stopping") from error

        return await outcome(submit)


def _is_at_end(answer: PullAnswer) -> bool:
    """There is nothing, and there may be as soon as the log has sent what it has."""
    return answer.status in _BEYOND or (
        answer.status is PullStatus.NO_MATCHED_MESSAGE and answer.next_offset >= answer.maximum
    )


async def _within(event: asyncio.Event, deadline: float) -> bool:
    """Wait for `event`; False when the loop's time passed `deadline` first."""
    try:
        async with asyncio.timeout_at(deadline):
            await event.wait()
    except TimeoutError:
        return False
    return True


class SerialReads:
    """Reads for listings, one at a time: a pull of old messages waits for one of them at most,
    however many callers list, and however many of these are cancelled. The caller that has waited
    longest is next. Belongs to the event loop."""

    def __init__(self) -> None:
        self._reading = asyncio.Lock()

    async def run(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait for all earlier reads, then run `begin()` and return its result or raise its error.

        A caller that is cancelled while it waits reads nothing. Cancelled later, the read still
        runs to its end, because the next one may begin only then.
        """
        await self._reading.acquire()
        read = asyncio.ensure_future(begin())
        read.add_done_callback(lambda _: self._reading.release())
        return await asyncio.shield(read)
