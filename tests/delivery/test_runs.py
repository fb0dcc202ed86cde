"""Runs hold what a table of single offsets holds."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stratamq_delivery.runs import Runs

STEPS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 12), st.sampled_from("abc"), st.booleans()),
    max_size=40,
)


@given(STEPS)
def test_each_offset_is_in_exactly_one_run_with_the_value_it_was_given_last(steps):
    runs: Runs[str] = Runs(5)
    table: dict[int, str] = {}
    for back, length, value, drop in steps:
        start = max(runs.first, runs.end - back)
        if drop:
            runs.drop_below(start)
            table = {offset: held for offset, held in table.items() if offset >= start}
        else:
            runs.put(start, start + length, value)
            table.update(dict.fromkeys(range(start, start + length), value))
        covered = [(offset, held) for a, b, held in runs for offset in range(a, b)]
        assert covered == sorted(table.items())
        assert [runs.at(offset) for offset in sorted(table)] == [held for _, held in covered]
        values = [held for *_, held in runs]
        assert all(one != other for one, other in pairwise(values))
        middle = (runs.first + runs.end) // 2
        assert [
            (offset, held) for a, b, held in runs.within(middle, runs.end) for offset in range(a, b)
        ] == [(offset, held) for offset, held in covered if offset >= middle]


def test_messages_that_are_acknowledged_in_order_are_one_run():
    runs: Runs[str | None] = Runs(0)
    for offset in range(1000):
        runs.put(offset, offset + 1, "held")
        runs.put(offset, offset + 1, None)
    assert list(runs) == [(0, 1000, None)]


def test_what_lies_outside_is_an_error():
    runs: Runs[str] = Runs(3)
    runs.put(3, 5, "a")
    for offset in (2, 5):
        with pytest.raises(IndexError, match=rf"offset {offset} outside of \[3, 5\)"):
            runs.at(offset)
