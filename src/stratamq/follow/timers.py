"""Messages that wait for a time: each is due once, until the log shows that it was delivered.

    added            the message, at its offset in the log, with the time at which it is due
      └► delivered   a copy is in the log: the proof
           └► closed a record of the service says that nothing is left to do for it

The fold calls `add`, `delivered` and `closed` for what the log holds, and for nothing else. What
was taken is a mark in memory, until the log shows it or `begin` takes the mark away. So the state
at a position of the log depends on the log alone.

*Memory*: columns of 37 bytes a timer, at most twice as much while they grow, and 100 bytes for each
of the `SOON` timers that are due next: a million timers take at most 90 MB. *Cost*: adding and
taking is constant on average. Once in `WINDOW_MS`, and only if something is due in it, all times
are compared: 2 ms for a million. A snapshot copies the columns, and is encoded on the worker.

*Cuts*: what is closed stays in memory until the log is `UNDO_BYTES` further, so that a cut above
that is undone in place. A deeper one begins again at the log's beginning, from where all that is
not deleted is found.
"""

import heapq
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from stratamq.files.metadata import JsonObject

WINDOW_MS = 1_000
SOON = 65_536
UNDO_BYTES = 64 << 20
_NONE = -1
_FAR = 1 << 62
_FIRST_ROOM = 1_024
_COLUMNS = {"source": "i8", "due": "i8", "size": "i4", "delivered": "i8", "closed": "i8"}

