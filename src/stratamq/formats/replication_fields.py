"""What the messages between two StrataMQ brokers on the replication port are made of. Big-endian.

length       u32, before every message
text         u16 bytes, or u8 for a broker's name, then UTF-8
generations  u16 count, then count × (i64 generation, i64 start)
"""

import struct
from collections.abc import Sequence
from typing import Any

from stratamq.errors import CorruptRecordError

MAX_MESSAGE_BYTES = 64 * 1024
"""A thousand generations take a quarter of it."""
LENGTH = struct.Struct(
    ">I"  # bytes that follow
)
PAIR = struct.Struct(
    ">"
    "q"  # generation
    "q"  # start
)
U8 = struct.Struct(">B")
U16 = struct.Struct(">H")

Generations = Sequence[tuple[int, int]]
"""(number, log offset of its start), in the order of their starts."""


def decode_length(data: bytes, most: int = MAX_MESSAGE_BYTES) -> int:
    """CorruptRecordError for more than `most` bytes: nothing is allocated for them."""
    (length,) = LENGTH.unpack(data)
    if length > most:
        raise CorruptRecordError(f"a message of {length} bytes", 0, "length")
    return int(length)


def with_length(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data


def encode_text(text: str, length: struct.Struct = U16) -> bytes:
    """Cut to 255 bytes, or to 1 024."""
    raw = text.encode()[: 255 if length is U8 else 1024]
    raw = raw.decode(errors="ignore").encode()
    return length.pack(len(raw)) + raw


def encode_generations(generations: Generations) -> bytes:
    return U16.pack(len(generations)) + b"".join(PAIR.pack(*pair) for pair in generations)


class Reader:
    """Takes a message apart; whatever does not fit is a CorruptRecordError of `kind`."""

    kind = "opening"

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack(self.raw(layout.size))

    def text(self, length: struct.Struct = U16) -> str:
        (size,) = self.take(length)
        try:
            return self.raw(size).decode()
        except UnicodeDecodeError as error:
            raise self.bad("a text that is not UTF-8") from error

    def generations(self) -> Generations:
        """The last thing."""
        (count,) = self.take(U16)
        pairs = list(PAIR.iter_unpack(self.raw(count * PAIR.size)))
        starts = [start for _, start in pairs]
        if self._at != len(self._data) or starts != sorted(starts) or min(starts, default=0) < 0:
            raise self.bad("generations in disorder")
        return pairs

    def bad(self, what: str) -> CorruptRecordError:
        return CorruptRecordError(
            f"the peer's {self.kind} makes no sense: {what}", self._at, self.kind
        )

    def raw(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise self.bad("it is cut short")
        self._at += size
        return taken
