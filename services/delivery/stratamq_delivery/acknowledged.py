"""The newest acknowledgements in the log: they tell one whose answer was lost from one of a message
that another worker has finished, also when the time of its receipt is over.

*Memory*: 40 bytes and an entry of an index for each of the last `REMEMBERED` runs, of all groups
together. One that is older than these is "finished already".
"""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from stratamq.files.metadata import JsonObject
from stratamq_delivery.entries import Completed
from stratamq_delivery.records import GroupPlace, GroupRecord

REMEMBERED = 4_096
_NOTHING = zlib.compress(b"")
_ROW = np.dtype(
    [("queue", "<u8"), ("token", "<u8"), ("start", "<i8"), ("end", "<i8"), ("place", "<i8")]
)
_HandOut = tuple[int, int]


class StoredAcknowledgements:
    """By queue, token of the hand-out and offset: several queues have one attempt's token. Depends
    on the log alone."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._rows: NDArray = np.zeros(remembered, _ROW)
        self._next = 0
        self._of_hand_out: dict[_HandOut, list[int]] = {}
        """The rows of each."""

    def see(self, record: GroupRecord, place: int) -> None:
        """The log has it at `place`. A piece of the whole state says who finished no message."""
        for queue, entry in record.entries:
            if isinstance(entry, Completed) and entry.token and not record.is_piece:
                for start, end in entry.runs:
                    self._write((_number_of(queue), entry.token, start, end, place))

    def has(self, queue: GroupPlace, token: int, offset: int, flushed: int) -> bool:
        """Whether a record that lies before `flushed` acknowledges it."""
        numbers = self._of_hand_out.get((_number_of(queue), token))
        if numbers is None:
            return False
        rows = self._rows[numbers]
        with_it = (rows["start"] <= offset) & (offset < rows["end"])
        return bool((with_it & (rows["place"] < flushed)).any())

    def _write(self, row: tuple[int, ...]) -> None:
        number, before = self._next, self._rows[self._next].item()
        if before[1]:
            rows = self._of_hand_out[before[:2]]
            rows.remove(number)
            if not rows:
                del self._of_hand_out[before[:2]]
        self._rows[number] = row
        self._of_hand_out.setdefault(row[:2], []).append(number)
        self._next = (number + 1) % len(self._rows)

    def cut(self, position: int) -> None:
        """The log is read again from there on."""
        rows = np.roll(self._rows, -self._next)  # the oldest first
        kept = rows[(rows["token"] != 0) & (rows["place"] < position)]
        self._begin(np.zeros(len(rows), _ROW), len(kept) % len(rows))
        self._rows[: len(kept)] = kept
        self._index()

    def snapshot(self) -> Callable[[], JsonObject]:
        rows, following = self._rows.copy(), self._next
        return lambda: {
            "acknowledged": b64encode(zlib.compress(rows, 1)).decode(),
            "acknowledged_next": following,
        }

    def restore(self, document: JsonObject) -> None:
        """Without any where none were saved, or others than these."""
        self._begin(np.zeros(len(self._rows), _ROW), 0)
        saved = zlib.decompress(b64decode(str(document.get("acknowledged", ""))) or _NOTHING)
        if len(saved) == self._rows.nbytes:
            self._begin(np.frombuffer(saved, _ROW).copy(), int(str(document["acknowledged_next"])))
            self._index()

    def _begin(self, rows: NDArray, following: int) -> None:
        self._rows, self._next, self._of_hand_out = rows, following, {}

    def _index(self) -> None:
        for number, row in enumerate(self._rows.tolist()):
            if row[1]:
                self._of_hand_out.setdefault(row[:2], []).append(number)


@lru_cache(REMEMBERED)
def _number_of(queue: GroupPlace) -> int:
    name = "\0".join(map(str, queue)).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "little")
