"""Messages for any time: they wait in `rmq_sys_wheel_timer`, and go to their topics when due.

The log keeps such a message in queue 0, with its time in TIMER_DELIVER_MS, and its topic and queue
in REAL_TOPIC and REAL_QID. The copy is the proof of the delivery (`delayed_copies.py`).

    stored ──► due: the copy
       └────► half of `roll_ms`, or more, has passed, and it is not due: *rolled*. It is appended
              again at the log's end, and that message, which names its source, waits in its place

So a message may wait for longer than the log keeps its segments. Rolling is spread over the second
half of `roll_ms`, by the messages' offsets, so that a burst is not rolled all at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from stratamq.errors import StrataError
from stratamq.files.metadata import JsonObject
from stratamq.follow.fold import FoldPlace
from stratamq.follow.own_appends import OwnRecord
from stratamq.follow.timers import UNDO_BYTES, Timer, Timers
from stratamq.formats.delay import timer_due_ms
from stratamq.formats.frame import Frame, decode
from stratamq.formats.properties import TIMER_DEQUEUE_MS, TIMER_ENQUEUE_MS, TIMER_ROLL_TIMES
from stratamq.formats.topics import TIMER_TOPIC
from stratamq.store.log_pieces import LogPiece
from stratamq_delivery.asked import Done
from stratamq_delivery.delayed_copies import (
    DELIVERED_BY_OTHER,
    MAX_TAKEN,
    MAX_TAKEN_BYTES,
    RECORDS,
    ROLLED_BY_OTHER,
    DelayedCopies,
    WaitEnd,
)
from stratamq_delivery.taken_over import TakenOver


class TimedMessages:
    """Implements `Machine`."""

    name = "timers"

    def __init__(
        self,
        roll_ms: int,
        followed: FoldPlace,
        taken_over: TakenOver,
        *,
        undo_bytes: int = UNDO_BYTES,
    ) -> None:
        """`roll_ms`: after so long a message that still waits is appended again, at the latest."""
        self.version = f"2 {roll_ms}"
        self.rolled = 0
        """Messages that were appended again, since the start."""
        self.copies = DelayedCopies(followed)
        self._roll_ms = roll_ms
        self._followed = followed
        self._taken_over = taken_over
        self._timers = Timers(undo_bytes=undo_bytes)

    def __len__(self) -> int:
        """Messages that are neither delivered nor given up."""
        return len(self._timers)

    def needed(self) -> int | None:
        return self._timers.first_open

    @property
    def held(self) -> int:
        """Messages that another program stored. Nothing tells which of them it delivered."""
        return self._timers.waiting_below(self._taken_over.held_below)

    def waiting(self) -> list[tuple[int, int]]:
        """Offset and size of the messages that are neither delivered nor given up."""
        return self._timers.waiting()

    @property
    def missed(self) -> int:
        """Messages that the log deleted before they were delivered, since the start."""
        return self._timers.missed

    # --- the state ---

    def restore(self, document: JsonObject) -> None:
        self._timers.restore(document)
        self.copies.clear()

    def snapshot(self) -> Callable[[], JsonObject]:
        return self._timers.snapshot()

    def apply(self, piece: LogPiece) -> None:
        columns, copies = piece.columns, piece.copies
        is_timed = columns.of_topics((TIMER_TOPIC,)) & columns.in_queue
        timed = np.flatnonzero(is_timed).tolist()
        for row in sorted({*timed, *copies}):
            place, source = int(columns.physical_offset[row]), copies.get(row)
            if source and source.generation == self._followed.generation_of(source.offset):
                self._timers.closed(source.offset, place)
                self.copies.closed(source.offset, place, partial(piece.frame, row))
            if is_timed[row]:
                frame = decode(piece.frame(row))
                assert isinstance(frame, Frame)
                self._timers.add(place, frame.total_size, self._act_ms(frame, place))

    def _act_ms(self, frame: Frame, place: int) -> int:
        """When something is to be done: the message is due, or is to be rolled."""
        half_ms = self._roll_ms // 2
        roll_ms = frame.store_timestamp_ms + half_ms + (half_ms * _scattered(place) >> 32)
        return min(due_ms_of(frame), roll_ms)

    def cut(self, offset: int) -> int:
        self.copies.asked.give_up()
        return self._timers.cut(offset)

    def forget_below(self, minimum: int) -> None:
        self._timers.forget_below(minimum)
        self.copies.deleted_below(minimum)

    # --- what operators want ---

    def waits(self, offset: int) -> bool:
        return self._timers.is_open(offset)

    def ask(self, offset: int, wanted: WaitEnd, done: Done) -> bool:
        """False: no message waits at this place of the log."""
        if not self._timers.is_open(offset):
            return False
        self.copies.asked.ask(offset, wanted, done)
        self._timers.again(offset)
        return True

    def closed_at(self, offset: int) -> int | None:
        """Where the log has what closed the message; None: it is not closed, or not known."""
        return self._timers.closed_at(offset)

    def soonest(self, most: int) -> Callable[[], list[tuple[int, int, int]]]:
        """What waits, in the order in which something is to be done for it: when, offset and size.
        The result may be called on a worker."""
        return self._timers.soonest(most)

    # --- what is appended ---

    def begin(self) -> None:
        asked = self.copies.begin()
        self._timers.begin(self._taken_over.held_below)
        for offset in asked:
            self._timers.again(offset)

    def take(self, now_ms: int, most: int) -> Sequence[OwnRecord]:
        most = min(most, MAX_TAKEN, self.copies.room)
        records, size = self.copies.wishes(max(0, most)), 0
        while len(records) < most and size < MAX_TAKEN_BYTES:
            timers = self._timers.due(now_ms, 1)
            if not timers:
                break
            record = self._record(timers[0], now_ms)
            if record is not None:
                records.append(record)
            size += timers[0].size
        return records

    def due_ms(self) -> int | None:
        return self.next_due_ms() if self.copies.room > 0 else None

    def next_due_ms(self) -> int | None:
        """When the next one is due that was not taken."""
        return self._timers.due_ms()

    def acknowledged(self, records: Sequence[OwnRecord], *, is_flushed: bool) -> None:
        rolled = [record for record in records if record.topic == TIMER_TOPIC]
        self.rolled += len(rolled)
        others = [record for record in records if record.topic != TIMER_TOPIC]
        self.copies.acknowledged(others, is_flushed=is_flushed)

    def refused(self, record: OwnRecord, error: StrataError) -> None:
        self._timers.again(self.copies.refused(record, error))

    def _record(self, timer: Timer, now_ms: int) -> OwnRecord | None:
        """None: there is nothing to do now. Its end is on the way, or its time has not come; or the
        log is deleting it, and the fold will hear of it."""
        copies, offset = self.copies, timer.offset
        if copies.is_on_the_way(offset):
            return None
        wanted = copies.asked.wanted(offset)
        if wanted is WaitEnd.CANCELLED:
            return copies.cancellation(offset)
        if (refusal := copies.refusal(offset)) is not None:
            return refusal
        if wanted is None and timer.due_ms > now_ms:
            self._timers.put_back(offset)
            return None
        frame = copies.frame(offset, timer.size)
        if frame is None:
            return None
        if (fate := self._foreign_fate(frame, offset)) is not None:
            return OwnRecord(RECORDS, fate, source=copies.source(offset))
        times = {
            TIMER_ENQUEUE_MS: str(frame.store_timestamp_ms),
            TIMER_DEQUEUE_MS: str(now_ms),
        }
        if (due_ms := due_ms_of(frame)) <= now_ms:
            copies.lateness_ms(now_ms - due_ms)
            return copies.copy(offset, frame, times)
        if wanted is not None:
            return copies.copy(offset, frame, times, due_ms)
        rolls = frame.properties.get(TIMER_ROLL_TIMES, "0")
        times[TIMER_ROLL_TIMES] = str(int(rolls) + 1) if rolls.isdigit() else "1"
        return replace(copies.copy(offset, frame, times), topic=TIMER_TOPIC, queue_id=0)

    def _foreign_fate(self, frame: Frame, offset: int) -> bytes | None:
        """What RocketMQ did with a message of its own before its log was taken over, as its newest
        message shows: it delivers by storing. None: nothing, or the message is ours."""
        newest_ms = self._taken_over.newest_ms
        if offset >= self._taken_over.below:
            return None
        due_ms = due_ms_of(frame)
        rolled_ms = _rolled_at_ms(frame.store_timestamp_ms, due_ms)
        if rolled_ms is not None and rolled_ms <= newest_ms:
            return ROLLED_BY_OTHER
        return DELIVERED_BY_OTHER if due_ms <= newest_ms else None


ROCKETMQ_WINDOW_MS = 172_800_000
"""RocketMQ's `timerRollWindowSlots`, of a second each: what waits for longer is appended again."""


def _rolled_at_ms(store_ms: int, due_ms: int) -> int | None:
    """When RocketMQ appends a message again; None: it delivers it."""
    rest_ms = due_ms - store_ms - ROCKETMQ_WINDOW_MS
    if rest_ms < 0:
        return None
    half = 2 if rest_ms < ROCKETMQ_WINDOW_MS // 3 else 1
    return store_ms + ROCKETMQ_WINDOW_MS // half


def due_ms_of(frame: Frame) -> int:
    """At once if nothing says when."""
    due_ms = timer_due_ms(frame.properties)
    return frame.store_timestamp_ms if due_ms is None else due_ms


def _scattered(offset: int) -> int:
    """32 bits, which neighbours do not share."""
    return offset * 0x9E3779B97F4A7C15 >> 32 & 0xFFFF_FFFF
