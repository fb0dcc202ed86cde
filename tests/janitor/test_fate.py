"""By when retention takes a segment, and why that is not known."""

import pytest

from stratamq.errors import OffsetOutOfRangeError
from stratamq.formats.store_paths import DELIVERY_STATE_PATH
from tests.janitor.watched_log import HOUR_MS, SEGMENT, WatchedLog, wall_ms
from tests.support.disks import write_file


@pytest.fixture
def log() -> WatchedLog:
    """Four full segments of 1 June, 12:00, and the one in use."""
    log = WatchedLog("2026-06-01T12:00")
    log.fill(4)
    log.janitor().run()
    return log


def test_a_segment_goes_in_the_first_hour_of_deletion_after_it_expired(log):
    fate = log.janitor().fate(SEGMENT + 7)
    assert (fate.segment.start, fate.segment.end) == (SEGMENT, 2 * SEGMENT)
    assert abs(fate.expires_ms - wall_ms("2026-06-04T12:00")) < HOUR_MS / 60
    assert fate.deleted_by_ms == wall_ms("2026-06-05T04:00")
    assert fate.obstacle == ""


def test_the_janitor_deletes_by_then_and_not_before(log):
    janitor = log.janitor()
    fate = janitor.fate(SEGMENT)
    while log.clock.wall_ms() < fate.deleted_by_ms - HOUR_MS:
        log.pass_hours(0.5)
        assert janitor.run().deleted == ()
    log.pass_hours(1)
    janitor.run()
    assert log.minimum > fate.segment.start


def test_one_that_has_expired_goes_at_the_next_hour_or_in_this_one(log):
    log.pass_hours(100)  # 5 June, 16:00
    assert log.janitor().fate(0).deleted_by_ms == wall_ms("2026-06-06T04:00")
    log.pass_hours(12.5)
    assert abs(log.janitor().fate(0).deleted_by_ms - log.clock.wall_ms()) < 1_000


def test_the_last_segment_has_no_time(log):
    fate = log.janitor().fate(4 * SEGMENT)
    assert (fate.expires_ms, fate.deleted_by_ms) == (None, None)
    assert "not full" in fate.obstacle


def test_what_holds_an_older_segment_back_keeps_those_behind_it(log):
    fate = log.janitor(hold=("replicated",)).fate(SEGMENT)
    assert fate.deleted_by_ms is None and "no slave" in fate.obstacle
    log.adopt()
    assert "another program" in log.janitor().fate(SEGMENT).obstacle


def test_messages_that_wait_put_it_off_until_it_is_twice_as_old(log):
    write_file(log.store.new_files(), DELIVERY_STATE_PATH, b"{}")
    log.needed_offset = 0
    fate = log.janitor().fate(SEGMENT)
    assert fate.deleted_by_ms == wall_ms("2026-06-08T04:00")
    assert "wait for their delivery" in fate.obstacle
    log.needed_offset = 2 * SEGMENT
    assert log.janitor().fate(SEGMENT).deleted_by_ms == wall_ms("2026-06-05T04:00")


def test_without_an_hour_of_deletion_there_is_no_time(log):
    fate = log.janitor(delete_when=()).fate(SEGMENT)
    assert fate.expires_ms and fate.deleted_by_ms is None and "no hour" in fate.obstacle


def test_an_offset_that_the_log_has_not_is_refused(log):
    with pytest.raises(OffsetOutOfRangeError):
        log.janitor().fate(5 * SEGMENT)
