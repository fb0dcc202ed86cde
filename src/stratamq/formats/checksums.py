"""CRC-32 of many stretches of one buffer. In Python each costs a slice and a call, little beside.

Stretches of one length at one distance, as messages of one size leave them, are cut by NumPy, which
takes a quarter of what a slice costs; some at a time, so that they are still in the cache when
their checksum is computed.
"""

import functools
from collections.abc import Iterable

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from stratamq.formats import kernel
from stratamq.formats.crc import CRC_MASK

_PIECE_BYTES = 64 << 10
_LARGE_BYTES = 4096
"""From here on a slice costs less than the copy that NumPy makes."""
_FEW = 16

I64 = NDArray[np.int64]


def crc32_of_each(view: memoryview, starts: I64, ends: I64) -> I64:
    """The 31-bit checksum (spec 2.7) of each `view[start:end]`."""
    if kernel.NATIVE is not None:
        found = np.empty(len(starts), np.int64)
        places = np.ascontiguousarray(starts), np.ascontiguousarray(ends)
        kernel.NATIVE.crc32_of_each(view, *places, found)
        return found
    if len(starts) >= _FEW and (even := _evenly(starts, ends)):
        return crc32_of_even(view, int(starts[0]), len(starts), *even)
    return _crcs(_one_by_one(view, starts.tolist(), ends.tolist()), len(starts))


def crc32_of_even(view: memoryview, first: int, count: int, distance: int, length: int) -> I64:
    """The same for `count` stretches of one `length`, each `distance` behind the one before it."""
    end = first + count * distance
    if kernel.NATIVE is not None:
        begins = np.arange(first, end, distance, np.int64)
        return crc32_of_each(view, begins, begins + length)
    if 0 < length < _LARGE_BYTES:
        return _crcs(_cut_by_numpy(view, first, count, distance, length), count)
    starts = range(first, end, distance)
    ends = range(first + length, end + length, distance)
    return _crcs(_one_by_one(view, starts, ends), count)


def _evenly(starts: I64, ends: I64) -> tuple[int, int] | None:
    """The one distance and the one length of stretches that follow each other evenly."""
    distance, length = int(starts[1] - starts[0]), int(ends[0] - starts[0])
    if length <= 0 or distance < length:
        return None
    if (starts[1:] - starts[:-1] != distance).any() or (ends - starts != length).any():
        return None
    return distance, length


@functools.lru_cache(_LARGE_BYTES)
def _stretch(length: int) -> np.dtype[np.void]:
    return np.dtype((np.void, length))


def _crcs(found: Iterable[int], count: int) -> I64:
    crcs = np.fromiter(found, np.int64, count)
    crcs &= CRC_MASK
    return crcs


def _one_by_one(view: memoryview, starts: Iterable[int], ends: Iterable[int]) -> list[int]:
    crc32 = isal_zlib.crc32
    return [crc32(view[start:end]) for start, end in zip(starts, ends, strict=True)]


def _cut_by_numpy(
    view: memoryview, first: int, count: int, distance: int, length: int
) -> list[int]:
    kind = _stretch(length)
    rows = max(1, _PIECE_BYTES // distance)
    found: list[int] = []
    for row in range(0, count, rows):
        at, wanted = first + row * distance, min(rows, count - row)
        stretches = np.ndarray(wanted, kind, view, at, (distance,)).tolist()
        found += map(isal_zlib.crc32, stretches)
    return found
