"""Verify frames before they are returned to a caller.

A frame that ends in a checksum of the whole record (spec 2.5) is verified in one pass over its
bytes. Any other is checked as recovery checks it: lengths and the body's checksum, which leaves
header and properties unprotected. A tail that is almost a record checksum counts as a damaged one:
otherwise a flipped bit in its name would disable the check. If every record was written with one
(`stratamq.store.sealed`), any other tail is damaged too.
"""

from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import CorruptRecordError
from stratamq.formats import kernel
from stratamq.formats.checksums import crc32_of_each
from stratamq.formats.columns import check_body_checksums, columns_at, windows
from stratamq.formats.frame_check import FrameOutcome, check
from stratamq.formats.property_crc import (
    PROPERTY_CRC_BYTES,
    check_property_crc,
    encode_property_crc,
)
from stratamq.formats.topics import SCHEDULE_TOPIC

_PATTERN = encode_property_crc(0)
_FIXED = (*range(9), PROPERTY_CRC_BYTES - 1)
"""Places of the tail that are the same in every record checksum; all others hold digits."""
_DIGITS_AT, _LAST_DIGITS_AT = 9, 17
"""Eight of the ten digits are read as one word, and the last two by themselves."""
assert _FIXED[-1] == _LAST_DIGITS_AT + 2
_PLACES = np.array(_FIXED)
_PATTERN_PLACES = np.frombuffer(_PATTERN, np.uint8)[_PLACES]
_ALMOST = 6
"""So many of the ten fixed places make a tail that was a checksum once: no other property has."""
assert len(_FIXED) - 8 < _ALMOST
_WORD = np.dtype("<u8")
_PATTERN_WORD = np.frombuffer(_PATTERN[:8], _WORD)[0]
_NINTH, _TWENTIETH = _PATTERN[8], _PATTERN[-1]
_ONES, _TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
"""They test whether one byte of a word is zero: Mycroft's test."""
_ZERO_DIGIT, _ZERO_DIGITS = np.uint8(0x30), np.uint64(0x3030303030303030)
_SIXES, _HIGH_HALVES = np.uint64(0x0606060606060606), np.uint64(0xF0F0F0F0F0F0F0F0)
_EIGHT, _SIXTEEN, _THIRTY_TWO, _TEN = np.uint64(8), np.uint64(16), np.uint64(32), np.uint64(10)
_PAIRS = np.uint64(0x000000FF000000FF)
_FIRST_AND_THIRD = np.uint64(1 << 32 | 10_000)
_SECOND_AND_FOURTH = np.uint64(100 << 32 | 1_000_000)
"""Multiplied by these, the four numbers of two digits meet in a word's upper half."""
_UNMARKED, _DAMAGED = -1, -2
_FEW = 8
"""Columns cost what they cost, whatever they hold."""

_SCHEDULE = SCHEDULE_TOPIC.encode()
"""An unreadable DELAY is damage in such a frame, where few are looked at."""

I64 = NDArray[np.int64]

NOWHERE = 1 << 62
"""Beyond every offset: no record needs to have a checksum of its own."""


def damage_in(frame: bytes | memoryview, *, sealed: bool = False) -> str:
    """What is wrong with exactly one frame: a constant word, or nothing at all.

    `sealed`: it was written with a checksum of the whole record.
    """
    data = memoryview(frame)
    tail = bytes(data[-PROPERTY_CRC_BYTES:])
    agreeing = sum(tail[place] == _PATTERN[place] for place in _FIXED)
    if agreeing == len(_FIXED):
        return "" if check_property_crc(data) else "record_crc"
    if agreeing >= _ALMOST or sealed:
        return "record_crc"
    outcome, size = check(data)
    if outcome is FrameOutcome.GOOD and size == len(data):
        return ""
    return "body_crc" if outcome is FrameOutcome.BODY_CRC else "length"


def first_damaged(
    view: bytes | memoryview, starts: I64, sizes: I64, sealed_at: int = NOWHERE
) -> tuple[int, str] | None:
    """The first of these frames that is not as it was written, and why: `record_crc`, `body_crc`
    or another reason of `columns`. Each is within `view` whole, and is long enough for a frame.

    Those that start at position `sealed_at` of `view` or behind it were written with a checksum of
    the whole record.
    """
    if kernel.NATIVE is not None:
        return _first_damaged_by_kernel(kernel.NATIVE, view, starts, sizes, sealed_at)
    if len(starts) <= _FEW:
        for number, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
            frame = memoryview(view)[start : start + size]
            reason = damage_in(frame, sealed=start >= sealed_at)
            if reason:
                return number, reason
        return None
    return _first_damaged_of_many(view, starts, sizes, sealed_at)


