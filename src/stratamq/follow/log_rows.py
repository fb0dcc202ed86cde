"""Messages of the log that something is still to happen to: one row each, in the log's order.

A row begins with the message's offset (`source`). Columns whose names end in `_at` hold where in
the log something happened to the message, or `NEVER`; so a cut of the log undoes it. A row that is
`closed_at` stays until the log is `undo_bytes` further, so that a cut above that is undone in
place. A deeper one begins again at the log's beginning, from where all that is not deleted is
found.

*Memory*: what the columns take, at most twice as much while they grow. *Cost*: adding is constant
on average, finding is a binary search. A snapshot copies the columns, and is encoded on the worker.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from stratamq.files.metadata import JsonObject

UNDO_BYTES = 64 << 20
NEVER = -1
_FIRST_ROOM = 1_024


class LogRows:
    """Single-threaded. `columns`: names and NumPy types, beside `source` and `closed_at`."""

    def __init__(self, columns: Mapping[str, str], *, undo_bytes: int = UNDO_BYTES) -> None:
        self._types = {"source": "i8", **columns, "closed_at": "i8"}
        self._undo_bytes = undo_bytes
        self.clear()

    def clear(self) -> None:
        self.count = 0
        self.open_count = 0
        """Rows that are not closed."""
        self._room = {name: np.zeros(_FIRST_ROOM, kind) for name, kind in self._types.items()}
        self._floor = 0
        """Up to here what was closed has been forgotten: no cut below is undone in place."""
        self._position = 0

    def __getitem__(self, name: str) -> NDArray[np.int64]:
        """The column, a view: writing to it changes the rows."""
        return self._room[name][: self.count]

    def row_of(self, source: int) -> int | None:
        sources = self["source"]
        row = int(np.searchsorted(sources, source))
        return row if row < len(sources) and sources[row] == source else None

    def is_open(self, row: int) -> bool:
        return bool(self["closed_at"][row] == NEVER)

    def add(self, source: int, **values: int) -> int:
        """A message behind all others; columns that are not named are `NEVER`. Returns its row."""
        assert not self.count or source > self["source"][-1]
        if self.count == len(self._room["source"]):
            self._make_room()
        row = self.count
        for name, column in self._room.items():
            column[row] = values.get(name, NEVER)
        self._room["source"][row] = source
        self.count, self.open_count = row + 1, self.open_count + 1
        self._position = source
        return row

    def close(self, row: int, at: int) -> None:
        """The log has at `at` what says that nothing is left to do."""
        if self.is_open(row):
            self["closed_at"][row] = at
            self.open_count -= 1
            self._position = at

    def cut(self, offset: int) -> int:
        """The log was cut at `offset`. Returns from where it is read again: there, or from 0 on."""
        if offset <= self._floor:
            self.clear()
            return 0
        self.count = int(np.searchsorted(self["source"], offset))
        for name in self._types:
            if name.endswith("_at"):
                values = self[name]
                values[values >= offset] = NEVER
        self.open_count = int((self["closed_at"] == NEVER).sum())
        self._position = min(self._position, offset)
        return offset

    def forget_below(self, minimum: int) -> int:
        """The log has deleted its messages below. Returns how many of them were not closed."""
        gone = int(np.searchsorted(self["source"], minimum))
        if not gone:
            return 0
        lost = int((self["closed_at"][:gone] == NEVER).sum())
        self._keep(np.arange(gone, self.count))
        self.open_count -= lost
        return lost

    def snapshot(self) -> Callable[[], JsonObject]:
        """The document, made when the result is called, of the rows as they are now."""
        copied = {name: self[name].copy() for name in self._types}
        return partial(_document, copied, {"floor": self._floor, "at": self._position})

    def restore(self, document: JsonObject) -> None:
        """Be as a snapshot was; an empty document: without rows."""
        self.clear()
        columns = document.get("columns")
        if not isinstance(columns, dict):
            return
        for name, kind in self._types.items():
            self._room[name] = np.frombuffer(b64decode(columns[name]), kind).copy()
        self.count = len(self._room["source"])
        self.open_count = int((self["closed_at"] == NEVER).sum())
        self._floor, self._position = int(str(document["floor"])), int(str(document["at"]))

    def _make_room(self) -> None:
        """Forget what was closed long ago; grow if that is less than half."""
        closed = self["closed_at"]
        old = (closed != NEVER) & (closed < self._position - self._undo_bytes)
        if old.any():
            self._floor = max(self._floor, int(closed[old].max()))
            self._keep(np.flatnonzero(~old))
        if 2 * self.count >= len(self._room["source"]):
            room = max(_FIRST_ROOM, 2 * self.count)
            self._room = {name: np.resize(column, room) for name, column in self._room.items()}

    def _keep(self, rows: NDArray[np.int64]) -> None:
        for column in self._room.values():
            column[: len(rows)] = column[rows]
        self.count = len(rows)


def _document(columns: dict[str, NDArray], numbers: dict[str, int]) -> JsonObject:
    encoded = {name: b64encode(column.tobytes()).decode() for name, column in columns.items()}
    return {"columns": encoded, **numbers}
