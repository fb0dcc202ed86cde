"""Checksums of many stretches are those of each alone, wherever the stretches are."""

import random
import zlib

import numpy as np
import pytest

from stratamq.formats.checksums import crc32_of_each
from stratamq.formats.crc import CRC_MASK

DATA = random.Random(1).randbytes(400_000)


def one_by_one(starts, ends) -> list[int]:
    places = zip(starts.tolist(), ends.tolist(), strict=True)
    return [zlib.crc32(DATA[start:end]) & CRC_MASK for start, end in places]


@pytest.mark.parametrize("first", [0, 7])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 700])
@pytest.mark.parametrize("distance, length", [(300, 280), (300, 300), (300, 1), (570, 0), (571, 3)])
def test_even_stretches(first, count, distance, length):
    starts = first + np.arange(count) * distance
    assert crc32_of_each(memoryview(DATA), starts, starts + length).tolist() == one_by_one(
        starts, starts + length
    )


@pytest.mark.parametrize("length", [4095, 4096, 9000])
def test_even_stretches_of_any_length_up_to_the_end_of_the_buffer(length):
    count = len(DATA) // length
    starts = len(DATA) - count * length + np.arange(count) * length
    ends = starts + length
    assert int(ends[-1]) == len(DATA)
    assert crc32_of_each(memoryview(DATA), starts, ends).tolist() == one_by_one(starts, ends)


@pytest.mark.parametrize("odd", [0, 1, 20, 39])
def test_one_stretch_that_breaks_the_evenness(odd):
    starts = np.arange(40) * 300 + 50
    for change in (starts, starts + 280):
        changed = change.copy()
        changed[odd] += 3
        places = (changed, starts + 280) if change is starts else (starts, changed)
        assert crc32_of_each(memoryview(DATA), *places).tolist() == one_by_one(*places)


def test_stretches_that_overlap_or_go_back():
    for starts in (np.arange(40) * 100, np.arange(40)[::-1] * 300, np.full(40, 5)):
        ends = starts + 280
        assert crc32_of_each(memoryview(DATA), starts, ends).tolist() == one_by_one(starts, ends)


def test_none_at_all():
    nothing = np.zeros(0, np.int64)
    assert crc32_of_each(memoryview(DATA), nothing, nothing).tolist() == []
