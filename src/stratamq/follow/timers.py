"""Messages that wait for a time: each is due once, until the log shows that it was delivered.

    added            the message, at its offset in the log, with the time at which it is due
      └► delivered   a copy is in the log: the proof
           └► closed a record of the service says that nothing is left to do for it

The fold calls `add`, `delivered` and `closed` for what the log holds, and for nothing else. What
was taken is a mark in memory, until the log shows it or `begin` takes the mark away. So the state
at a position of the log depends on the log alone.

*Memory*: columns of 37 bytes a timer, at most twice as much while they grow, and 100 bytes for each
of the `SOON` timers that are due next: a million timers take at most 90 MB. *Cost*: adding and
taking is constant on average. Once for about `SOON` timers that are taken, all times are compared:
5 ms for a million.

The columns are `LogRows`, which undo a cut of the log.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stratamq.files.metadata import JsonObject
from stratamq.follow.log_rows import NEVER, UNDO_BYTES, LogRows

SOON = 16_384
SAMPLE = 4_096
_FAR = 1 << 62
_COLUMNS = {"due": "i8", "size": "i4", "delivered_at": "i8", "taken": "?"}


@dataclass(frozen=True, slots=True)
class Timer:
    """A message that is due, or one that was delivered and is to be closed."""

    offset: int
    size: int
    due_ms: int
    delivered_at: int | None
    """The copy's offset in the log."""


