"""How often a follower hears: at once, soon, or when it is worth it."""

import pytest
from stratamq_commitlog.replica.follow_hub import (
    CONFIRMED_SECONDS,
    LARGE_EVENT_BYTES,
    LONG_SECONDS,
    SHORT_SECONDS,
    STEADY_SECONDS,
    UNHURRIED_SECONDS,
    WHOLE_EVENT_BYTES,
    EventPace,
)


def paced(event_bytes, *, steady=False):
    pace = EventPace(steady=steady)
    pace.spoke(100.0, event_bytes)
    return pace


def test_a_message_that_comes_alone_is_in_an_event_at_once():
    assert EventPace(steady=False).early(100.0, 1000) == 0
    assert paced(1000).early(100.0 + SHORT_SECONDS, 1000) == 0


def test_what_follows_closely_waits_for_what_comes_with_it():
    assert paced(1000).early(100.0, 1000) == pytest.approx(SHORT_SECONDS)
    assert paced(1000).early(100.001, 1000) == pytest.approx(SHORT_SECONDS - 0.001)


def test_behind_large_events_it_waits_longer():
    assert paced(LARGE_EVENT_BYTES).early(100.0, 1000) == pytest.approx(LONG_SECONDS)


def test_a_whole_events_worth_waits_for_nothing():
    assert paced(LARGE_EVENT_BYTES).early(100.0, WHOLE_EVENT_BYTES) == 0


def test_a_follower_that_producers_wait_for_gets_large_events_as_often():
    for event_bytes in (1000, LARGE_EVENT_BYTES):
        pace = paced(event_bytes, steady=True)
        assert pace.early(100.0, 1000) == pytest.approx(STEADY_SECONDS)


def test_what_is_confirmed_soon_after_the_last_waits_for_bytes_but_not_for_long():
    pace = EventPace(steady=True)
    pace.spoke(100.0, 1000, 0)
    pace.spoke(101.0, 1000, 0)
    assert pace.early(101.0 + STEADY_SECONDS, 0) == 0  # the last one was long ago
    pace = EventPace(steady=True)
    pace.spoke(100.0, 1000, 1000)
    assert pace.early(100.0 + STEADY_SECONDS, 0) == pytest.approx(
        CONFIRMED_SECONDS - STEADY_SECONDS
    )
    assert pace.early(100.0 + STEADY_SECONDS, 1000) == 0
    assert pace.early(100.0 + CONFIRMED_SECONDS, 0) == 0


def test_an_event_without_messages_does_not_change_the_pace():
    pace = paced(LARGE_EVENT_BYTES)
    pace.spoke(100.01, 0)
    assert pace.early(100.01, 1000) == pytest.approx(LONG_SECONDS)


def test_a_follower_whose_work_no_caller_waits_for_gets_what_comes_in_fifty_milliseconds_together():
    pace = paced(1000)
    assert pace.early(100.0 + SHORT_SECONDS, 1000, True) == pytest.approx(
        UNHURRIED_SECONDS - SHORT_SECONDS
    )
    assert pace.early(100.0 + UNHURRIED_SECONDS, 1000, True) == 0
    assert pace.early(100.0, WHOLE_EVENT_BYTES, True) == 0
    assert pace.early(100.0 + SHORT_SECONDS, 1000, False) == 0
