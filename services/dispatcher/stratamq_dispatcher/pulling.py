"""Pulls as consumers make them: at once, waiting for a first message, or without end.

An answer may hold views of the log's mapping. Whoever gets one copies it before waiting for
anything, and nothing here keeps one.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from stratamq.errors import CorruptionError, UnavailableError
from stratamq.files.port import Worker
from stratamq.service.awaiting import OnDone, answer, outcome
from stratamq_dispatcher.cold_reads import ColdReads, LogView
from stratamq_dispatcher.consume_queue import ConsumeQueue
from stratamq_dispatcher.engine import DispatchEngine
from stratamq_dispatcher.frame_reads import DamagedFrameError
from stratamq_dispatcher.long_poll import ANYTHING, QueueKey
from stratamq_dispatcher.pull import (
    GetStatus,
    PullAnswer,
    PullLimits,
    PullQuery,
    TagFilter,
)
from stratamq_dispatcher.time_search import Boundary

T = TypeVar("T")

CURSORS_AT_ONCE = 64
"""So many queues are taken up, or found without news, before other tasks get their turn."""
MOST_UNMENDABLE = 10_000
_NOTHING_YET = (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE)
_LOOK_FURTHER = (
    GetStatus.NO_MATCHED_MESSAGE,
    GetStatus.MESSAGE_WAS_REMOVING,
    GetStatus.OFFSET_FOUND_NULL,
)


@dataclass(slots=True)
class Cursor:
    """Where a stream is in one of its queues. `end_offset` None: it never ends."""

    topic: str
    queue_id: int
    offset: int
    end_offset: int | None = None

    @property
    def key(self) -> QueueKey:
        return self.topic, self.queue_id

    @property
    def is_done(self) -> bool:
        return self.end_offset is not None and self.offset >= self.end_offset


class Puller:
    """Belongs to the event loop."""

    def __init__(
        self, engine: DispatchEngine, limits: PullLimits, cold: ColdReads, lane: Worker
    ) -> None:
        self.limits = limits
        self._engine = engine
        self._cold = cold
        self._lane = lane
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
        except CorruptionError as error:
            self._engine.findings.add_damage(error)
            if not (isinstance(error, DamagedFrameError) and await self._mend(query, error)):
                raise
        return await self._once(query)

    async def _mend(self, query: PullQuery, error: DamagedFrameError) -> bool:
        """Whether the log gave the damaged units again. Each unit is tried once."""
        unit = query.topic, query.queue_id, error.queue_offset
        if unit in self._unmendable or len(self._unmendable) >= MOST_UNMENDABLE:
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
        engine = self._engine
        plan = engine.plan_pull(query, self.limits)
        if isinstance(plan, PullAnswer):
            return plan
        if plan.cold:
            view = self._log_view()
            return await self._in_lane(lambda: self._cold.pull(plan, view))
        return plan.run(engine.hot_log())

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
                if engine.applied >= log_offset or engine.stopped_reason or self._stopping:
                    return
                if not await _within(grown, deadline):
                    raise UnavailableError(
                        f"the queues hold the log up to {engine.applied}, not yet up to "
                        f"{log_offset}"
                    )

    async def waiting(self, query: PullQuery, wait_ms: int) -> PullAnswer:
        """Like `once`, but wait so long for a first message that is wanted."""
        if not wait_ms:
            return await self.once(query)
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
        self, cursors: Iterable[Cursor], tag_filter: TagFilter | None, max_bytes: int
    ) -> AsyncGenerator[tuple[int, PullAnswer], None]:
        """Everything from the cursors on, a piece of each queue in turn; ends when all have ended
        or the service stops. Answers that hold no message tell of offsets that moved.

        The work for a message does not depend on the number of cursors.
        """
        grown, looks = asyncio.Event(), 0
        with self._engine.waiting.watch(grown.set) as watch:
            unfinished: dict[int, Cursor] = {}
            for number, cursor in enumerate(cursors):
                if not cursor.is_done:
                    watch.add(number, cursor.key)
                    unfinished[number] = cursor
                if number % CURSORS_AT_ONCE == CURSORS_AT_ONCE - 1:
                    await asyncio.sleep(0)
            while unfinished and not self._stopping:
                grown.clear()
                ready = watch.take()
                if ready is None:
                    await grown.wait()
                    continue
                cursor = unfinished[ready]
                answer = await self._look(cursor, tag_filter, max_bytes)
                if answer.status not in _NOTHING_YET:
                    cursor.offset = answer.next_offset
                if cursor.is_done:
                    del unfinished[ready]
                elif answer.next_offset != answer.maximum:
                    watch.again(ready)
                    if answer.status in _LOOK_FURTHER:
                        await asyncio.sleep(0)
                        continue
                looks += 1
                if answer.status not in _NOTHING_YET:
                    yield ready, answer
                elif looks % CURSORS_AT_ONCE == 0:
                    await asyncio.sleep(0)

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
        engine = self._engine
        unknown = [
            queue
            for queue in queues
            if queue.known_minimum(engine.followed.minimum) is None
            or engine.newest_store_timestamp_ms(queue) is None
        ]
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
                if queue.newest_ms < 0:
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
        return await self._in_lane(
            lambda: self._cold.offset_at(snapshot, timestamp_ms, boundary, view)
        )

    def _log_view(self) -> LogView:
        engine = self._engine
        return LogView(
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


async def _within(event: asyncio.Event, deadline: float) -> bool:
    """Wait for `event`; False when the loop's time passed `deadline` first."""
    try:
        async with asyncio.timeout_at(deadline):
            await event.wait()
    except TimeoutError:
        return False
    return True
