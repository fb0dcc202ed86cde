"""What was read ahead: bounded in bytes and time; what was read to its end gives way first."""

import random
from dataclasses import dataclass

import numpy as np
from stratamq_tier.read_ahead import IDLE_NS, Chunk, ReadAhead

from stratamq.files.clock import SystemClock
from stratamq.tier.reading.records import NO_RECORDS, TierRecords

SIZE = 1_000
KEY = ("t", 0, (1, 1))


@dataclass
class Clock:
    now_ns: int = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ms(self) -> int:
        return 0


def chunk(first: int, count: int = 1) -> Chunk:
    one, zero = np.array([first]), np.zeros(1, np.int64)
    records = TierRecords(memoryview(bytes(SIZE)), zero, zero + SIZE, one, zero)
    return Chunk(first, first + count, records)


def cache(chunks: int, clock: Clock | None = None) -> ReadAhead:
    """With room for so many."""
    return ReadAhead(clock or Clock(), chunks * chunk(0).memory_bytes, 15_000)


def test_a_chunk_answers_for_each_of_its_offsets_and_no_other():
    kept = cache(4)
    kept.put(KEY, chunk(10, 5))
    assert kept.find(KEY, 10) is kept.find(KEY, 14)
    assert kept.find(KEY, 9) is kept.find(KEY, 15) is None
    assert kept.find(("t", 1, (1, 1)), 10) is None
    assert (kept.status.hits, kept.status.misses) == (2, 3)


def test_memory_stays_within_the_budget_and_the_least_recently_used_goes():
    kept = cache(3)
    for first in range(3):
        kept.put(KEY, chunk(first))
    kept.find(KEY, 0)
    kept.put(KEY, chunk(3))
    assert kept.status.bytes == 3 * chunk(0).memory_bytes
    assert [kept.has(KEY, first) for first in range(4)] == [True, False, True, True]


def test_what_was_read_to_its_end_goes_first_and_is_found_until_then():
    kept = cache(3)
    for first in range(3):
        kept.put(KEY, chunk(first))
    last = kept.find(KEY, 2)
    assert last is not None
    kept.spend(KEY, last)
    kept.put(KEY, chunk(3))
    assert [kept.has(KEY, first) for first in range(4)] == [True, True, False, True]


def test_readers_who_are_reading_keep_others_from_reading_ahead_and_idle_ones_do_not():
    clock = Clock()
    kept = cache(4, clock)
    for first in range(4):
        assert kept.takes_more
        kept.put(KEY, chunk(first))
    assert not kept.takes_more
    clock.now_ns += IDLE_NS + 1
    assert kept.takes_more


def test_the_chunks_of_slow_readers_give_way_ever_later_until_chunks_expire():
    clock = Clock()
    kept = cache(4, clock)
    for first in range(4):
        kept.put(KEY, chunk(first))
    for evicted in range(3):
        clock.now_ns += (1 << evicted) * IDLE_NS
        assert not kept.takes_more
        clock.now_ns += 1
        assert kept.takes_more
        kept.put(KEY, chunk(4 + evicted))
        for first in range(evicted + 1, 5 + evicted):
            kept.find(KEY, first)
    clock.now_ns += 8 * IDLE_NS
    assert not kept.takes_more
    clock.now_ns += 15_000_000_000
    kept.expire()
    for first in range(4):
        kept.put(KEY, chunk(first))
    clock.now_ns += IDLE_NS + 1
    assert kept.takes_more


def test_what_was_read_to_its_end_keeps_no_reader_from_reading_ahead():
    kept = cache(4)
    for first in range(4):
        one = chunk(first)
        kept.put(KEY, one)
        kept.spend(KEY, one)
    assert kept.takes_more


def test_what_is_not_used_for_its_time_is_forgotten():
    clock = Clock()
    kept = cache(9, clock)
    kept.put(KEY, chunk(0))
    spent = chunk(1)
    kept.put(KEY, spent)
    kept.spend(KEY, spent)
    clock.now_ns += 10_000 * 1_000_000
    kept.put(KEY, chunk(2))
    clock.now_ns += 6_000 * 1_000_000
    kept.expire()
    assert [kept.has(KEY, first) for first in range(3)] == [False, False, True]
    assert kept.status.bytes == chunk(2).memory_bytes


def test_a_chunk_above_the_whole_budget_is_not_kept():
    kept = ReadAhead(Clock(), 500, 15_000)
    kept.put(KEY, chunk(0))
    assert kept.status.bytes == 0


def test_the_chunk_that_has_an_offset_is_found_among_many():
    cache = ReadAhead(SystemClock(), 1 << 20, 60_000)
    firsts = list(range(0, 2_000, 2))
    random.Random(1).shuffle(firsts)
    for first in firsts:
        cache.put(KEY, Chunk(first, first + 1, NO_RECORDS))
    for first in firsts:
        found = cache.find(KEY, first)
        assert found is not None and found.first == first
        assert cache.find(KEY, first + 1) is None


def test_a_long_chunk_is_found_behind_a_short_one_that_begins_in_it():
    cache = ReadAhead(SystemClock(), 1 << 20, 60_000)
    cache.put(KEY, Chunk(0, 100, NO_RECORDS))
    cache.put(KEY, Chunk(50, 51, NO_RECORDS))
    found = cache.find(KEY, 70)
    assert found is not None and found.first == 0


def test_what_is_over_the_budget_goes_and_nothing_else():
    cache = ReadAhead(SystemClock(), 10 * Chunk(0, 1, NO_RECORDS).memory_bytes, 60_000)
    for first in range(20):
        cache.put(KEY, Chunk(first, first + 1, NO_RECORDS))
    assert [cache.find(KEY, offset) is not None for offset in range(20)] == [False] * 10 + [
        True
    ] * 10
