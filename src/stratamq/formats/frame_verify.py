"""Whether frames that are about to be given to somebody still are what was written.

A frame that ends in the checksum of the whole record (spec 2.5) is held against that: one pass over
its bytes. Any other is checked as recovery checks it: lengths and the body's checksum, which leaves
header and properties unguarded. A tail that is almost a record checksum is a damaged one: without
this a flipped bit in its name would take the guard away. Where every record was written with one
(`stratamq.files.sealed`), so is any other tail.
"""

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import CorruptRecordError
from stratamq.formats.checksums import crc32_of_each
from stratamq.formats.columns import check_body_checksums, columns_at, windows
from stratamq.formats.frame_check import Outcome, check
from stratamq.formats.property_crc import (
    PROPERTY_CRC_BYTES,
    check_property_crc,
    encode_property_crc,
)

_PATTERN = encode_property_crc(0)
_FIXED = (*range(9), PROPERTY_CRC_BYTES - 1)
"""Places of the tail that are the same in every record checksum; all others hold digits."""
_PLACES = np.array(_FIXED)
_PATTERN_PLACES = np.frombuffer(_PATTERN, np.uint8)[_PLACES]
_POWERS = 10 ** np.arange(10, dtype=np.int64)
_ALMOST = 6
"""So many of the ten fixed places make a tail that was a checksum once: no other property has."""
assert len(_FIXED) - 8 < _ALMOST
_PATTERN_WORD = np.frombuffer(_PATTERN[:8], np.uint64)[0]
_ONES, _TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
"""With them a word tells whether one of its bytes is zero: Mycroft's test."""
_UNMARKED, _DAMAGED = -1, -2
_FEW = 8
"""Columns cost what they cost, whatever they hold."""

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
    if outcome is Outcome.GOOD and size == len(data):
        return ""
    return "body_crc" if outcome is Outcome.BODY_CRC else "length"


def first_damaged(
    view: bytes | memoryview, starts: I64, sizes: I64, sealed_at: int = NOWHERE
) -> tuple[int, str] | None:
    """The first of these frames that is not as it was written, and why: `record_crc`, `body_crc`
    or another reason of `columns`. Each lies within `view` whole, and is long enough for a frame.

    Those that start at position `sealed_at` of `view` or behind it were written with a checksum of
    the whole record.
    """
    if len(starts) <= _FEW:
        for number, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
            frame = memoryview(view)[start : start + size]
            reason = damage_in(frame, sealed=start >= sealed_at)
            if reason:
                return number, reason
        return None
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


def record_checksums_hold(view: memoryview, starts: I64, sizes: I64) -> NDArray[np.bool_]:
    """Of each of these frames, which end in a record checksum, whether it is the right one."""
    ends = starts + sizes
    stated = _expected(np.frombuffer(view, np.uint8), ends)
    return crc32_of_each(view, starts, ends - PROPERTY_CRC_BYTES) == stated


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
    tails = windows(raw, PROPERTY_CRC_BYTES)[ends - PROPERTY_CRC_BYTES]
    difference = tails[:, :8].copy().view(np.uint64)[:, 0] ^ _PATTERN_WORD
    candidates = np.flatnonzero((difference - _ONES) & ~difference & _TOPS)
    expected = np.full(len(ends), _UNMARKED, np.int64)
    if len(candidates):
        expected[candidates] = _expected_of(tails[candidates])
    return expected


def _expected_of(tails: NDArray[np.uint8]) -> I64:
    agreeing = (tails[:, _PLACES] == _PATTERN_PLACES).sum(axis=1)
    digits = tails[:, 9:19].astype(np.int64) - ord("0")
    whole = (agreeing == len(_FIXED)) & ((digits >= 0) & (digits <= 9)).all(axis=1)
    return np.where(whole, digits @ _POWERS, np.where(agreeing >= _ALMOST, _DAMAGED, _UNMARKED))
