"""The scrubber reads all full segments, within its budget, and names exactly what is damaged."""

import errno

import pytest
from stratamq_commitlog.recovery.own_state import SCRUB_PATH
from stratamq_commitlog.upkeep import scrubber

from stratamq.formats.log_damage import Damage
from stratamq.formats.log_state import ScrubState
from stratamq.formats.message_status import SendStatus
from tests.support.logs import Store, segment_path

SEGMENT = 4096
DAY_MS = 86_400_000


def filled(segments: int = 4, **settings) -> Store:
    """So many segments, all but the last full."""
    store = Store(SEGMENT, scrub_interval_ms=DAY_MS, **settings)
    store.start()
    assert store.log is not None
    while len(store.log.segments.offsets) < segments:
        store.put(b"x" * 500)
    store.pass_time(1)
    return store


def scrub(store: Store) -> ScrubState:
    """Let a pass come to its end."""
    assert store.log is not None
    passes = store.log.scrubber.state.passes
    store.clock.advance_ms(DAY_MS)
    for _ in range(200):
        store.pass_time(100)
        if store.log.scrubber.state.passes > passes:
            return store.log.scrubber.state
    raise AssertionError("the pass does not end")


def frame_offsets(store: Store) -> list[tuple[int, int]]:
    return [(offset, len(raw)) for offset, raw, _ in store.members()]


def test_a_pass_verifies_every_frame_of_the_full_segments_and_nothing_of_the_last():
    store = filled(4)
    assert store.log is not None
    first_pass = store.log.scrubber.verified_frames
    state = scrub(store)
    full = [f for f in store.frames() if f.physical_offset < 3 * SEGMENT]
    assert state.damage == ()
    assert state.position_offset == 3 * SEGMENT
    assert store.log.scrubber.verified_frames - first_pass == len(full) > 15


@pytest.mark.parametrize("checksum", [True, False], ids=["sealed", "as RocketMQ writes"])
def test_a_flipped_bit_of_a_body_is_named_with_its_frame(checksum):
    store = filled(4, property_checksum=checksum)
    offset, size = frame_offsets(store)[3]
    store.disk.rot(segment_path(0), offset + 300, b"\0")
    reason = "record_crc" if checksum else "body_crc"
    assert scrub(store).damage == (Damage(offset, offset + size, reason),)


def test_a_flipped_bit_of_a_property_is_found_in_a_sealed_record():
    store = filled(4, property_checksum=True)
    offset, size = frame_offsets(store)[2]
    store.disk.rot(segment_path(0), offset + size - 24, b"!")
    assert scrub(store).damage == (Damage(offset, offset + size, "record_crc"),)


def test_a_destroyed_length_costs_one_frame_and_not_the_rest_of_the_segment():
    store = filled(4)
    (offset, size), (following, _) = frame_offsets(store)[2:4]
    assert offset + size == following
    store.disk.rot(segment_path(0), offset, b"\xff\xff\xff\xff")
    assert scrub(store).damage == (Damage(offset, following, "length"),)


def test_zeroed_frames_are_one_stretch():
    store = filled(4)
    places = frame_offsets(store)
    start, end = places[1][0], places[4][0]
    store.disk.rot(segment_path(0), start, bytes(end - start))
    assert scrub(store).damage == (Damage(start, end, "magic"),)


def test_damage_at_a_segments_end_reaches_to_its_end():
    store = filled(4)
    last = max(offset for offset, _ in frame_offsets(store) if offset < SEGMENT)
    store.disk.rot(segment_path(0), last, bytes(SEGMENT - last))
    assert scrub(store).damage == (Damage(last, SEGMENT, "magic"),)


def test_a_stretch_that_the_device_refuses_is_named_and_the_pass_continues():
    store = filled(4)
    assert store.log is not None
    store.clock.advance_ms(DAY_MS)
    store.disk.fail("read", segment_path(0), error=errno.EIO)
    state = scrub(store)
    assert Damage(0, SEGMENT, "unreadable") in state.damage
    assert state.position_offset == 3 * SEGMENT
    assert store.put(b"goes on").status is SendStatus.PUT_OK


