"""The janitor over a real log in virtual time: clocks that jump, summers that come, two of them."""

import time

import pytest

from stratamq.formats.store_paths import DELIVERY_STATE_PATH
from tests.janitor.watched_log import HOUR_MS, SEGMENT, WatchedLog
from tests.support.disks import write_file

EUROPE = "AAA-1BBB,M3.5.0,M10.5.0/3"
"""At 02:00 it is 03:00; in October at 03:00 it is 02:00."""
SKIPS_FOUR = "AAA0BBB,M3.5.0/4,M10.5.0/5"
"""At 04:00 it is 05:00; in October at 05:00 it is 04:00: the hour that people set comes not at all
one night, and twice in another."""


@pytest.fixture
def zone(monkeypatch):
    """Sets the machine's time zone for one test."""

    def set_zone(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield set_zone
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def log(zone) -> WatchedLog:
    zone("UTC0")
    return WatchedLog("2026-06-01T12:00")


def night(log: WatchedLog, janitor, minutes: int, step: int = 20) -> list[str]:
    """Look every so many minutes from a moment on; the local times of looks that deleted, to ten
    minutes."""
    deleted = []
    for _ in range(0, minutes, step):
        look = janitor.run()
        if look.deleted:
            deleted.append(f"{look.facts.local:%H:%M}"[:4] + "0")
        log.clock.advance_ms(step * 60_000)
        log.fill(1)
    return deleted


# --- the clock ---


def test_expired_segments_go_at_the_hour_and_the_last_one_stays(log):
    log.fill(4)
    janitor = log.janitor()
    janitor.run()
    log.pass_hours(16 + 72)  # 04:00, three days and a night later
    assert len(janitor.run().deleted) == 4
    assert log.minimum == 4 * SEGMENT
    log.pass_hours(0.1)
    assert log.segments()[0] == 4


def test_a_clock_put_forward_deletes_nothing_until_operators_had_an_hour_to_put_it_right(log):
    log.fill(4)
    janitor = log.janitor()
    janitor.run()
    log.set_wall("2031-01-01T04:00")
    look = janitor.run(manual=True)
    assert not look.deleted and "is unaccounted for" in look.decision.alarm
    assert "--trust-clock" in look.decision.alarm
    log.set_wall("2026-06-01T12:05")
    look = janitor.run(manual=True)
    assert not look.deleted and not look.decision.alarm, "right again: nothing is old"
    log.pass_hours(80)
    assert len(janitor.run(manual=True).deleted) == 4


def test_a_clock_that_is_right_after_all_is_trusted_after_the_hour_or_by_a_command(log):
    log.fill(4)
    janitor = log.janitor()
    janitor.run()
    log.set_wall("2026-07-01T04:00")
    assert not janitor.run(manual=True).deleted
    assert not janitor.plan(manual=True).decision.deletions
    assert len(janitor.plan(manual=True, trust_clock=True).decision.deletions) == 4
    assert not janitor.run(manual=True).deleted, "a plan changes nothing"
    log.pass_hours(1)
    assert len(janitor.plan(manual=True).decision.deletions) == 4, "what a run would do now"
    assert len(janitor.run(manual=True).deleted) == 4
    log.fill(2)
    log.set_wall("2026-08-01T04:00")
    assert not janitor.run(manual=True).deleted
    assert len(janitor.run(manual=True, trust_clock=True).deleted) == 2


def test_a_clock_put_forward_within_a_look_deletes_nothing(log):
    log.fill(8)
    janitor = log.janitor()
    janitor.run(manual=True)
    log.on_log_state = lambda: log.set_wall("2031-01-01T04:00")
    assert not janitor.run(manual=True).deleted
    look = janitor.run(manual=True)
    assert not look.deleted and "is unaccounted for" in look.decision.alarm


def test_a_plan_judges_the_clock_as_it_is_now(log):
    log.fill(4)
    janitor = log.janitor()
    janitor.run()
    log.set_wall("2031-01-01T04:00")
    plan = janitor.plan(manual=True)
    assert not plan.decision.deletions and "is unaccounted for" in plan.decision.alarm
    assert plan.decision == janitor.run(manual=True).decision


def test_an_operator_who_confirms_a_jump_before_any_look_saw_it_ends_the_doubt_for_good(log):
    log.fill(4)
    janitor = log.janitor()
    janitor.run()
    log.set_wall("2026-07-01T04:00")
    assert len(janitor.run(manual=True, trust_clock=True).deleted) == 4
    log.fill(2)
    assert not log.janitor().plan(manual=True).decision.alarm, "nor does another start doubt"


def test_a_clock_put_forward_while_the_janitor_was_down_deletes_nothing(log):
    log.fill(4)
    log.janitor().run()
    log.pass_hours(2)
    log.set_wall("2031-01-01T04:00")
    janitor = log.janitor()
    assert not janitor.run(manual=True).deleted
    assert not log.janitor().run(manual=True).deleted, "nor after another start"
    assert log.minimum == 0


def test_a_clock_put_back_deletes_nothing_and_loses_no_day(log):
    log.fill(4)
    janitor = log.janitor()
    janitor.run()
    log.set_wall("2021-01-01T04:00")
    look = janitor.run(manual=True)
    assert not look.deleted
    assert "is slow, or was fast" in look.decision.alarm
    log.set_wall("2026-06-01T13:00")
    log.pass_hours(80)
    janitor.run()
    log.pass_hours(1)
    look = janitor.run(manual=True)
    assert (len(look.deleted), look.decision.alarm) == (4, "")


def test_messages_stored_while_the_clock_was_fast_age_by_their_files(log):
    log.store.restart(clock_jump_limit_ms=0)  # the log uses the wall clock
    log.fill(2)
    log.set_wall("2027-06-01T12:00")
    log.fill(2)
    log.set_wall("2026-06-01T12:01")
    log.fill(2)  # their store times are those of 2027: they never go back
    for segment in range(7):
        log.touch(segment)
    janitor = log.janitor()
    look = janitor.run(manual=True)
    assert not look.deleted
    assert "was fast when it was stored" in look.decision.alarm
    log.pass_hours(71.9)
    assert not janitor.run(manual=True).deleted
    log.pass_hours(0.2)
    assert len(janitor.run(manual=True).deleted) == 6


def test_file_times_are_ages_where_retention_goes_by_file_time(log):
    log.fill(4)
    for segment in (0, 1):
        log.touch(segment)
    janitor = log.janitor(retention_by="FILE_TIME")
    janitor.run()
    log.pass_hours(60)
    for segment in (2, 3, 4):
        log.touch(segment)
    log.pass_hours(20)
    assert len(janitor.run(manual=True).deleted) == 2


# --- the hour ---


def test_what_came_due_while_the_janitor_was_down_is_made_up_for(log):
    log.fill(4)
    settings = {"retention_ms": 12 * HOUR_MS}
    log.janitor(**settings).run()
    log.pass_hours(15.5)
    assert not log.janitor(**settings).run().deleted, "03:30"
    log.pass_hours(2)
    assert len(log.janitor(**settings).run().deleted) == 4, "05:30; the hour came and went"
    log.fill(1)
    log.pass_hours(14)
    assert not log.janitor(**settings).run().deleted, "19:30; it came once"


def test_more_than_one_run_takes_continues_after_an_hour_that_was_missed(log):
    log.fill(25)
    janitor = log.janitor(retention_ms=12 * HOUR_MS)
    janitor.run()
    log.pass_hours(15.5)
    assert not janitor.run().deleted, "03:30"
    log.pass_hours(2)
    assert [len(janitor.run().deleted) for _ in range(4)] == [10, 10, 5, 0]
    log.fill(2)
    log.pass_hours(13)
    assert not janitor.run().deleted


@pytest.mark.parametrize(
    ("zone_name", "first", "minutes", "due"),
    [
        # Four in the morning comes once on both days; two does not, and comes twice.
        (EUROPE, "2026-03-29T00:30", 480, "04"),
        (EUROPE, "2026-10-25T00:30", 480, "04"),
        # The hour that is set is skipped: the first look after it makes up for it.
        (SKIPS_FOUR, "2026-03-29T02:30", 240, "05:10"),
        # The hour that is set comes twice, and is the hour both times.
        (SKIPS_FOUR, "2026-10-25T02:30", 360, "04"),
    ],
    ids=["spring", "autumn", "four is skipped", "four comes twice"],
)
def test_when_summer_time_begins_and_ends(zone, zone_name, first, minutes, due):
    zone(zone_name)
    log = WatchedLog(first)
    log.clock.set_wall_ms(log.clock.wall_ms() - 2 * HOUR_MS)
    log.fill(3)
    log.pass_hours(2)
    janitor = log.janitor(retention_ms=HOUR_MS)
    janitor.run(trust_clock=True)
    deleted = night(log, janitor, minutes)
    assert deleted and all(moment.startswith(due) for moment in deleted), deleted


def test_the_hour_that_comes_twice_is_there_for_two_hours(zone):
    zone(SKIPS_FOUR)
    log = WatchedLog("2026-10-25T00:30")
    log.fill(3)
    log.pass_hours(2)
    janitor = log.janitor(retention_ms=HOUR_MS)
    janitor.run(trust_clock=True)
    assert night(log, janitor, minutes=300) == ["04:10", "04:30", "04:50"] * 2


# --- two at once ---


def test_two_janitors_on_one_log_delete_nothing_twice_and_nothing_that_stays(log):
    log.fill(9)
    log.janitor().run()
    log.pass_hours(80)
    janitors = [log.janitor(max_segments_per_run=3) for _ in range(2)]
    plans = [janitor.plan(manual=True) for janitor in janitors]
    assert plans[0].decision == plans[1].decision
    # Both act on what both saw before either did.
    counts = [len(janitor.run(manual=True).deleted) for janitor in janitors]
    assert counts == [3, 3]
    assert log.minimum == 6 * SEGMENT
    late = log.delete_below(plans[0].decision.delete_below, max_segments=10, urgent=True)
    assert late == (6 * SEGMENT, ()), "what is gone is gone for both"
    while any(janitor.run(manual=True).deleted for janitor in janitors):
        pass
    assert log.minimum == 9 * SEGMENT
    assert sum(janitor.freed_bytes for janitor in janitors) == 9 * SEGMENT


def test_a_janitor_that_dies_between_its_decision_and_the_deletion_changes_nothing(log):
    log.fill(4)
    log.janitor().run()
    log.pass_hours(80)
    assert log.janitor().plan(manual=True).decision.deletions
    assert log.minimum == 0
    assert len(log.janitor().run(manual=True).deleted) == 4


# --- what waits for its delivery ---


@pytest.fixture
def waited_for(log) -> WatchedLog:
    """Four expired segments; the delivery service has been here."""
    write_file(log.store.new_files(), DELIVERY_STATE_PATH, b"{}")
    log.fill(4)
    log.janitor().run()
    log.pass_hours(100)
    return log


def test_expired_segments_stay_while_messages_in_them_wait(waited_for):
    waited_for.needed_offset = 2 * SEGMENT + 100
    look = waited_for.janitor().run(manual=True)
    assert len(look.deleted) == 2
    assert [one.by for one in look.decision.held] == ["waiting"]
    assert f"the first one at {2 * SEGMENT + 100}" in look.decision.held[0].sentence
    waited_for.needed_offset = 4 * SEGMENT
    assert len(waited_for.janitor().run(manual=True).deleted) == 2


def test_a_delivery_that_is_down_or_reads_the_log_again_holds_all_that_has_expired(waited_for):
    look = waited_for.janitor().run(manual=True)
    assert not look.deleted and "nobody listens" in look.decision.held[0].sentence
    waited_for.needed_offset, waited_for.delivery_serves = 4 * SEGMENT, False
    look = waited_for.janitor().run(manual=True)
    assert not look.deleted and "does not serve yet" in look.decision.held[0].sentence


def test_what_waits_holds_nothing_that_is_twice_as_old_as_the_retention(waited_for):
    waited_for.pass_hours(44)
    assert len(waited_for.janitor().run(manual=True).deleted) == 4


def test_a_store_that_no_delivery_service_has_seen_is_not_asked_about_one(log):
    log.fill(4)
    log.janitor().run()
    log.pass_hours(100)
    assert len(log.janitor().run(manual=True).deleted) == 4