I64 = NDArray[np.int64]


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
        self._undo_bytes = undo_bytes
        self._soon = soon
        self._clear()

    def _clear(self) -> None:
        self._columns = {name: np.zeros(_FIRST_ROOM, kind) for name, kind in _COLUMNS.items()}
        self._taken = np.zeros(_FIRST_ROOM, np.bool_)
        self._count = 0
        self._live = 0
        """Not closed."""
        self._given_up: set[int] = set()
        self._next_window = _FAR
        self._floor = 0
        """Up to here what was closed has been forgotten: no cut below is undone in place."""
        self._position = 0
        self.begin()

    def __len__(self) -> int:
        """Timers that are not closed."""
        return self._live

    def waiting_below(self, offset: int) -> int:
        """Timers of messages below that are not closed."""
        rows = slice(0, int(np.searchsorted(self._columns["source"][: self._count], offset)))
        return int((self._columns["closed"][rows] == _NONE).sum())

    def waiting(self) -> list[tuple[int, int]]:
        """Offset and size of the messages whose timers are not closed."""
        rows = np.flatnonzero(self._columns["closed"][: self._count] == _NONE)
        offsets, sizes = (self._columns[name][rows].tolist() for name in ("source", "size"))
        return list(zip(offsets, sizes, strict=True))

    # --- what the log holds ---

    def add(self, offset: int, size: int, due_ms: int) -> None:
        """A message of the log, behind all that were added."""
        count = self._count
        assert not count or offset > self._columns["source"][count - 1]
        if count == len(self._taken):
            self._make_room()
            count = self._count
        for name, value in zip(_COLUMNS, (offset, due_ms, size, _NONE, _NONE), strict=True):
            self._columns[name][count] = value
        self._taken[count] = False
        self._count += 1
        self._live += 1
        self._position = offset + size
        if due_ms >= self._horizon:
            self._next_window = min(self._next_window, due_ms)
        else:
            heapq.heappush(self._heap, (due_ms, offset))
            if len(self._heap) > 2 * self._soon:
                self._begin_windows()

    def delivered(self, offset: int, at: int) -> None:
        """The log has at `at` a copy of the message at `offset`. The first one counts."""
        row = self._row(offset)
        if row is not None and self._columns["delivered"][row] == _NONE:
            self._columns["delivered"][row] = at
            self._taken[row] = False
            self._to_close.append(offset)

    def closed(self, offset: int, at: int) -> None:
        """The log has at `at` a record that nothing is left to do for the message at `offset`."""
        row = self._row(offset)
        if row is None or self._columns["closed"][row] != _NONE:
            return
        self._columns["closed"][row] = at
        self._given_up.discard(offset)
        self._live -= 1
        self._position = at
        while self._to_close and not self._is_open(self._to_close[0]):
            self._to_close.popleft()

    def cut(self, offset: int) -> int:
        """The log was cut at `offset`. Returns from where it is read again: there, or from 0 on."""
        if offset <= self._floor:
            self._clear()
            return 0
        columns, count = self._columns, self._count
        self._count = int(np.searchsorted(columns["source"][:count], offset))
        for name in ("delivered", "closed"):
            values = columns[name][: self._count]
            values[values >= offset] = _NONE
        self._live = int((columns["closed"][: self._count] == _NONE).sum())
        self._given_up = {one for one in self._given_up if one < offset}
        self._position = min(self._position, offset)
        self.begin()
        return offset

    def forget_below(self, minimum: int) -> None:
        """The log has deleted its messages below: they cannot be delivered any more."""
        count = self._count
        gone = int(np.searchsorted(self._columns["source"][:count], minimum))
        if gone:
            rows = slice(0, gone)
            is_open = self._columns["closed"][rows] == _NONE
            self.missed += int((is_open & (self._columns["delivered"][rows] == _NONE)).sum())
            self._live -= int(is_open.sum())
            self._given_up = {one for one in self._given_up if one >= minimum}
            self._keep(np.arange(gone, count))

    # --- what the author takes ---

    def begin(self, held_below: int = 0) -> None:
        """Nothing is in flight: what was taken and is not in the log is to be taken again. Messages
        below `held_below` are not taken."""
        count = self._count
        self._taken[:count] = self._columns["source"][:count] < held_below
        columns = self._columns
        rows = (columns["delivered"][:count] != _NONE) & (columns["closed"][:count] == _NONE)
        self._to_close = deque([*columns["source"][:count][rows].tolist(), *self._given_up])
        self._begin_windows()

    def give_up(self, offset: int) -> None:
        """The message cannot be delivered: it is to be closed. Forgotten by a restart."""
        if self._row(offset) is not None:
            self._given_up.add(offset)
            self.again(offset)

    def again(self, offset: int) -> None:
        """What was taken is not in flight: it is to be taken once more, before what is due."""
        row = self._row(offset)
        if row is not None:
            self._taken[row] = False
            self._to_close.append(offset)

    def is_given_up(self, offset: int) -> bool:
        return offset in self._given_up

    def due(self, now_ms: int, most: int) -> list[Timer]:
        """What is to be closed, then what is due, in order of time; each once between two
        `begin`."""
        timers: list[Timer] = []
        while len(timers) < most and (row := self._next_row(now_ms)) is not None:
            self._taken[row] = True
            source, due, size, delivered, _ = (int(self._columns[name][row]) for name in _COLUMNS)
            timers.append(Timer(source, size, due, None if delivered == _NONE else delivered))
        return timers

    def due_ms(self) -> int | None:
        """When something is due, at the earliest; None: nothing waits."""
        if self._to_close:
            return 0
        due = min(self._heap[0][0] if self._heap else _FAR, self._next_window)
        return None if due == _FAR else due

    def _next_row(self, now_ms: int) -> int | None:
        while self._to_close:
            row = self._row(self._to_close.popleft())
            if row is not None and self._columns["closed"][row] == _NONE and not self._taken[row]:
                return row
        while True:
            if not self._heap and self._next_window <= now_ms:
                self._open_window(now_ms)
            if not self._heap or self._heap[0][0] > now_ms:
                return None
            _, offset = heapq.heappop(self._heap)
            row = self._row(offset)
            if row is not None and self._waits(row):
                return row

    def _begin_windows(self) -> None:
        self._heap: list[tuple[int, int]] = []
        """(due, source) of what is due before the horizon, and perhaps taken or delivered."""
        self._horizon = -_FAR
        waiting = self._columns["due"][: self._count][self._waiting()]
        self._next_window = int(waiting.min()) if len(waiting) else _FAR
        """The earliest time from the horizon on."""

    def _open_window(self, now_ms: int) -> None:
        """Find what is due next: a window's, and at most about `soon` of them."""
        due = self._columns["due"][: self._count]
        rows = np.flatnonzero(self._waiting() & (due >= self._horizon))
        horizon = now_ms + WINDOW_MS
        within = rows[due[rows] < horizon]
        if len(within) > self._soon:
            horizon = int(np.partition(due[within], self._soon)[self._soon]) + 1
            within = rows[due[rows] < horizon]
        within = within[np.argsort(due[within], kind="stable")]
        sources = self._columns["source"][within].tolist()
        self._heap = list(zip(due[within].tolist(), sources, strict=True))  # sorted: a heap
        later = due[rows][due[rows] >= horizon]
        self._horizon = horizon
        self._next_window = int(later.min()) if len(later) else _FAR

    # --- the columns ---

    def _waiting(self) -> NDArray[np.bool_]:
        count, columns = self._count, self._columns
        never = (columns["delivered"][:count] == _NONE) & (columns["closed"][:count] == _NONE)
        return never & ~self._taken[:count]

    def _waits(self, row: int) -> bool:
        columns = self._columns
        never = columns["delivered"][row] == _NONE and columns["closed"][row] == _NONE
        return bool(never and not self._taken[row])

    def _is_open(self, offset: int) -> bool:
        row = self._row(offset)
        return row is not None and self._columns["closed"][row] == _NONE

    def _row(self, offset: int) -> int | None:
        sources = self._columns["source"][: self._count]
        row = int(np.searchsorted(sources, offset))
        return row if row < len(sources) and sources[row] == offset else None

    def _make_room(self) -> None:
        """Forget what was closed long ago; grow if that is less than half."""
        closed = self._columns["closed"][: self._count]
        old = (closed != _NONE) & (closed < self._position - self._undo_bytes)
        if old.any():
            self._floor = max(self._floor, int(closed[old].max()))
            self._keep(np.flatnonzero(~old))
        if 2 * self._count >= len(self._taken):
            room = max(_FIRST_ROOM, 2 * len(self._taken))
            for name in _COLUMNS:
                self._columns[name] = np.resize(self._columns[name], room)
            self._taken = np.resize(self._taken, room)

    def _keep(self, rows: NDArray[np.int64]) -> None:
        for name in _COLUMNS:
            self._columns[name][: len(rows)] = self._columns[name][rows]
        self._taken[: len(rows)] = self._taken[rows]
        self._count = len(rows)

    # --- the snapshot ---

    def snapshot(self) -> Callable[[], JsonObject]:
        """The document, made when the result is called, of the timers as they are now."""
        copied = {name: self._columns[name][: self._count].copy() for name in _COLUMNS}
        return partial(_document, copied, {"floor": self._floor, "position": self._position})

    def restore(self, document: JsonObject) -> None:
        """Be as a snapshot was; an empty document: without timers."""
        self._clear()
        columns = document.get("columns")
        if not isinstance(columns, dict):
            return
        for name, kind in _COLUMNS.items():
            self._columns[name] = np.frombuffer(b64decode(columns[name]), kind).copy()
        self._count = len(self._columns["source"])
        self._taken = np.zeros(self._count, np.bool_)
        self._live = int((self._columns["closed"] == _NONE).sum())
        self._floor, self._position = int(str(document["floor"])), int(str(document["at"]))
        self.begin()


def _document(columns: dict[str, NDArray], numbers: dict[str, int]) -> JsonObject:
    encoded = {name: b64encode(column.tobytes()).decode() for name, column in columns.items()}
    return {"columns": encoded, "floor": numbers["floor"], "at": numbers["position"]}
