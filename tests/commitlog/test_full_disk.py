"""A disk without room is a level: refused with the reason, taken again when there is room."""

import math

import pytest
from stratamq_commitlog.recovery import own_state, reserve
from stratamq_commitlog.replica.role_change import RoleChange

from stratamq.errors import BusyError, StoreRefusedError
from stratamq.files.simulated import SimulatedDisk
from stratamq.formats.log_state import Role
from stratamq.formats.message_status import SendStatus
from tests.support.logs import Store

SEGMENT = 4096
KIB = 1024


def used(disk: SimulatedDisk) -> int:
    space = disk.space()
    return space.total_bytes - space.available_bytes


def fill(disk: SimulatedDisk) -> None:
    """Another program takes all free space."""
    disk.files(name="other").create("ballast", disk.space().available_bytes)


def put_until_refused(store: Store) -> tuple[int, BusyError]:
    """How many more were stored, and the refusal."""
    for count in range(100):
        result = store.put(b"y" * 900)
        if result.status is not SendStatus.PUT_OK:
            assert isinstance(result.error, BusyError)
            return count, result.error
    raise AssertionError("nothing is refused")


def test_no_segment_is_made_that_would_fill_the_volume_beyond_the_limit():
    store = Store(SEGMENT, capacity_bytes=1 << 20, disk_refuse_ratio=0.9)
    store.start()
    store.put(b"first")
    assert store.log is not None
    # Room for a whole segment, but not below nine tenths.
    store.disk.capacity_bytes = used(store.disk) + SEGMENT
    stored, error = put_until_refused(store)
    assert stored >= 3, "the segment in use is filled to its end"
    assert "disk_refuse_ratio" in str(error)
    assert len(store.log.segments.offsets) == 1
    assert used(store.disk) <= store.disk.capacity_bytes - SEGMENT


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_appends_continue_when_there_is_room_again_without_a_restart(flush):
    store = Store(SEGMENT, capacity_bytes=1 << 20, flush_disk_type=flush)
    store.start()
    store.put(b"first")
    store.disk.capacity_bytes = used(store.disk)
    assert store.log is not None and store.log.writable == (True, "")
    _, error = put_until_refused(store)
    refused = store.put(b"z" * 900)
    assert refused.status is not SendStatus.PUT_OK
    assert store.log.writable == (False, str(error))
    store.disk.capacity_bytes = 1 << 20
    store.pass_time(1_000, ticks=2)
    assert store.log.writable == (True, "")
    taken = store.put(b"z" * 900)
    assert taken.status is SendStatus.PUT_OK
    bodies = [frame.body for frame in store.frames()]
    assert bodies.count(b"z" * 900) == 1


def test_a_log_on_a_full_volume_starts_on_its_reserve_and_serves_what_it_has():
    store = Store(SEGMENT, capacity_bytes=1 << 20, reserve_bytes=64 * KIB)
    store.start()
    kept = store.put(b"kept")
    assert store.files is not None and store.files.entry(reserve.RESERVE_PATH) is not None
    store.kill()
    fill(store.disk)
    store.start()
    assert store.log is not None
    assert b"kept" in store.log.frame_at(kept.physical_offset)
    assert store.files.entry(reserve.RESERVE_PATH) is None
    writable, reason = store.log.writable
    assert not writable and "full" in reason


def test_without_a_reserve_such_a_start_is_refused_with_the_reason():
    store = Store(SEGMENT, capacity_bytes=1 << 20, reserve_bytes=0)
    store.start()
    store.put(b"kept")
    store.kill()
    fill(store.disk)
    with pytest.raises(StoreRefusedError, match="No space left"):
        store.start()


def test_the_reserve_is_taken_again_once_there_is_plenty():
    store = Store(SEGMENT, capacity_bytes=1 << 20, reserve_bytes=64 * KIB)
    store.start()
    store.kill()
    fill(store.disk)
    store.start()
    store.disk.files(name="other").unlink("ballast")
    store.pass_time(1_000, ticks=2)
    assert store.files is not None
    entry = store.files.entry(reserve.RESERVE_PATH)
    assert entry is not None and entry.size == 64 * KIB
    assert store.put(b"again").status is SendStatus.PUT_OK


