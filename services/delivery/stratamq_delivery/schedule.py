"""Operators' view of waiting messages and their decisions: list, deliver now, cancel, and deliver
what another program stored."""

import asyncio
from bisect import bisect_right, insort
from collections.abc import AsyncIterator, Callable
from heapq import merge
from typing import NamedTuple

from stratamq.errors import InvalidRequestError, NotFoundError, StrataError
from stratamq.follow.own_appends import OwnAppends
from stratamq.follow.queues import QueueCalls
from stratamq.formats.frame import Frame
from stratamq.formats.properties import REAL_TOPIC, UNIQ_KEY
from stratamq.formats.source_item import MessageSource
from stratamq.service.awaiting import outcome, succeeded
from stratamq_delivery.asked import Done
from stratamq_delivery.check_floors import checked_by_rocketmq
from stratamq_delivery.delayed_copies import WaitEnd, not_waiting
from stratamq_delivery.levels import Levels
from stratamq_delivery.rocketmq_files import RocketMQFiles
from stratamq_delivery.taken_over import HALVES, TakenOver
from stratamq_delivery.timed_messages import TimedMessages, due_ms_of
from stratamq_delivery.transactions import Transactions

MAX_LOOKED_AT = 10_000
"""Messages that are read for one page."""
STEP = 32
"""Messages that are read between two turns of other tasks."""


class HeldCounts(NamedTuple):
    """Messages that another program stored, and that are not delivered or checked. Which of the
    timed ones RocketMQ has delivered is found out when they are taken."""

    delayed: int
    timed: int
    halves: int


class Scheduled(NamedTuple):
    """A message that waits. `level`: from 1 on; 0: it waits for a time of its own."""

    source: MessageSource
    level: int
    due_ms: int
    is_held: bool
    frame: Frame


