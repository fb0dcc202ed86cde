"""What an agent takes for a step back of the election's value, and how long it has followed it."""

import pytest
from stratamq_agent.watch import LeaseWatch

from stratamq.election.store import ABSENT, StoredState
from stratamq.formats.election_state import ElectionState

TTL = 100
NOW = StoredState(ElectionState("a", 8, 9), "20")


class ManualClock:
    def __init__(self) -> None:
        self.now_ns = 1_000

    def wall_ms(self) -> int:
        return 0

    def monotonic_ns(self) -> int:
        return self.now_ns


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def watch(clock) -> LeaseWatch:
    """One that has followed `NOW` for a whole ttl."""
    watch = LeaseWatch(clock, TTL)
    for _ in range(3):
        watch.end(watch.begin(), NOW)
        clock.now_ns += 50
    assert watch.watched_ns >= TTL
    return watch


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (StoredState(ElectionState("c", 7, 3), "12"), "renewal 3 was read after 9"),
        (StoredState(ElectionState("c", 8, 9), "20"), "renewal 9 was of a, and is of c"),
        (StoredState(ElectionState("a", 7, 10), "21"), "term 7 was read after 8"),
        (StoredState(ElectionState("a", 8, 10), "19"), "revision 19 was read after 20"),
        (StoredState(None, ABSENT), "the value is gone, renewal 9 of a was there"),
    ],
)
def test_a_step_back_is_named_and_counted_and_begins_the_watch_again(watch, clock, found, reason):
    assert watch.end(watch.begin(), found)
    assert (watch.step_back, watch.steps_back, watch.watched_ns) == (reason, 1, 0)
    assert watch.led_before == "a"
    clock.now_ns += TTL - 1
    assert watch.step_back == reason
    clock.now_ns += 1
    assert watch.step_back == ""


@pytest.mark.parametrize(
    "found",
    [
        NOW,
        StoredState(ElectionState("a", 8, 10), "21"),
        StoredState(ElectionState("c", 16, 10), "21"),
        StoredState(ElectionState("a", 8, 10), "not a number"),
        StoredState(ElectionState("a", 8, 9, switchover="c"), "21"),
    ],
)
def test_what_goes_forward_does_not_begin_the_watch_again(watch, found):
    assert not watch.end(watch.begin(), found)
    assert watch.watched_ns >= TTL
    assert watch.steps_back == 0


def test_an_answer_that_a_later_one_has_overtaken_shows_nothing(watch):
    late, newer = watch.begin(), watch.begin()
    assert not watch.end(newer, StoredState(ElectionState("a", 8, 10), "21"))
    assert not watch.end(late, NOW)
    own = watch.begin()
    watch.written(ElectionState("a", 8, 11), "22")
    assert not watch.end(own, StoredState(ElectionState("a", 8, 10), "21"))
    assert watch.steps_back == 0


def test_who_has_not_read_for_nearly_a_ttl_begins_again(watch, clock):
    clock.now_ns += 60
    watch.end(watch.begin(), NOW)
    assert watch.watched_ns == 0
    assert watch.step_back == ""
