"""The messages of one delay level, in the order in which the log has them.

        begins        head             taken
    ──────┴─────────────┴────────────────┴─────────────►
     forgotten │ closed │  on the way    │  waiting

A message is *closed* once the log has its copy, or the record that it cannot be delivered. All
below `head` are closed; all below `taken` were given to the log since `begin`, or are held. Five
columns take 40 bytes a message. What is closed stays until no cut of the log in place may reach it.
"""

from array import array
from base64 import b64decode, b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from stratamq.files.metadata import JsonObject

COLUMNS = ("source", "size", "due", "number", "closed")
_OPEN = -1
FORGET_AT_ONCE = 1_024


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message of a level. `offset` in bytes of the log; `number`: its offset in the queue."""

    offset: int
    size: int
    due_ms: int
    number: int


class LevelQueue:
    """One level's. Single-threaded."""

    def __init__(self, document: JsonObject | None = None) -> None:
        """`document`: a snapshot's."""
        parts: dict[str, object] = dict(document or {})
        columns = [_column(str(parts.get(name, ""))) for name in COLUMNS]
        self._source, self._size, self._due, self._number, self._closed = self._columns = columns
        self._begins = int(str(parts.get("begins", 0)))
        """The queue offset behind the newest message that was forgotten."""
        self.open = self._closed.count(_OPEN)
        """Messages that are not closed."""
        self._head = 0
        self.begin()

    @property
    def position(self) -> int:
        """The queue offset of the first message that is not closed: RocketMQ's `delayOffset`."""
        if self._head < len(self._source):
            return self._number[self._head]
        return self._number[-1] + 1 if self._number else self._begins

    @property
    def head(self) -> Waiting | None:
        """The first message that is not closed."""
        return self._at(self._head) if self._head < len(self._source) else None

    @property
    def due_ms(self) -> int | None:
        """When the next one is due that was not taken."""
        self._pass_closed()
        return self._due[self._taken] if self._taken < len(self._source) else None

    def add(self, message: Waiting) -> None:
        """A message of the log, behind all that were added."""
        assert not self._source or message.offset > self._source[-1]
        values = (message.offset, message.size, message.due_ms, message.number, _OPEN)
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)
        self.open += 1

    def begin(self, held_below: int = 0) -> None:
        """Nothing is on the way. Messages below `held_below` are not taken."""
        self._taken = max(self._head, bisect_left(self._source, held_below))
        self._pass_closed()

    def held(self, below: int) -> int:
        """How many of the messages below are not closed."""
        return self._closed[: bisect_left(self._source, below)].count(_OPEN)

    def waiting(self) -> Iterator[Waiting]:
        """All that are not closed."""
        for row in range(self._head, len(self._source)):
            if self._closed[row] == _OPEN:
                yield self._at(row)

    def find(self, offset: int) -> Waiting | None:
        """The message at this place of the log, if it is not closed."""
        row = self._row(offset)
        return self._at(row) if row is not None and self._closed[row] == _OPEN else None

    def first_behind(self, offset: int) -> Waiting | None:
        """The first message behind this place of the log that is not closed."""
        row = max(self._head, bisect_right(self._source, offset))
        while row < len(self._source) and self._closed[row] != _OPEN:
            row += 1
        return self._at(row) if row < len(self._source) else None

    def closed_at(self, offset: int) -> int | None:
        """Where the log has what closed the message; None: it is not closed, or not known."""
        row = self._row(offset)
        return None if row is None or self._closed[row] == _OPEN else self._closed[row]

    def take(self, now_ms: int) -> Waiting | None:
        """The next message that is due."""
        due_ms = self.due_ms
        if due_ms is None or due_ms > now_ms:
            return None
        self._taken += 1
        return self._at(self._taken - 1)

    def close(self, offset: int, at: int) -> bool:
        """The log has at `at` what closes the message at `offset`. False: it is not of this level,
        or closed already."""
        row = self._row(offset)
        if row is None or self._closed[row] != _OPEN:
            return False
        self._closed[row] = at
        self.open -= 1
        self._pass_closed()
        return True

    def close_delivered(self, below: int, position: int, at: int) -> None:
        """Another program, which stored the messages below, has delivered up to this queue offset;
        the log says so at `at`."""
        for row in range(self._head, bisect_left(self._source, below)):
            if self._number[row] < position:
                self.close(self._source[row], at)

    def cut(self, offset: int) -> None:
        """The log was cut at `offset`, above what was forgotten."""
        rest = bisect_left(self._source, offset)
        for column in self._columns:
            del column[rest:]
        closed = np.frombuffer(self._closed, np.int64)
        closed[closed >= offset] = _OPEN
        del closed  # an array whose memory is lent cannot grow
        self.open = self._closed.count(_OPEN)
        self._head = 0
        self.begin()

    def forget_closed(self, before: int) -> int:
        """Forget what was closed below `before` in the log. Returns up to where it was closed."""
        if self._head < FORGET_AT_ONCE:
            return 0
        most = 0
        gone = 0
        while gone < self._head and self._closed[gone] < before:
            most, gone = max(most, self._closed[gone]), gone + 1
        self._drop(gone)
        return most

    def forget_below(self, minimum: int) -> int:
        """The log has deleted its messages below. Returns how many were not closed."""
        gone = bisect_left(self._source, minimum)
        missed = self._closed[:gone].count(_OPEN)
        self._drop(gone)
        self.open -= missed
        return missed

    def snapshot(self) -> Callable[[], JsonObject]:
        copied = [column[:] for column in self._columns]
        return partial(_document, copied, self._begins)

    def _at(self, row: int) -> Waiting:
        return Waiting(self._source[row], self._size[row], self._due[row], self._number[row])

    def _row(self, offset: int) -> int | None:
        row = self._head
        if row == len(self._source) or self._source[row] != offset:
            row = bisect_left(self._source, offset)
        return row if row < len(self._source) and self._source[row] == offset else None

    def _pass_closed(self) -> None:
        count, closed = len(self._source), self._closed
        while self._head < count and closed[self._head] != _OPEN:
            self._head += 1
        self._taken = max(self._taken, self._head)
        while self._taken < count and closed[self._taken] != _OPEN:
            self._taken += 1

    def _drop(self, gone: int) -> None:
        if gone:
            self._begins = self._number[gone - 1] + 1
            for column in self._columns:
                del column[:gone]
            self._head, self._taken = max(0, self._head - gone), max(0, self._taken - gone)


def _column(encoded: str) -> "array[int]":
    column = array("q")
    column.frombytes(b64decode(encoded))
    return column


def _document(columns: "list[array[int]]", begins: int) -> JsonObject:
    encoded = [b64encode(column.tobytes()).decode() for column in columns]
    return {**dict(zip(COLUMNS, encoded, strict=True)), "begins": begins}
