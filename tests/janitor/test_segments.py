"""When each segment goes for its age, and the list of segments that a service gives in pages."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from stratamq_janitor.fate import fates_of
from stratamq_janitor.policy import REPLICATED, CleaningFacts, SegmentFacts, Settings, decide

from stratamq.api.v1 import janitor_pb2
from stratamq.client import connect
from stratamq.rpc.methods import METHODS
from tests.support.brokers import COMMITLOG, broker_fixture

HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000
SEGMENT = 65536
USUAL = Settings()

broker = broker_fixture(
    f"commitlog.segment_bytes={SEGMENT}", rooms=[COMMITLOG, "janitor"], scope="function"
)


def facts(hours_old: float | None, at: str = "10:00", full: float = 0.5) -> CleaningFacts:
    newest_ms = None if hours_old is None else NOW_MS - int(hours_old * HOUR_MS)
    return CleaningFacts(
        now_ms=NOW_MS,
        local=datetime.fromisoformat(f"2027-01-15T{at}"),
        previous=None,
        disk_total_bytes=1000,
        disk_used_bytes=int(full * 1000),
        segments=[SegmentFacts(0, 10, newest_ms), SegmentFacts(10, 20, None)],
    )


def local_in(case: CleaningFacts) -> Callable[[int], datetime]:
    """The wall's time in the zone of a case."""
    return lambda at_ms: case.local + timedelta(milliseconds=at_ms - case.now_ms)


def goes_ms(case: CleaningFacts, settings: Settings) -> int | None:
    return fates_of(0, 1, case, settings, local_in(case))[0].goes_ms


def goes_in_hours(case: CleaningFacts, settings: Settings = USUAL) -> float | None:
    at_ms = goes_ms(case, settings)
    return None if at_ms is None else (at_ms - case.now_ms) / HOUR_MS


@pytest.mark.parametrize(
    ("case", "hours"),
    [
        (facts(72), 18),  # it has expired at 10:00, and waits for 04:00
        (facts(48), 24 + 18),
        (facts(200), 18),
        (facts(54, "09:30"), 18.5),  # it expires at 03:30, half an hour before
        (facts(72 - 18.5), 18.5),  # it expires at 04:30, when it is the hour
        (facts(72 - 19, "09:00"), 19),
        (facts(60, full=0.8), 12),  # above the cleaning level at any hour
        (facts(80, full=0.8), 0),
        (facts(None), None),
        (replace(facts(72), disabled="an operator has disabled retention"), None),
    ],
)
def test_a_segment_goes_at_the_first_hour_at_which_it_has_expired(case, hours):
    assert goes_in_hours(case) == hours


def test_without_an_hour_no_time_is_known_while_the_disk_has_room():
    assert goes_in_hours(facts(72), Settings(delete_hours=frozenset())) is None


@pytest.mark.parametrize("age", range(50, 100))
def test_at_the_time_that_is_given_the_janitor_deletes_it_and_not_an_hour_before(age):
    case = facts(age, "10:20")
    at_ms = goes_ms(case, Settings())
    assert at_ms is not None
    for early_ms, goes in ((0, True), (HOUR_MS, False)):
        ahead = timedelta(milliseconds=at_ms - NOW_MS - early_ms)
        then = replace(case, now_ms=at_ms - early_ms, local=case.local + ahead)
        assert bool(decide(then, Settings()).deletions) is goes


def test_a_segment_that_is_held_back_has_no_time():
    held = Settings(hold=frozenset({REPLICATED}))
    assert goes_in_hours(facts(72), held) is None
    assert goes_in_hours(replace(facts(72), held_at={REPLICATED: 10}), held) == 18


def test_on_a_full_volume_it_goes_before_the_time_that_is_promised():
    (fate,) = fates_of(0, 1, facts(60, full=0.8), USUAL, local_in(facts(60)))
    assert (fate.deleted_by_ms - fate.goes_ms) / HOUR_MS == 6


def test_a_message_and_the_map_of_its_segment_say_the_same_time(broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        sent = [client.send("t", bytes(40_000)).physical_offset for _ in range(5)]
    channel = broker.channel("janitor")
    listed = METHODS["ListSegments"].on(channel)(janitor_pb2.ListSegmentsRequest())
    asked = [janitor_pb2.GetRetentionRequest(offset=one) for one in sent]
    told = [METHODS["GetRetention"].on(channel)(one) for one in asked]
    times = {one.start_offset: one.deletion_ms for one in listed.segments}
    assert [times[one.fate.start_offset] for one in told] == [o.fate.deleted_by_ms for o in told]
    assert any(times.values()) and not times[sent[-1] // SEGMENT * SEGMENT]
    assert (listed.plan.kept.start_offset, listed.retention) == (0, told[0].retention)


def test_pages_give_every_segment_once_and_only_the_last_ones_age_is_unknown(broker):
    with connect(broker.root) as client:
        for _ in range(9):
            client.send("t", bytes(40_000))
        found = client.admin.storage_map().segments
        end = client.log_state().appended_offset
    assert [one.start_offset for one in found.segments] == list(range(0, end, SEGMENT))
    assert [one.newest_ms is None for one in found.segments] == [False] * 8 + [True]
    assert all(one.deletion_ms for one in found.segments[:-1])
    assert found.disk_total_bytes > found.disk_used_bytes > 0
    request = janitor_pb2.ListSegmentsRequest(max_entries=4)
    stub = METHODS["ListSegments"].on(broker.channel("janitor"))
    starts, sizes = [], []
    while True:
        page = stub(request)
        starts += [one.start_offset for one in page.segments]
        sizes.append(len(page.segments))
        if not page.next_position:
            break
        request.position = page.next_position
    assert starts == list(range(0, end, SEGMENT))
    assert sizes == [4, 4, 1]
