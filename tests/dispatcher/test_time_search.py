"""Offsets by time: exact, whatever the times, and the behaviours of RocketMQ's own tests."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stratamq_dispatcher.cold_reads import ColdReads, LogIdentity
from stratamq_dispatcher.time_search import Boundary, offset_at

from tests.dispatcher.fixture_store import linear_offset_at
from tests.dispatcher.followed_log import HOST_V6, START_MS, Broker, WrittenLog, start
from tests.support.disks import simulated_place


def broker_with(gaps: list[int], *, first: int = 0, segment_bytes: int = 4096) -> Broker:
    """One message after each gap in ms; every third from an IPv6 host, others in between."""
    files = simulated_place().files
    log = WrittenLog(files, segment_bytes=segment_bytes)
    log.next_queue_offset["t", 0] = first
    for number, gap in enumerate(gaps):
        log.put("other", after_ms=0)
        log.put("t", after_ms=gap, born_host=HOST_V6 if number % 3 == 0 else bytes(8))
    broker = start(files, log)
    broker.follow()
    return broker


def asked(broker: Broker, timestamp_ms: int, boundary: Boundary) -> int:
    engine = broker.engine
    queue = engine.queues.get("t", 0)
    open_files = engine.queues.open_files
    minimum = queue.minimum(open_files, engine.followed.minimum)
    return offset_at(queue, minimum, open_files, engine.hot_log(), timestamp_ms, boundary)


@settings(deadline=None, max_examples=80)
@given(
    gaps=st.lists(st.integers(0, 4), min_size=1, max_size=40),
    shift=st.integers(-5, 120),
    boundary=st.sampled_from(list(Boundary)),
    first=st.sampled_from([0, 3, 17]),
)
def test_a_time_is_found_as_by_looking_at_every_message(gaps, shift, boundary, first):
    broker = broker_with(gaps, first=first)
    times = [m.store_ms for m in broker.log.of_queue("t", 0)]
    timestamp_ms = START_MS + shift
    expected = first + linear_offset_at(times, timestamp_ms, boundary)
    assert asked(broker, timestamp_ms, boundary) == expected


def test_a_messages_own_time_leads_to_it():
    broker = broker_with([10] * 10)
    for message in broker.log.of_queue("t", 0):
        for boundary in Boundary:
            assert asked(broker, message.store_ms, boundary) == message.queue_offset


def test_a_time_two_milliseconds_beside_a_message_is_nearest_to_it():
    broker = broker_with([10] * 10)
    for message in broker.log.of_queue("t", 0):
        for skew in (-2, 2):
            assert asked(broker, message.store_ms + skew, Boundary.NEAREST) == message.queue_offset


def test_of_two_equally_near_messages_the_earlier_is_taken():
    broker = broker_with([10, 10])
    assert asked(broker, START_MS + 15, Boundary.NEAREST) == 0
    assert asked(broker, START_MS + 16, Boundary.NEAREST) == 1


@pytest.mark.parametrize(
    ("boundary", "long_before", "long_after"),
    [(Boundary.LOWER, 0, 10), (Boundary.UPPER, 0, 9), (Boundary.NEAREST, 0, 9)],
)
def test_times_outside_the_queue_lead_to_its_ends(boundary, long_before, long_after):
    broker = broker_with([10] * 10)
    for skew in (20_000, 2**62):
        assert asked(broker, START_MS - skew, boundary) == long_before
        assert asked(broker, START_MS + skew, boundary) == long_after


def test_of_many_messages_of_one_millisecond_the_bounds_are_the_first_and_the_last():
    broker = broker_with([5] + [0] * 20 + [5])
    time = broker.log.of_queue("t", 0)[3].store_ms
    assert asked(broker, time, Boundary.LOWER) == 0
    assert asked(broker, time, Boundary.NEAREST) == 0
    assert asked(broker, time, Boundary.UPPER) == 20


def test_messages_that_are_gone_from_the_log_are_not_found():
    broker = broker_with([10] * 60, segment_bytes=2048)
    broker.log.delete_below(4096)
    broker.follow()
    first = broker.log.of_queue("t", 0)[0]
    assert first.queue_offset > 0
    for boundary in Boundary:
        assert asked(broker, START_MS, boundary) == first.queue_offset


@pytest.mark.parametrize("boundary", list(Boundary))
def test_a_search_beside_the_engine_gives_the_same(boundary):
    broker = broker_with([3, 0, 7, 1, 0, 0, 9] * 6)
    engine = broker.engine
    snapshot = engine.queues.get("t", 0).snapshot(0)
    cold = ColdReads(broker.engine_files)
    view = LogIdentity(engine.followed.segment_bytes, engine.history, engine.followed.minimum)
    for timestamp_ms in range(START_MS - 2, START_MS + 130):
        assert cold.offset_at(snapshot, timestamp_ms, boundary, view) == asked(
            broker, timestamp_ms, boundary
        )


def test_a_clock_that_was_set_back_still_gives_a_place_where_the_time_is_passed():
    broker = broker_with([10] * 20 + [-150] + [10] * 20)
    times = [m.store_ms for m in broker.log.of_queue("t", 0)]
    for timestamp_ms in range(START_MS - 5, START_MS + 300, 7):
        found = asked(broker, timestamp_ms, Boundary.LOWER)
        assert found == len(times) or times[found] >= timestamp_ms
        assert found == 0 or times[found - 1] < timestamp_ms