def test_what_is_whole_again_in_the_next_pass_is_no_longer_listed():
    store = filled(4)
    offset, _ = frame_offsets(store)[3]
    before = store.disk.contents(segment_path(0))[offset + 300 : offset + 301]
    store.disk.rot(segment_path(0), offset + 300, b"\0")
    assert len(scrub(store).damage) == 1
    store.disk.rot(segment_path(0), offset + 300, before)
    assert scrub(store).damage == ()


def test_damage_of_a_deleted_segment_is_forgotten():
    store = filled(4)
    store.disk.rot(segment_path(0), 300, b"\0")
    assert len(scrub(store).damage) == 1
    assert store.log is not None
    store.log.delete_below(SEGMENT, 1, True)
    assert scrub(store).damage == ()


def test_no_more_is_read_than_the_budget_allows():
    store = filled(40, scrub_bytes_per_second=8 * SEGMENT)
    assert store.log is not None
    store.clock.advance_ms(DAY_MS)
    store.pass_time(1)
    before = store.log.scrubber.read_bytes
    seconds = 100
    store.pass_time(1_000, ticks=seconds)
    read = store.log.scrubber.read_bytes - before
    assert 0 < read <= 8 * SEGMENT * seconds + scrubber.PIECE_BYTES


def test_a_rate_of_zero_switches_it_off():
    store = filled(4, scrub_bytes_per_second=0)
    store.pass_time(DAY_MS, ticks=3)
    assert store.log is not None
    assert store.log.scrubber.read_bytes == 0


def test_a_pass_continues_where_the_last_process_was_and_remembers_its_damage():
    store = filled(6)
    store.disk.rot(segment_path(0), 300, b"\0")
    assert len(scrub(store).damage) == 1
    store.pass_time(100, ticks=20)  # the pass that was due meanwhile
    assert store.log is not None
    before = store.log.scrubber.state
    assert not before.passing
    store.restart()
    assert store.log is not None
    assert store.log.scrubber.state == before
    store.pass_time(1_000)
    assert store.log.scrubber.read_bytes == 0, "the next pass is not due"


def test_a_state_file_of_any_content_begins_anew():
    store = filled(4)
    scrub(store)
    store.stop()
    files = store.disk.files(name="other")
    size = files.entry(SCRUB_PATH).size
    file = files.open(SCRUB_PATH, writable=True)
    file.write(0, b"\xff" * size)
    file.flush()
    log = store.start()
    assert log.scrubber.state.damage == ()
    assert any("scrub.json" in line for line in log.report)
    assert scrub(store).damage == ()


def test_a_clock_that_went_back_does_not_put_the_next_pass_off():
    store = filled(4)
    passes = scrub(store).passes
    assert store.log is not None
    store.clock.set_wall_ms(store.clock.wall_ms() - 30 * DAY_MS)
    store.pass_time(100, ticks=50)
    assert store.log.scrubber.state.passes == passes + 1


def test_a_segment_that_is_deleted_while_it_is_read_is_left_and_the_next_one_begun(monkeypatch):
    monkeypatch.setattr(scrubber, "PIECE_BYTES", 1024)
    store = filled(5, scrub_bytes_per_second=1024, release_timeout_ms=0)
    assert store.log is not None
    store.pass_time(60_000)
    store.clock.advance_ms(DAY_MS)
    while not 0 < store.log.scrubber.state.position_offset < SEGMENT:
        store.pass_time(1_000)
    assert store.log.scrubber.state.passing
    passes, frames = store.log.scrubber.state.passes, store.log.scrubber.verified_frames
    store.log.delete_below(2 * SEGMENT, 2, True)
    while min(store.segments()) < 2 * SEGMENT:
        store.pass_time(100)
    while store.log.scrubber.state.passes == passes:
        store.pass_time(1_000)
    state = store.log.scrubber.state
    assert (state.damage, state.position_offset) == ((), 4 * SEGMENT)
    left = [f for f in store.frames() if 2 * SEGMENT <= f.physical_offset < 4 * SEGMENT]
    assert store.log.scrubber.verified_frames - frames >= len(left) > 10


def test_after_stop_nothing_more_is_read():
    store = filled(6)
    assert store.log is not None
    store.log.scrubber.stop()
    store.pass_time(1_000, ticks=50)
    assert store.log.scrubber.read_bytes == 0
