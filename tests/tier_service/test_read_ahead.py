"""What was read ahead is found again, whatever else was read of the queue."""

import random

from stratamq_tier.read_ahead import Chunk, ReadAhead

from stratamq.files.clock import SystemClock

KEY = ("t", 0, (1, 1))


def test_the_chunk_that_has_an_offset_is_found_among_many():
    cache = ReadAhead(SystemClock(), 1 << 20, 60_000)
    firsts = list(range(0, 2_000, 2))
    random.Random(1).shuffle(firsts)
    for first in firsts:
        cache.put(KEY, Chunk(first, first + 1, ()))
    for first in firsts:
        found = cache.find(KEY, first)
        assert found is not None and found.first == first
        assert cache.find(KEY, first + 1) is None


def test_a_long_chunk_is_found_behind_a_short_one_that_begins_in_it():
    cache = ReadAhead(SystemClock(), 1 << 20, 60_000)
    cache.put(KEY, Chunk(0, 100, ()))
    cache.put(KEY, Chunk(50, 51, ()))
    found = cache.find(KEY, 70)
    assert found is not None and found.first == 0


def test_what_is_over_the_budget_goes_and_nothing_else():
    cache = ReadAhead(SystemClock(), 200 * 10, 60_000)
    for first in range(20):
        cache.put(KEY, Chunk(first, first + 1, ()))
    assert [cache.find(KEY, offset) is not None for offset in range(20)] == [False] * 10 + [
        True
    ] * 10