def _first_damaged_by_kernel(
    native: ModuleType, view: bytes | memoryview, starts: I64, sizes: I64, sealed_at: int
) -> tuple[int, str] | None:
    """The kernel vouches for frames. What is wrong with another, if anything, is decided here."""
    starts, sizes = np.ascontiguousarray(starts), np.ascontiguousarray(sizes)
    few, at = len(starts) <= _FEW, 0
    while True:
        unsure_topic = _SCHEDULE if few else b""
        at += native.first_unverified(view, starts[at:], sizes[at:], sealed_at, unsure_topic)
        if at == len(starts):
            return None
        start, size = int(starts[at]), int(sizes[at])
        if few:
            reason = damage_in(memoryview(view)[start : start + size], sealed=start >= sealed_at)
        else:
            one = slice(at, at + 1)
            found = _first_damaged_of_many(view, starts[one], sizes[one], sealed_at)
            reason = found[1] if found else ""
        if reason:
            return at, reason
        at += 1


def _first_damaged_of_many(
    view: bytes | memoryview, starts: I64, sizes: I64, sealed_at: int
) -> tuple[int, str] | None:
    data = memoryview(view)
    raw = np.frombuffer(data, np.uint8)
    ends = starts + sizes
    expected = _expected(raw, ends)
    unmarked = np.flatnonzero(expected == _UNMARKED)
    bad = _first_unmarked(data, raw, starts[unmarked], sizes[unmarked]) if len(unmarked) else None
    first = [] if bad is None else [(int(unmarked[bad[0]]), bad[1])]
    wiped = unmarked[starts[unmarked] >= sealed_at]
    if len(wiped):
        first.append((int(wiped[0]), "record_crc"))
    if len(unmarked) == len(starts):
        return min(first, default=None)
    marked = np.flatnonzero(expected != _UNMARKED)
    found = crc32_of_each(data, starts[marked], ends[marked] - PROPERTY_CRC_BYTES)
    wrong = np.flatnonzero(found != expected[marked])
    if len(wrong):
        first.append((int(marked[wrong[0]]), "record_crc"))
    return min(first, default=None)


def record_checksums(raw: NDArray[np.uint8], ends: I64) -> tuple[NDArray[np.bool_], I64]:
    """For frames that end at these positions of `raw`: whether the tail has all fixed bytes of a
    record checksum, and the value it states (−1: not decimal digits)."""
    tails = windows(raw, PROPERTY_CRC_BYTES)[ends - PROPERTY_CRC_BYTES]
    marked = _words(tails, 0) == _PATTERN_WORD
    marked &= (tails[:, 8] == _NINTH) & (tails[:, -1] == _TWENTIETH)
    return marked, _numbers(tails)


def _first_unmarked(
    data: memoryview, raw: NDArray[np.uint8], starts: I64, sizes: I64
) -> tuple[int, str] | None:
    try:
        check_body_checksums(data, columns_at(raw, starts, sizes))
    except CorruptRecordError as error:
        number = int(error.fields["frame"])  # type: ignore[call-overload]
        # Shapes are looked at before bodies: one further in front may be damaged in its body.
        before = _first_unmarked(data, raw, starts[:number], sizes[:number])
        return before or (number, error.reason)
    return None


def _expected(raw: NDArray[np.uint8], ends: I64) -> I64:
    """The record checksum that each frame's tail states; negative: none, or a damaged one.

    A tail that agrees with the pattern in no byte of the first eight has two places more at most.
    """
    marked, expected = record_checksums(raw, ends)
    expected[expected < 0] = _DAMAGED
    rest = np.flatnonzero(~marked)
    if len(rest):
        expected[rest] = _UNMARKED
        tails = windows(raw, PROPERTY_CRC_BYTES)[ends[rest] - PROPERTY_CRC_BYTES]
        difference = _words(tails, 0) ^ _PATTERN_WORD
        candidates = np.flatnonzero((difference - _ONES) & ~difference & _TOPS)
        agreeing = (tails[candidates][:, _PLACES] == _PATTERN_PLACES).sum(axis=1)
        expected[rest[candidates[agreeing >= _ALMOST]]] = _DAMAGED
    return expected


def _words(tails: NDArray[np.uint8], place: int) -> NDArray[np.uint64]:
    """Eight bytes of each tail from this place on, the first of them the lowest."""
    return np.ndarray(len(tails), _WORD, tails, place, (PROPERTY_CRC_BYTES,))


def _numbers(tails: NDArray[np.uint8]) -> I64:
    """The value of the ten digits of each tail, the lowest first; −1 where a byte is no digit.

    Eight digits are joined within one word: neighbours to numbers of two, of four and of eight.
    """
    word = _words(tails, _DIGITS_AT) ^ _ZERO_DIGITS
    ninth = tails[:, _LAST_DIGITS_AT] ^ _ZERO_DIGIT
    tenth = tails[:, _LAST_DIGITS_AT + 1] ^ _ZERO_DIGIT
    # A byte beyond 9 has a high half, now or with 6 more.
    strange = ((word | (word + _SIXES)) & _HIGH_HALVES) != 0
    strange |= (ninth > 9) | (tenth > 9)
    word += (word >> _EIGHT) * _TEN
    pairs = (word & _PAIRS) * _FIRST_AND_THIRD + ((word >> _SIXTEEN) & _PAIRS) * _SECOND_AND_FOURTH
    numbers = (pairs >> _THIRTY_TWO).astype(np.int64)
    numbers += ninth * np.int64(10**8) + tenth * np.int64(10**9)
    numbers[strange] = -1
    return numbers