class Schedule:
    """Belongs to the event loop of the fold."""

    def __init__(
        self,
        taken_over: TakenOver,
        levels: Levels,
        timed: TimedMessages,
        transactions: Transactions,
        files: RocketMQFiles,
        appends: OwnAppends,
        queues: QueueCalls,
        moved: Callable[[], None],
    ) -> None:
        """`moved`: there is something to append."""
        self._taken_over = taken_over
        self._levels = levels
        self._timed = timed
        self._transactions = transactions
        self._files = files
        self._appends = appends
        self._queues = queues
        self._moved = moved
        self._held_below = 0
        """`held_below` when the state moved last."""

    def held(self) -> HeldCounts:
        return HeldCounts(self._levels.held, self._timed.held, self._transactions.halves.held)

    @property
    def held_newest_ms(self) -> int:
        """Store time of the newest message that another program stored."""
        return self._taken_over.newest_ms

    def moved(self) -> None:
        """The state has come further. What was held is taken from a stream's beginning on."""
        if not self._appends.is_active:
            self._taken_over.give_up()
        for machine in (self._levels, self._timed):
            if not self._appends.is_active:
                machine.copies.asked.give_up()
            machine.copies.asked.answer()
        below = self._taken_over.held_below
        if below < self._held_below:
            self._appends.begin_again()
        self._held_below = below

    async def enable(self) -> HeldCounts:
        """Deliver what is held. Returns what was. NotWritableError on a slave."""
        self._appends.require_active("delivery")
        halves = await checked_by_rocketmq(self._queues)
        positions = {**self._files.delay_offsets.table, HALVES: halves}
        held = self.held()

        def enable(on_done: Callable[[None, BaseException | None], None]) -> None:
            self._taken_over.enable(positions, lambda error: on_done(None, error))
            self._moved()

        await outcome(enable)
        return held

    async def waiting(self, topic: str, limit: int) -> tuple[list[Scheduled], bool]:
        """The messages that wait, soonest first, of one topic or (empty) of all; and whether there
        may be more, since at most MAX_LOOKED_AT are read."""
        found, times, looked_at = list[Scheduled](), list[int](), 0
        may_be_more = False
        async for act_ms, one in self._soonest():
            if bisect_right(times, act_ms) > limit or looked_at == MAX_LOOKED_AT:
                may_be_more = True
                break
            looked_at += 1
            if one is not None and topic in ("", one.frame.properties.get(REAL_TOPIC)):
                found.append(one)
                insort(times, one.due_ms)
        found.sort(key=lambda one: (one.due_ms, one.source))
        return found[:limit], may_be_more or len(found) > limit

    async def _soonest(self) -> AsyncIterator[tuple[int, Scheduled | None]]:
        """All that wait, in the order in which something is done for them: at the times that are
        given, they are delivered or appended again. None: the log is deleting the message."""
        timed = await asyncio.to_thread(self._timed.soonest(MAX_LOOKED_AT + 1))
        copies, below = self._levels.copies, self._taken_over.held_below
        rows = merge(self._levels.soonest(), ((*one, 0) for one in timed))
        for number, (act_ms, offset, size, level) in enumerate(rows):
            if number % STEP == STEP - 1:
                await asyncio.sleep(0)
            one, frame = None, copies.frame(offset, size)
            if frame is not None:
                due_ms = act_ms if level else due_ms_of(frame)
                one = Scheduled(copies.source(offset), level, due_ms, offset < below, frame)
            yield act_ms, one

    async def end(self, source: MessageSource, wanted: WaitEnd) -> None:
        """Cancel a message that waits, or deliver it now: final on return. NotFoundError, which
        says why, for one that does not wait; to cancel a cancelled one again changes nothing.
        NotWritableError on a slave. What else the log says to the copy: the message waits on."""
        self._appends.require_active("delivery")
        if self._levels.copies.source(source.offset) != source:
            raise NotFoundError(f"message {source.generation}:{source.offset} is not of this log")
        if wanted is WaitEnd.DELIVERED and source.offset < self._taken_over.held_below:
            raise InvalidRequestError("another program stored the message: enable the schedule")

        def ask(done: Done) -> None:
            machines = (self._levels, self._timed)
            if any(machine.ask(source.offset, wanted, done) for machine in machines):
                self._moved()
            else:
                done(self._not_waiting(source, wanted))

        await succeeded(ask)

    async def recall(self, topic: str, offset: int, unique_key: str) -> None:
        """Cancel a message for its producer, wherever it was appended again since: final on return.
        NotFoundError, which says why: it does not wait, or is another, or was cancelled before.
        NotWritableError on a slave."""
        self._appends.require_active("delivery")
        machines, copies = (self._levels, self._timed), self._levels.copies
        while not any(machine.waits(offset) for machine in machines):
            closed = self._closed(offset)
            if closed is None:
                raise NotFoundError(f"no message waits at offset {offset}")
            if closed[0] is not WaitEnd.ROLLED:
                raise not_waiting(copies.source(offset), closed[0])
            offset = closed[1]
        frame = copies.stored_at(offset)
        found = {} if frame is None else frame.properties
        if (found.get(REAL_TOPIC), found.get(UNIQ_KEY)) != (topic, unique_key):
            raise NotFoundError(f"the message of offset {offset} is not {unique_key} of {topic}")
        await self.end(copies.source(offset), WaitEnd.CANCELLED)

    def _not_waiting(self, source: MessageSource, wanted: WaitEnd) -> StrataError | None:
        """What is said of a message that does not wait. None: it has the end that is wanted, and
        the first answer may have been lost. UnavailableError: the log has not flushed its end."""
        closed = self._closed(source.offset)
        if closed is None:
            return NotFoundError(f"no message waits at {source.generation}:{source.offset}")
        is_done = wanted is closed[0] is WaitEnd.CANCELLED
        return None if is_done else not_waiting(source, closed[0])

    def _closed(self, offset: int) -> tuple[WaitEnd, int] | None:
        """How the wait of a message ended, and where the log has that; None: not known."""
        for machine in (self._levels, self._timed):
            place = machine.closed_at(offset)
            if place is not None and (end := machine.copies.wait_end_at(place)) is not None:
                return end, place
        return None
