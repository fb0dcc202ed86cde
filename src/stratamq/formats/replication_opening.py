"""What two StrataMQ brokers say to each other before RocketMQ's protocol begins, on the same port.

    slave → master    4     ff 53 54 51
    master → slave    4     the same; RocketMQ's master says nothing and has seen less than a report
    slave → master    u32 n, then n bytes: what it has
    master → slave    u32 n, then n bytes: what it shall keep
                      from here on the 8+4+N frames of `replication`

    what it has         i64 end  i64 minimum  i64 segment bytes  u8 name bytes  name
                        u16 count, count × (i64 generation, i64 start)
    what it shall keep  u8 verdict  i64 cut to  i64 minimum  i64 end  u16 sentence bytes  sentence
                        u16 address bytes  address
                        u16 count, count × (i64 generation, i64 start)

Big-endian. The first byte of the mark makes an offset negative, which nobody sends.
"""

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from stratamq.errors import CorruptRecordError

MARK = b"\xffSTQ"
MAX_OPENING_BYTES = 64 * 1024
"""A thousand generations take a quarter of it."""
LENGTH = struct.Struct(
    ">I"  # bytes that follow
)
_HAS = struct.Struct(
    ">"
    "q"  # end of the slave's log
    "q"  # its minimum
    "q"  # bytes of a segment
)
_KEEPS = struct.Struct(
    ">"
    "B"  # verdict
    "q"  # cut to
    "q"  # the master's minimum
    "q"  # up to where it ships now
)
_PAIR = struct.Struct(
    ">"
    "q"  # generation
    "q"  # start
)
_U8 = struct.Struct(">B")
_U16 = struct.Struct(">H")

Generations = Sequence[tuple[int, int]]
"""(number, log offset of its start), in the order of their starts."""


class Verdict(enum.IntEnum):
    """What a slave has to do before it gets anything."""

    KEEP = 0
    """Cut at `cut_to`, which may be its end, and go on from there."""
    BEGIN = 1
    """Empty its log: what it has ends below the master's minimum, or it has nothing."""
    STRANGER = 2
    """It has something, and nothing of it is of the master's history: an operator must say so."""
    REFUSED = 3
    """The master does not take it; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Has:
    """What a slave says of its log. `name` is its broker's."""

    end: int
    minimum: int
    segment_bytes: int
    name: str
    generations: Generations


@dataclass(frozen=True, slots=True)
class Keeps:
    """The master's answer. `address`: where its log takes messages, "" if that is not known."""

    verdict: Verdict
    cut_to: int
    minimum: int
    end: int
    sentence: str
    address: str
    generations: Generations


def encode_has(has: Has) -> bytes:
    """With its length before it."""
    name = has.name.encode()[:255].decode(errors="ignore").encode()
    return _with_length(
        _HAS.pack(has.end, has.minimum, has.segment_bytes)
        + _U8.pack(len(name))
        + name
        + _generations(has.generations)
    )


def encode_keeps(keeps: Keeps) -> bytes:
    """With its length before it."""
    return _with_length(
        _KEEPS.pack(keeps.verdict, keeps.cut_to, keeps.minimum, keeps.end)
        + _text(keeps.sentence)
        + _text(keeps.address)
        + _generations(keeps.generations)
    )


def decode_has(data: bytes) -> Has:
    """Without its length. CorruptRecordError."""
    reader = _Reader(data)
    end, minimum, segment_bytes = reader.take(_HAS)
    name = reader.text(_U8)
    generations = reader.generations()
    if end < minimum or minimum < 0 or segment_bytes <= 0:
        raise reader.bad(f"a log of [{minimum}, {end})")
    return Has(end, minimum, segment_bytes, name, generations)


def decode_keeps(data: bytes) -> Keeps:
    """Without its length. CorruptRecordError."""
    reader = _Reader(data)
    number, cut_to, minimum, end = reader.take(_KEEPS)
    sentence, address = reader.text(_U16), reader.text(_U16)
    generations = reader.generations()
    if number not in list(Verdict) or cut_to < 0 or not 0 <= minimum <= end:
        raise reader.bad(f"verdict {number}, cut to {cut_to}, minimum {minimum}")
    return Keeps(Verdict(number), cut_to, minimum, end, sentence, address, generations)


def decode_length(data: bytes) -> int:
    """CorruptRecordError for more than anybody has to say."""
    (length,) = LENGTH.unpack(data)
    if length > MAX_OPENING_BYTES:
        raise CorruptRecordError(f"an opening of {length} bytes", 0, "length")
    return int(length)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack(self._bytes(layout.size))

    def text(self, length: struct.Struct) -> str:
        (size,) = self.take(length)
        try:
            return self._bytes(size).decode()
        except UnicodeDecodeError as error:
            raise self.bad("a text that is not UTF-8") from error

    def generations(self) -> Generations:
        """The last thing."""
        (count,) = self.take(_U16)
        pairs = list(_PAIR.iter_unpack(self._bytes(count * _PAIR.size)))
        starts = [start for _, start in pairs]
        if self._at != len(self._data) or starts != sorted(starts) or min(starts, default=0) < 0:
            raise self.bad("generations in disorder")
        return pairs

    def bad(self, what: str) -> CorruptRecordError:
        return CorruptRecordError(f"the peer's opening makes no sense: {what}", self._at, "opening")

    def _bytes(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise self.bad("it is cut short")
        self._at += size
        return taken


def _with_length(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data


def _text(text: str) -> bytes:
    raw = text.encode()[:1024]
    raw = raw.decode(errors="ignore").encode()
    return _U16.pack(len(raw)) + raw


def _generations(generations: Generations) -> bytes:
    return _U16.pack(len(generations)) + b"".join(_PAIR.pack(*pair) for pair in generations)
