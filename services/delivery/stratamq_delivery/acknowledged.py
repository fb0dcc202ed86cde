"""The newest acknowledgements and burials in the log. They distinguish a repeated call whose first
answer was lost from one for a message that another worker has finished, also after the receipt has
expired.

*Memory*: 56 bytes and an index entry for each of the last `REMEMBERED` runs of all groups together.
An older one is answered with "finished already". A hand-out that is acknowledged one by
one, in order, is one run.
"""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from stratamq.files.metadata import JsonObject
from stratamq_delivery.entries import Buried, Completed
from stratamq_delivery.records import GroupPlace, GroupRecord

REMEMBERED = 4_096
_NOTHING = zlib.compress(b"")
_ROW = np.dtype(
    [
        *(("queue", "<u8"), ("token", "<u8"), ("start", "<i8"), ("end", "<i8"), ("place", "<i8")),
        *(("end_before", "<i8"), ("place_before", "<i8")),
    ]
)
"""The record at `place` finished what lies from `end_before` on, and the one at `place_before` the
last of the others."""
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
            if isinstance(entry, Completed | Buried) and entry.token and not record.is_piece:
                hand_out = _number_of(queue, isinstance(entry, Buried)), entry.token
                for start, end in entry.runs:
                    if not self._extend(hand_out, start, end, place):
                        self._write((*hand_out, start, end, place, start, -1))

    def has(
        self, queue: GroupPlace, token: int, offset: int, flushed: int, *, buried: bool = False
    ) -> bool:
        """Whether a record that lies before `flushed` acknowledges it, or has it `buried`."""
        numbers = self._of_hand_out.get((_number_of(queue, buried), token))
        if numbers is None:
            return False
        rows = self._rows[numbers]
        end = np.where(rows["place"] < flushed, rows["end"], rows["end_before"])
        flushed_too = (rows["place"] < flushed) | (rows["place_before"] < flushed)
        return bool(((rows["start"] <= offset) & (offset < end) & flushed_too).any())

    def _extend(self, hand_out: _HandOut, start: int, end: int, place: int) -> bool:
        """False: another run is to be begun, for there is none, or it would soon be forgotten."""
        numbers = self._of_hand_out.get(hand_out)
        if numbers is None:
            return False
        row, size = self._rows[numbers[-1]], len(self._rows)
        if row["end"] != start or (self._next - 1 - numbers[-1]) % size >= size // 2:
            return False
        if row["place"] != place:
            row["end_before"], row["place_before"] = start, row["place"]
        row["end"], row["place"] = end, place
        return True

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
        halved = (rows["place"] >= position) & (rows["end_before"] > rows["start"])
        rows["end"][halved] = rows["end_before"][halved]
        rows["place"][halved] = rows["place_before"][halved]
        rows["end_before"][halved] = rows["start"][halved]
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
        rows, size = self._rows.tolist(), len(self._rows)
        for number in (*range(self._next, size), *range(self._next)):  # the oldest first
            if rows[number][1]:
                self._of_hand_out.setdefault(rows[number][:2], []).append(number)


@lru_cache(REMEMBERED)
def _number_of(queue: GroupPlace, buried: bool) -> int:
    name = "\0".join(map(str, queue)).encode("utf-8", "surrogatepass")
    if buried:
        name += b"\0buried"
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "little")
