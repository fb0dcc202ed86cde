"""How units continue a queue: every row of the rule, at its borders, and gaps that are refused."""

import numpy as np
import pytest

from stratamq.errors import CorruptionError
from stratamq.formats.queue_growth import NO_MESSAGE, Growth, grow
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.queue_units import UNIT, UnitRun

SIZE = 100
"""Of every frame; the frame of queue offset n is at n * SIZE in the log."""


def run(first: int, count: int) -> UnitRun:
    units = np.zeros(count, UNIT)
    units["physical_offset"] = np.arange(first, first + count) * SIZE
    units["size"] = SIZE
    end = (first + count) * SIZE
    return UnitRun("t", 0, first, count, units.view(np.uint8).data, first * SIZE, end, 1)


def grown(first: int, count: int, end: int, end_offset: int, minimum: int = 0):
    """(growth, queue offset of the first unit to add, how many)"""
    step = grow(run(first, count), end, end_offset, minimum)
    assert len(step.units) % QUEUE_UNIT_BYTES == 0
    return step.growth, step.first, len(step.units) // QUEUE_UNIT_BYTES


@pytest.mark.parametrize(
    ("first", "count", "new"),
    [(0, 10, 0), (5, 5, 0), (9, 1, 0), (0, 11, 1), (9, 2, 1), (9, 5, 4), (3, 9, 2)],
)
def test_units_that_are_there_are_not_added_again(first, count, new):
    """The queue ends at 10: what ends at or before its last message is there."""
    expected = (Growth.FOLLOWS, 10, new) if new else (Growth.NOTHING, first + count, 0)
    assert grown(first, count, 10, 10 * SIZE) == expected


def test_units_that_follow_are_added_whole():
    assert grown(10, 4, 10, 10 * SIZE) == (Growth.FOLLOWS, 10, 4)


@pytest.mark.parametrize("end", [0, 7])
def test_a_queue_without_messages_begins_where_the_units_do(end):
    assert grown(3, 2, end, NO_MESSAGE) == (Growth.BEGINS, 3, 2)


@pytest.mark.parametrize("end", [11, 12, 500])
def test_queue_offsets_that_the_log_gave_again_replace_the_old_ones(end):
    """The queue has more units than these, of frames that precede them in the log."""
    assert grown(10, 4, end, 10 * SIZE) == (Growth.WENT_BACK, 10, 4)


@pytest.mark.parametrize(
    ("minimum", "begins"), [(800, True), (801, True), (799, False), (0, False)]
)
def test_a_gap_is_refused_unless_all_messages_before_it_were_deleted(minimum, begins):
    """The queue ends at 8, at 800 in the log; the next units begin at 10."""
    if begins:
        assert grown(10, 1, 8, 800, minimum) == (Growth.BEGINS, 10, 1)
        return
    with pytest.raises(CorruptionError, match="continues with 10 at 1000"):
        grown(10, 1, 8, 800, minimum)
