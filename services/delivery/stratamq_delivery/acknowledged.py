"""The newest acknowledgements in the log: they tell one whose answer was lost from one of a message
that another worker has finished, also when the time of its receipt is over.

*Memory*: 32 bytes for each of the last `REMEMBERED` runs, of all groups together. One that is older
than these is "finished already".
"""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stratamq.files.metadata import JsonObject
from stratamq_delivery.entries import Completed
from stratamq_delivery.records import GroupRecord

REMEMBERED = 4_096
_NOTHING = zlib.compress(b"")
_ROW = np.dtype([("token", "<u8"), ("start", "<i8"), ("end", "<i8"), ("place", "<i8")])


class StoredAcknowledgements:
    """By the token of the hand-out and the offset in its queue. Depends on the log alone."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._rows: NDArray = np.zeros(remembered, _ROW)
        self._next = 0

    def see(self, record: GroupRecord, place: int) -> None:
        """The log has it at `place`. A piece of the whole state says of no hand-out what it did."""
        for _, entry in record.entries:
            if isinstance(entry, Completed) and entry.token and not record.is_piece:
                for start, end in entry.runs:
                    self._rows[self._next] = entry.token, start, end, place
                    self._next = (self._next + 1) % len(self._rows)

    def has(self, token: int, offset: int) -> bool:
        rows = self._rows[self._rows["token"] == token]
        return bool(((rows["start"] <= offset) & (offset < rows["end"])).any())

    def cut(self, position: int) -> int:
        """The log is read again from there on."""
        rows = np.roll(self._rows, -self._next)  # the oldest first
        kept = rows[(rows["token"] != 0) & (rows["place"] < position)]
        self._rows = np.zeros(len(rows), _ROW)
        self._rows[: len(kept)] = kept
        self._next = len(kept) % len(rows)
        return position

    def snapshot(self) -> Callable[[], JsonObject]:
        rows, following = self._rows.copy(), self._next
        return lambda: {
            "acknowledged": b64encode(zlib.compress(rows, 1)).decode(),
            "acknowledged_next": following,
        }

    def restore(self, document: JsonObject) -> None:
        """Without any where none were saved, or another number of them."""
        self._rows, self._next = np.zeros(len(self._rows), _ROW), 0
        saved = zlib.decompress(b64decode(str(document.get("acknowledged", ""))) or _NOTHING)
        if len(saved) == self._rows.nbytes:
            self._rows = np.frombuffer(saved, _ROW).copy()
            self._next = int(str(document["acknowledged_next"]))
