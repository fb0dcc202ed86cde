"""The records of a pull, as they are handed on."""

import numpy as np

from stratamq.tier.reading.records import NO_RECORDS, TierRecords

BUFFER = bytes(range(100))


def records(*places: tuple[int, int]) -> TierRecords:
    starts, sizes = (np.array(column, np.int64) for column in zip(*places, strict=True))
    numbers = np.arange(len(places))
    return TierRecords(memoryview(BUFFER), starts, sizes, numbers, numbers)


def test_records_that_are_one_behind_the_other_are_one_view():
    ([view], size) = records((10, 5), (15, 20), (35, 1)).pieces()
    assert (bytes(view), size) == (BUFFER[10:36], 26)
    assert view.obj is BUFFER, "no copy"


def test_records_with_something_between_them_are_a_view_each():
    views, size = records((10, 5), (16, 20), (36, 1)).pieces()
    assert [bytes(view) for view in views] == [BUFFER[10:15], BUFFER[16:36], BUFFER[36:37]]
    assert size == 26


def test_a_part_of_records_is_the_view_of_that_part():
    found = records((10, 5), (15, 20), (35, 1)).between(1, 2)
    assert [bytes(view) for view in found.pieces()[0]] == [BUFFER[15:35]]


def test_no_records_are_no_bytes():
    assert NO_RECORDS.pieces() == ([], 0)
    assert records((10, 5)).between(1, 1).pieces() == ([], 0)