def test_a_small_volume_is_not_filled_by_the_reserve():
    store = Store(SEGMENT, capacity_bytes=256 * KIB, reserve_bytes=64 * KIB)
    store.start()
    assert store.files is not None and store.files.entry(reserve.RESERVE_PATH) is None


def test_the_logs_own_state_that_finds_no_space_is_written_in_the_reserves():
    store = Store(SEGMENT, capacity_bytes=1 << 20, reserve_bytes=64 * KIB, snapshot_interval_ms=10)
    store.start()
    store.put(b"one")
    store.pass_time(1_000, ticks=3)
    before = store.disk.contents(own_state.SNAPSHOT_PATH)
    assert store.log is not None and store.files is not None
    # More changes than there is room for behind the file's end in its last page.
    for number in range(300):
        store.put(b"two", topic=f"topic-of-many-{number}")
    fill(store.disk)
    store.pass_time(1_000, ticks=6)
    assert store.disk.contents(own_state.SNAPSHOT_PATH) != before
    assert store.files.entry(reserve.RESERVE_PATH) is None


def test_refusing_and_accepting_have_levels_of_their_own():
    store = Store(
        SEGMENT,
        capacity_bytes=1 << 20,
        reserve_bytes=0,
        disk_refuse_ratio=0.9,
        disk_resume_ratio=0.8,
    )
    store.start()
    store.put(b"one")
    assert store.log is not None

    def fill_to(ratio: float) -> bool:
        """Whether writes are taken with so much of the volume used."""
        others = store.disk.files(name="other")
        if others.entry("ballast") is not None:
            others.unlink("ballast")
        space = store.disk.space()
        used_now = space.total_bytes - space.available_bytes
        others.create("ballast", int(ratio * space.total_bytes) - used_now)
        store.pass_time(1_000, ticks=2)
        return store.log.writable[0]

    assert [fill_to(r) for r in (0.85, 0.91, 0.89, 0.81, 0.79, 0.85, 0.91)] == [
        True,
        False,
        False,
        False,
        True,
        True,
        False,
    ]


def test_a_log_that_fills_its_volume_reports_when_it_will_be_too_full():
    store = Store(SEGMENT, capacity_bytes=100 * SEGMENT, disk_refuse_ratio=0.9)
    log = store.start()
    for _ in range(30):
        store.put(b"y" * 3_000)
        store.pass_time(60_000)
    ratio, full_in_s = log.gate.disk_used_ratio, log.gate.disk_full_in_s
    assert full_in_s is not None
    # One segment, a hundredth of the volume, a minute.
    assert full_in_s == pytest.approx((0.9 - ratio) * 100 * 60, rel=0.2)
    assert log.status().disk_full_in_s == round(full_in_s)


def test_a_log_that_does_not_grow_foretells_nothing():
    store = Store(SEGMENT, capacity_bytes=100 * SEGMENT)
    log = store.start()
    assert log.status().disk_full_in_s is None
    store.pass_time(60_000, ticks=150)
    assert log.gate.disk_full_in_s == math.inf
    assert log.status().disk_full_in_s is None


@pytest.mark.parametrize("role", [Role.SLAVE, Role.ASYNC_MASTER])
def test_a_role_is_written_on_a_full_volume(role):
    """Another member was promoted because of the full volume: this one follows it."""
    first = Role.ASYNC_MASTER if role is Role.SLAVE else Role.SLAVE
    store = Store(SEGMENT, capacity_bytes=1 << 20, reserve_bytes=64 * KIB, role=first.name)
    log = store.start()
    fill(store.disk)
    answers: list[object] = []
    log.set_role(RoleChange(role), answers.append)
    store.settle()
    assert answers == [None]
    assert log.state.role is role
