"""Lag in messages and in time, from marks of the log's growth."""

from stratamq_commitlog.replica.lag_marks import LagMarks

SECOND = 1_000_000_000


def grown(*marks: tuple[int, int, int], most: int = 100) -> LagMarks:
    """(end, messages since the start, seconds)."""
    found = LagMarks(most)
    for end, messages, at_s in marks:
        found.grown(end, messages, at_s * SECOND)
    return found


def test_what_is_between_two_marks_is_counted_in_proportion():
    marks = grown((1_000, 0, 0), (2_000, 10, 1), (4_000, 20, 2))
    assert marks.lag_messages(1_000, 4_000) == 20
    assert marks.lag_messages(1_500, 4_000) == 15
    assert marks.lag_messages(3_000, 4_000) == 5
    assert marks.lag_messages(4_000, 4_000) == 0
    assert marks.lag_messages(5_000, 4_000) == 0


def test_the_lag_in_time_is_the_age_of_the_first_thing_missed():
    marks = grown((1_000, 0, 0), (2_000, 10, 10), (4_000, 20, 25))
    assert marks.lag_ns(2_000, 4_000, 30 * SECOND) == 5 * SECOND
    assert marks.lag_ns(1_999, 4_000, 30 * SECOND) == 20 * SECOND
    assert marks.lag_ns(4_000, 4_000, 30 * SECOND) == 0


def test_what_was_there_before_the_first_mark_counts_as_old_as_that_and_no_message():
    marks = grown((1_000, 0, 5), (2_000, 10, 6))
    assert marks.lag_messages(0, 2_000) == 10
    assert marks.lag_ns(0, 2_000, 9 * SECOND) == 4 * SECOND


def test_before_any_mark_nothing_is_known_and_nothing_is_behind():
    assert grown().lag_messages(0, 100) == 0
    assert grown().lag_ns(0, 100, SECOND) == 0


def test_a_log_that_does_not_grow_leaves_no_marks():
    marks = grown((1_000, 0, 0), (2_000, 1, 1), *((2_000, 1, at) for at in range(2, 50)))
    assert marks.lag_ns(1_000, 2_000, 50 * SECOND) == 49 * SECOND


def test_what_a_cut_takes_away_is_forgotten():
    marks = grown((1_000, 0, 0), (2_000, 10, 1), (4_000, 20, 2), (3_000, 25, 3))
    assert marks.lag_messages(1_000, 3_000) == 25
    assert marks.lag_ns(2_500, 3_000, 4 * SECOND) == SECOND


def test_of_a_long_life_a_bounded_number_of_marks_is_kept_coarser_the_older():
    most, end = 64, 100_000
    marks = grown(*((at * 100, at, at) for at in range(end + 1)), most=most)
    newest = end * 100
    # Recent times to the second, old ones within a part of their age.
    for behind_s in (1, 5, 20):
        lag = marks.lag_ns(newest - behind_s * 100, newest, (end + 1) * SECOND)
        assert lag == behind_s * SECOND
    for behind_s in (1_000, 50_000):
        lag = marks.lag_messages(newest - behind_s * 100, newest)
        assert abs(lag - behind_s) <= 1
    assert len(marks) <= most
