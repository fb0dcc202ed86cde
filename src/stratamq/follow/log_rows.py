"""Messages of the log that something is still to happen to: one row each, in the log's order.

A row begins with the message's offset (`source`). Columns whose names end in `_at` hold where in
the log something happened to the message, or `NEVER`; so a cut of the log undoes it. A row that is
`closed_at` stays until the log is `undo_bytes` further, so that a cut above that is undone in
place. A deeper one begins again at the log's beginning, from where all that is not deleted is
found.

*Memory*: what the columns take, at most twice as much while they grow. *Cost*: adding is constant
on average, finding is a binary search. A snapshot copies the columns that may change, and is
encoded on the worker, in pieces, so that the event loop gets its turns between them.
"""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from stratamq.files.metadata import JsonObject

UNDO_BYTES = 64 << 20
NEVER = -1
PIECE = 32_768
"""Rows of a piece of the snapshot."""
_FIRST_ROOM = 1_024


class LogRows:
    """Single-threaded. `columns`: names and NumPy types, beside `source` and `closed_at`. Those
    that are `fixed` are written by `add` alone. Marks, of the type bool, are in no snapshot."""

    def __init__(
        self,
        columns: Mapping[str, str],
        *,
        fixed: Collection[str] = (),
        undo_bytes: int = UNDO_BYTES,
    ) -> None:
        self._types = {"source": "i8", **columns, "closed_at": "i8"}
        self._fixed = {"source", *fixed}
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

    @property
    def first_open(self) -> int | None:
        """The source of the first row that is not closed."""
        if not self.open_count:
            return None
        return int(self["source"][(self["closed_at"] == NEVER).argmax()])

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

    def close_all(self, rows: NDArray[np.bool_], at: int) -> None:
        """The same of several, all of which are open."""
        if rows.any():
            self["closed_at"][rows] = at
            self.open_count -= int(rows.sum())
            self._position = at

    def cut(self, offset: int) -> int:
        """The log was cut at `offset`. Returns from where it is read again: there, or from 0 on."""
        if offset <= self._floor:
            self.clear()
            return 0
        self._keep(slice(0, int(np.searchsorted(self["source"], offset))))
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
        self._keep(slice(gone, self.count))
        self.open_count -= lost
        return lost

    def snapshot(self) -> Callable[[], JsonObject]:
        """The document, made when the result is called, of the rows as they are now."""
        saved = [name for name, kind in self._types.items() if kind != "?"]
        columns = {name: self._lasting(name) for name in saved}
        return partial(_document, columns, {"floor": self._floor, "at": self._position})

    def _lasting(self, name: str) -> NDArray:
        """The column as it is now, whatever becomes of the rows."""
        column = self[name]
        if name in self._fixed:
            return column
        if name.endswith("_at") and not (column != NEVER).any():
            return np.broadcast_to(column.dtype.type(NEVER), len(column))
        return column.copy()

    def restore(self, document: JsonObject) -> None:
        """Be as a snapshot was; an empty document: without rows."""
        self.clear()
        pieces = document.get("pieces")
        if not isinstance(pieces, list):
            return
        self.count = sum(int(piece["rows"]) for piece in pieces)
        for name, kind in self._types.items():
            parts = [_decoded(piece[name], kind) for piece in pieces if name in piece]
            self._room[name] = np.concatenate(parts) if parts else np.zeros(self.count, kind)
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
            self._keep(slice(0, self.count), max(_FIRST_ROOM, 2 * self.count))

    def _keep(self, rows: NDArray[np.int64] | slice, room: int = 0) -> None:
        """Into other columns: a snapshot may be reading these."""
        kept = {name: self[name][rows] for name in self._types}
        self.count = len(kept["source"])
        room = room or len(self._room["source"])
        for name, column in kept.items():
            self._room[name] = np.zeros(room, column.dtype)
            self._room[name][: self.count] = column


def _document(columns: dict[str, NDArray], numbers: dict[str, int]) -> JsonObject:
    count = len(columns["source"])
    pieces = []
    for start in range(0, count, PIECE):
        rows = slice(start, min(start + PIECE, count))
        piece: JsonObject = {name: _encoded(column[rows]) for name, column in columns.items()}
        pieces.append({"rows": rows.stop - rows.start, **piece})
    return {"pieces": pieces, **numbers}


def _encoded(column: NDArray) -> str:
    """First the first bytes of all numbers, then the second ones: most are equal, and compress
    well."""
    column = np.ascontiguousarray(column)
    planes = np.ascontiguousarray(column.view(np.uint8).reshape(len(column), -1).T)
    return b64encode(zlib.compress(planes, 1)).decode()


def _decoded(text: str, kind: str) -> NDArray:
    planes = np.frombuffer(zlib.decompress(b64decode(text)), np.uint8)
    return planes.reshape(np.dtype(kind).itemsize, -1).T.copy().view(kind).reshape(-1)