class Timers:
    """All timers of one log. Offsets in bytes of the log. Single-threaded."""

    def __init__(self, *, undo_bytes: int = UNDO_BYTES, soon: int = SOON) -> None:
        self.missed = 0
        """Timers whose messages the log deleted before they were delivered, since the start."""
        self._soon = soon
        self._rows = LogRows(_COLUMNS, fixed=("due", "size"), undo_bytes=undo_bytes)
        self._given_up: set[int] = set()
        self.begin()

    def __len__(self) -> int:
        """Timers that are not closed."""
        return self._rows.open_count

    def waiting(self) -> list[tuple[int, int]]:
        """Offset and size of the messages whose timers are not closed."""
        rows = np.flatnonzero(self._rows["closed_at"] == NEVER)
        offsets, sizes = (self._rows[name][rows].tolist() for name in ("source", "size"))
        return list(zip(offsets, sizes, strict=True))

    @property
    def first_open(self) -> int | None:
        """The first message whose timer is not closed."""
        return self._rows.first_open

    def waiting_below(self, offset: int) -> int:
        """Timers of messages below that are not closed."""
        below = int(np.searchsorted(self._rows["source"], offset))
        return int((self._rows["closed_at"][:below] == NEVER).sum())

    def is_open(self, offset: int) -> bool:
        """Whether the timer of the message is known and not closed."""
        row = self._rows.row_of(offset)
        return row is not None and self._rows.is_open(row)

    def closed_at(self, offset: int) -> int | None:
        """Where the log has what closed the timer; None: it is not closed, or not known."""
        row = self._rows.row_of(offset)
        if row is None or self._rows.is_open(row):
            return None
        return int(self._rows["closed_at"][row])

    def soonest(self, most: int) -> Callable[[], list[tuple[int, int, int]]]:
        """So many timers that are not closed, soonest first: when they are due, offset and size.
        The result may be called on a worker: it sees the timers as they are now."""
        rows = self._rows
        due, source, size = rows["due"], rows["source"], rows["size"]
        is_open = rows["closed_at"] == NEVER

        def found() -> list[tuple[int, int, int]]:
            chosen = np.flatnonzero(is_open)
            chosen = chosen[np.lexsort((source[chosen], due[chosen]))[:most]]
            columns = (one[chosen].tolist() for one in (due, source, size))
            return list(zip(*columns, strict=True))

        return found

    # --- what the log holds ---

    def add(self, offset: int, size: int, due_ms: int) -> None:
        """A message of the log, behind all that were added."""
        self._rows.add(offset, size=size, due=due_ms, taken=False)
        if (due_ms, offset) >= self._horizon:
            self._next_window = min(self._next_window, due_ms)
        else:
            heapq.heappush(self._heap, (due_ms, offset))
            if len(self._heap) > 2 * self._soon:
                self._begin_windows()

    def delivered(self, offset: int, at: int) -> None:
        """The log has at `at` a copy of the message at `offset`. The first one counts."""
        row = self._rows.row_of(offset)
        if row is not None and self._rows["delivered_at"][row] == NEVER:
            self._rows["delivered_at"][row] = at
            self._rows["taken"][row] = False
            self._to_close.append(offset)

    def closed(self, offset: int, at: int) -> None:
        """The log has at `at` a record that nothing is left to do for the message at `offset`."""
        row = self._rows.row_of(offset)
        if row is None or not self._rows.is_open(row):
            return
        self._rows.close(row, at)
        self._given_up.discard(offset)
        while self._to_close and not self.is_open(self._to_close[0]):
            self._to_close.popleft()

    def cut(self, offset: int) -> int:
        """The log was cut at `offset`. Returns from where it is read again: there, or from 0 on."""
        position = self._rows.cut(offset)
        self._given_up = {one for one in self._given_up if one < position}
        self.begin()
        return position

    def forget_below(self, minimum: int) -> None:
        """The log has deleted its messages below: they cannot be delivered any more."""
        gone = int(np.searchsorted(self._rows["source"], minimum))
        never_delivered = self._rows["delivered_at"][:gone] == NEVER
        self.missed += int((never_delivered & (self._rows["closed_at"][:gone] == NEVER)).sum())
        self._given_up = {one for one in self._given_up if one >= minimum}
        self._rows.forget_below(minimum)

    # --- what the author takes ---

    def begin(self, held_below: int = 0) -> None:
        """Nothing is in flight: what was taken and is not in the log is to be taken again. Messages
        below `held_below` are not taken."""
        rows = self._rows
        rows["taken"][:] = rows["source"] < held_below
        to_close = (rows["delivered_at"] != NEVER) & (rows["closed_at"] == NEVER)
        self._to_close = deque([*rows["source"][to_close].tolist(), *self._given_up])
        self._begin_windows()

    def give_up(self, offset: int) -> None:
        """The message cannot be delivered: it is to be closed. Forgotten by a restart."""
        if self._rows.row_of(offset) is not None:
            self._given_up.add(offset)
            self.again(offset)

    def again(self, offset: int) -> None:
        """What was taken is not in flight: it is to be taken once more, before what is due."""
        row = self._rows.row_of(offset)
        if row is not None:
            self._rows["taken"][row] = False
            self._to_close.append(offset)

    def put_back(self, offset: int) -> None:
        """It was taken before its time, and is to be taken when it is due."""
        row = self._rows.row_of(offset)
        if row is None:
            return
        self._rows["taken"][row] = False
        due_ms = int(self._rows["due"][row])
        if (due_ms, offset) < self._horizon:
            heapq.heappush(self._heap, (due_ms, offset))

    def is_given_up(self, offset: int) -> bool:
        return offset in self._given_up

    def due(self, now_ms: int, most: int) -> list[Timer]:
        """What is to be closed, then what is due, in order of time; each once between two
        `begin`."""
        timers: list[Timer] = []
        while len(timers) < most and (row := self._next_row(now_ms)) is not None:
            self._rows["taken"][row] = True
            names = ("source", "size", "due", "delivered_at")
            source, size, due, delivered = (int(self._rows[name][row]) for name in names)
            timers.append(Timer(source, size, due, None if delivered == NEVER else delivered))
        return timers

    def due_ms(self) -> int | None:
        """When something is due, at the earliest; None: nothing waits."""
        if self._to_close:
            return 0
        due = min(self._heap[0][0] if self._heap else _FAR, self._next_window)
        return None if due == _FAR else due

    def _next_row(self, now_ms: int) -> int | None:
        while self._to_close:
            row = self._rows.row_of(self._to_close.popleft())
            if row is not None and self._rows.is_open(row) and not self._rows["taken"][row]:
                return row
        while True:
            if not self._heap and self._next_window <= now_ms:
                self._open_window()
            if not self._heap or self._heap[0][0] > now_ms:
                return None
            _, offset = heapq.heappop(self._heap)
            row = self._rows.row_of(offset)
            if row is not None and self._waits(row):
                return row

    def _begin_windows(self) -> None:
        self._heap: list[tuple[int, int]] = []
        """(due, source) of what is due before the horizon, and perhaps taken or delivered."""
        self._horizon = (-_FAR, 0)
        """Time and source of the first one that is not in the heap."""
        self._next_window = int(self._rows["due"].min()) if len(self) else _FAR
        """Nothing from the horizon on is due before."""

    def _open_window(self) -> None:
        """Find about `soon` that are due next; of one time the first in the log."""
        due, source = self._rows["due"], self._rows["source"]
        time, place = self._horizon
        limit = self._estimate(due)
        rows = np.flatnonzero((due >= time) & (due <= limit))
        rows = rows[self._waiting(rows) & ((due[rows] > time) | (source[rows] >= place))]
        if not len(rows) and limit < _FAR:
            limit = _FAR
            rows = np.flatnonzero(self._waiting(slice(None)) & (due >= time))
            rows = rows[(due[rows] > time) | (source[rows] >= place)]
        times = due[rows]
        self._horizon = (limit + 1, 0) if limit < _FAR else (_FAR, 0)
        self._next_window = self._horizon[0]
        if len(rows) > 2 * self._soon or (limit == _FAR and len(rows) > self._soon):
            time = int(np.partition(times, self._soon)[self._soon])
            before, equal = np.flatnonzero(times < time), np.flatnonzero(times == time)
            room = self._soon - len(before)
            self._horizon, self._next_window = (time, int(source[rows[equal[room]]])), time
            chosen = np.concatenate((before, equal[:room]))
            rows, times = rows[chosen], times[chosen]
        in_order = np.lexsort((rows, times))
        sources = source[rows[in_order]].tolist()
        self._heap = list(zip(times[in_order].tolist(), sources, strict=True))  # sorted: a heap

    def _estimate(self, due: NDArray[np.int64]) -> int:
        """A time up to which about `soon` are due from the horizon on; `_FAR`: all that wait."""
        sample = due[:: max(1, len(due) // SAMPLE)]
        sample = sample[sample >= self._horizon[0]]
        number = 3 * len(sample) * self._soon // (4 * max(1, len(self)))
        if not 0 < number < len(sample):
            return _FAR
        return int(np.partition(sample, number)[number])

    def _waiting(self, rows: NDArray[np.int64] | slice) -> NDArray[np.bool_]:
        columns = self._rows
        never = (columns["delivered_at"][rows] == NEVER) & (columns["closed_at"][rows] == NEVER)
        return never & ~columns["taken"][rows].astype(np.bool_, copy=False)

    def _waits(self, row: int) -> bool:
        never = self._rows["delivered_at"][row] == NEVER and self._rows.is_open(row)
        return bool(never and not self._rows["taken"][row])

    # --- the snapshot ---

    def snapshot(self) -> Callable[[], JsonObject]:
        """The document, made when the result is called, of the timers as they are now."""
        return self._rows.snapshot()

    def restore(self, document: JsonObject) -> None:
        """Be as a snapshot was; an empty document: without timers."""
        self._rows.restore(document)
        self._given_up.clear()
        self.begin()
