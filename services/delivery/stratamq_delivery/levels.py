"""Delay levels: messages wait in `SCHEDULE_TOPIC_XXXX`, and go to their topics after their delay.

The log keeps such a message in the queue of its level. REAL_TOPIC and REAL_QID name its target
topic and queue (spec 13.1). Each level is delivered in order. The copy is the proof of
the delivery (`delayed_copies.py`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import merge

import numpy as np

from stratamq.errors import StrataError
from stratamq.files.metadata import JsonObject
from stratamq.follow.fold import FoldPlace
from stratamq.follow.own_appends import OwnRecord
from stratamq.formats.topics import SCHEDULE_TOPIC
from stratamq.store.log_pieces import LogPiece
from stratamq_delivery.asked import Done
from stratamq_delivery.delayed_copies import (
    MAX_TAKEN,
    MAX_TAKEN_BYTES,
    DelayedCopies,
    WaitEnd,
)
from stratamq_delivery.level_queue import LevelQueue, Waiting
from stratamq_delivery.taken_over import TakenOver

UNDO_BYTES = 64 << 20
"""A cut of the log by no more than this is undone in place; a deeper one reads the log again."""


class Levels:
    """Implements `Machine`. Levels are queue ids of the schedule topic: 0 is RocketMQ's level 1."""

    name = "levels"

    def __init__(
        self,
        levels_ms: Sequence[int],
        followed: FoldPlace,
        taken_over: TakenOver,
        *,
        undo_bytes: int = UNDO_BYTES,
    ) -> None:
        self.version = f"1 {' '.join(map(str, levels_ms))}"
        self.missed = 0
        """Messages that the log deleted before they were delivered, since the start."""
        self.copies = DelayedCopies(followed)
        self._levels_ms = tuple(levels_ms)
        self._followed = followed
        self._taken_over = taken_over
        self._undo_bytes = undo_bytes
        self.restore({})

    def __len__(self) -> int:
        """Messages that are neither delivered nor given up."""
        return sum(queue.open for queue in self._queues.values())

    def needed(self) -> int | None:
        heads = [queue.head.offset for queue in self._queues.values() if queue.head is not None]
        return min(heads, default=None)

    @property
    def queues(self) -> Mapping[int, LevelQueue]:
        return self._queues

    def positions(self) -> dict[int, int]:
        """By level, from 1 on: up to where its queue is delivered, as RocketMQ counts. Without the
        levels that hold another program's messages: how far that one came is in its own file. Empty
        on a slave, and before the log has answered."""
        if self._followed.is_slave or not self._followed.opened:
            return {}
        below = self._taken_over.held_below
        queues = sorted(self._queues.items())
        return {level + 1: one.position for level, one in queues if not one.held(below)}

    @property
    def held(self) -> int:
        """Messages that another program stored. Nothing tells which of them it delivered: copies of
        RocketMQ's name no source."""
        below = self._taken_over.held_below
        return sum(queue.held(below) for queue in self._queues.values())

    # --- the state ---

    def restore(self, document: JsonObject) -> None:
        parts = document.get("queues")
        queues = parts.items() if isinstance(parts, dict) else ()
        self._queues = {int(level): LevelQueue(part) for level, part in queues}
        self._floor = int(str(document.get("floor", 0)))
        """Up to here what was closed has been forgotten: no cut below is undone in place."""
        self.copies.clear()
        self._again: dict[int, Waiting] = {}
        """To be taken before what is next in the queues: an operator wants something of it, or the
        log has refused what was sent."""
        self._on_the_way: dict[int, Waiting] = {}

    def snapshot(self) -> Callable[[], JsonObject]:
        made = {str(level): queue.snapshot() for level, queue in self._queues.items()}
        return partial(_document, made, self._floor)

    def apply(self, piece: LogPiece) -> None:
        columns, copies = piece.columns, piece.copies
        rows = np.flatnonzero(columns.of_topics((SCHEDULE_TOPIC,)) & columns.in_queue)
        for row in sorted({*rows.tolist(), *copies}) if copies else rows.tolist():
            source, place = copies.get(row), int(columns.physical_offset[row])
            if source is None:
                level, store_ms = int(columns.queue_id[row]), int(columns.store_timestamp_ms[row])
                number, size = int(columns.queue_offset[row]), int(columns.size[row])
                due_ms = store_ms + self._levels_ms[min(level, len(self._levels_ms) - 1)]
                queue = self._queues.setdefault(level, LevelQueue())
                queue.add(Waiting(place, size, due_ms, number))
            elif source.generation == self._followed.generation_of(source.offset):
                self._close(source.offset, place, partial(piece.frame, row))
        for place, below, positions in self._taken_over.enabled_within(piece):
            for level, position in positions.items():
                if (delivered := self._queues.get(level - 1)) is not None:
                    delivered.close_delivered(below, position, place)
        self._forget(piece.end - self._undo_bytes)

    def _close(self, offset: int, place: int, raw: Callable[[], bytes]) -> None:
        self.copies.closed(offset, place, raw)
        for queue in self._queues.values():
            if queue.close(offset, place):
                return

    def _forget(self, before: int) -> None:
        for queue in self._queues.values():
            self._floor = max(self._floor, queue.forget_closed(before))

    def cut(self, offset: int) -> int:
        if offset <= self._floor:
            self.restore({})
            return 0
        self.copies.asked.give_up()
        for queue in self._queues.values():
            queue.cut(offset)
        return offset

    def forget_below(self, minimum: int) -> None:
        self.missed += sum(queue.forget_below(minimum) for queue in self._queues.values())
        self.copies.deleted_below(minimum)

    # --- what operators want ---

    def waits(self, offset: int) -> bool:
        return self._find(offset) is not None

    def ask(self, offset: int, wanted: WaitEnd, done: Done) -> bool:
        """False: no message waits at this place of the log."""
        waiting = self._find(offset)
        if waiting is None:
            return False
        self.copies.asked.ask(offset, wanted, done)
        self._again[offset] = waiting
        return True

    def closed_at(self, offset: int) -> int | None:
        """Where the log has what closed the message; None: it is not closed, or not known."""
        places = (queue.closed_at(offset) for queue in self._queues.values())
        return next((place for place in places if place is not None), None)

    def soonest(self) -> Iterable[tuple[int, int, int, int]]:
        """What waits, soonest first: when, offset, size, and the level from 1 on."""
        return merge(*(_waiting_of(level + 1, one) for level, one in self._queues.items()))

    def _find(self, offset: int) -> Waiting | None:
        found = (queue.find(offset) for queue in self._queues.values())
        return next((waiting for waiting in found if waiting is not None), None)

    # --- what is appended ---

    def begin(self) -> None:
        self._again.clear()
        self._on_the_way.clear()
        asked = self.copies.begin()
        self._again |= {offset: found for offset in asked if (found := self._find(offset))}
        for queue in self._queues.values():
            queue.begin(self._taken_over.held_below)

    def take(self, now_ms: int, most: int) -> Sequence[OwnRecord]:
        most = min(most, MAX_TAKEN, self.copies.room)
        if most <= 0:
            return []
        records, size = self.copies.wishes(most), 0
        if len(records) == most:
            return records
        for waiting in self._due(now_ms):
            record = self._record(waiting, now_ms)
            if record is not None:
                records.append(record)
                self._on_the_way[waiting.offset] = waiting
                if waiting.due_ms <= now_ms:
                    self.copies.lateness_ms(now_ms - waiting.due_ms)
            size += waiting.size
            if len(records) >= most or size >= MAX_TAKEN_BYTES:
                break
        return records

    def due_ms(self) -> int | None:
        return self.next_due_ms() if self.copies.room > 0 else None

    def next_due_ms(self) -> int | None:
        """When the next one is due that was not taken."""
        times = [time for queue in self._queues.values() if (time := queue.due_ms) is not None]
        return min([*times, *map(self._again_ms, self._again.values())], default=None)

    def _again_ms(self, waiting: Waiting) -> int:
        return waiting.due_ms if self.copies.asked.wanted(waiting.offset) is None else 0

    def acknowledged(self, records: Sequence[OwnRecord], *, is_flushed: bool) -> None:
        for record in records:
            if record.source is not None:
                self._on_the_way.pop(record.source.offset, None)
        self.copies.acknowledged(records, is_flushed=is_flushed)

    def refused(self, record: OwnRecord, error: StrataError) -> None:
        waiting = self._on_the_way.pop(self.copies.refused(record, error), None)
        if waiting is not None:
            self._again[waiting.offset] = waiting

    def _due(self, now_ms: int) -> Iterator[Waiting]:
        """What is due, a level after the other; each once between two `begin`."""
        for waiting in list(self._again.values()):
            if self._again_ms(waiting) <= now_ms:
                yield self._again.pop(waiting.offset)
        left = [queue for _, queue in sorted(self._queues.items())]
        while left:
            for queue in list(left):
                if (waiting := queue.take(now_ms)) is None:
                    left.remove(queue)
                else:
                    yield waiting

    def _record(self, waiting: Waiting, now_ms: int) -> OwnRecord | None:
        """None: there is nothing to do. Its end is on the way or in the log; or the log is deleting
        it, and the fold will hear of it."""
        copies, offset = self.copies, waiting.offset
        if copies.is_on_the_way(offset) or self._find(offset) is None:
            return None
        if copies.asked.wanted(offset) is WaitEnd.CANCELLED:
            return copies.cancellation(offset)
        if (refusal := copies.refusal(offset)) is not None:
            return refusal
        frame = copies.frame(offset, waiting.size)
        early_ms = waiting.due_ms if waiting.due_ms > now_ms else 0
        return None if frame is None else copies.copy(offset, frame, early_ms=early_ms)


def _waiting_of(level: int, queue: LevelQueue) -> Iterator[tuple[int, int, int, int]]:
    """The queue may change meanwhile."""
    offset = -1
    while (one := queue.first_behind(offset)) is not None:
        yield one.due_ms, one.offset, one.size, level
        offset = one.offset


def _document(queues: Mapping[str, Callable[[], JsonObject]], floor: int) -> JsonObject:
    return {"queues": {level: made() for level, made in queues.items()}, "floor": floor}
