"""Planned faults, crash points, a full volume, virtual time and virtual workers."""

import errno
import random

import pytest

from stratamq.files.simulated import (
    SimulatedClock,
    SimulatedCrash,
    SimulatedDisk,
    SimulatedScheduler,
    SimulatedWorker,
)
from tests.support.disks import PAGE, names, read_file, write_file


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(seed=1)


def test_the_nth_matching_call_fails_and_no_other(disk):
    files = disk.files()
    disk.fail("open", "d/*", nth=2, error=errno.EACCES)
    for path in ("d/a", "d/b", "c"):
        files.create(path, 1)
    files.open("c")
    files.open("d/a")
    with pytest.raises(PermissionError) as caught:
        files.open("d/b")
    assert caught.value.filename == "d/b"
    files.open("d/b")


def test_a_repeating_fault_stays_until_cleared(disk):
    files = disk.files()
    files.create("a", 1)
    disk.fail("open", repeat=True)
    for _ in range(3):
        with pytest.raises(OSError):
            files.open("a")
    disk.clear_faults()
    files.open("a")


def test_every_call_is_counted_and_can_be_recorded(disk):
    files = disk.files(name="log")
    disk.trace = []
    files.create("d/a", 1)
    files.open("d/a", writable=True).write(0, b"x")
    assert [call.number for call in disk.trace] == list(range(1, disk.calls + 1))
    assert {call.process for call in disk.trace} == {"log"}
    assert [call.operation for call in disk.trace][-2:] == ["open", "write"]


def steps_of_create() -> int:
    disk = SimulatedDisk()
    disk.files().create("d/a", PAGE)
    return disk.calls


@pytest.mark.parametrize("call", range(1, steps_of_create() + 1))
def test_create_failing_at_any_step_leaves_nothing_and_works_again(call):
    disk = SimulatedDisk()
    files = disk.files()
    disk.fail_at(call, errno.ENOSPC)
    with pytest.raises(OSError) as caught:
        files.create("d/a", PAGE)
    assert caught.value.errno == errno.ENOSPC
    assert files.entry("d/a") is None
    assert names(files, "stratamq/tmp") == []
    files.create("d/a", PAGE)
    assert read_file(files, "d/a") == bytes(PAGE)


@pytest.mark.parametrize("call", range(1, steps_of_create() + 1))
@pytest.mark.parametrize("power_loss", [False, True])
def test_create_crashing_at_any_step_leaves_the_whole_file_or_none(call, power_loss):
    for seed in range(8):
        disk = SimulatedDisk(seed)
        files = disk.files()
        disk.crash_at(call)
        with pytest.raises(SimulatedCrash):
            files.create("d/a", PAGE)
        disk.crash() if power_loss else disk.kill()
        files = disk.files()
        files.clean_temporary()
        assert names(files, "stratamq/tmp") == []
        if files.entry("d/a") is None:
            files.create("d/a", PAGE)
        assert read_file(files, "d/a") == bytes(PAGE)


def test_a_crash_point_stops_its_process_and_spares_the_others(disk):
    first, second = disk.files(), disk.files()
    write_file(first, "a", b"x")
    disk.crash_on("replace")
    with pytest.raises(SimulatedCrash):
        first.replace("a", "b")
    with pytest.raises(SimulatedCrash):
        first.list("")
    assert read_file(second, "a") == b"x"


def test_no_handler_of_errors_catches_a_crash():
    assert not issubclass(SimulatedCrash, Exception)


# --- space ---


def test_a_full_volume_refuses_creation_and_takes_it_again_when_space_returns():
    disk = SimulatedDisk(capacity_bytes=10 * PAGE)
    files = disk.files()
    files.create("a", 8 * PAGE)
    with pytest.raises(OSError) as caught:
        files.create("b", 3 * PAGE)
    assert caught.value.errno == errno.ENOSPC
    assert names(files, "") == ["a", "stratamq"]
    files.unlink("a")
    files.create("b", 3 * PAGE)
    assert files.space().available_bytes == 7 * PAGE


def test_a_sparse_file_takes_space_page_by_page_as_it_is_filled():
    disk = SimulatedDisk(capacity_bytes=10 * PAGE)
    files = disk.files()
    files.create("a", 100 * PAGE, sparse=True)
    assert files.space().available_bytes == 10 * PAGE
    file = files.open("a", writable=True)
    file.write(0, b"x")
    file.write(5 * PAGE, b"\x01")
    assert files.space().available_bytes == 8 * PAGE
    with pytest.raises(OSError) as caught:
        file.allocate()
    assert caught.value.errno == errno.ENOSPC


def test_an_unlinked_file_holds_its_space_while_open():
    disk = SimulatedDisk(capacity_bytes=10 * PAGE)
    files = disk.files()
    files.create("a", 4 * PAGE)
    file = files.open("a")
    files.unlink("a")
    files.sync_directory("")
    assert files.space().available_bytes == 6 * PAGE
    file.close()
    assert files.space().available_bytes == 10 * PAGE


# --- time and workers ---


def test_the_clock_moves_only_by_a_call():
    clock = SimulatedClock(wall_ms=1000, monotonic_ns=5)
    clock.advance_ms(2)
    assert (clock.wall_ms(), clock.monotonic_ns()) == (1002, 2_000_005)
    clock.set_wall_ms(500)
    assert (clock.wall_ms(), clock.monotonic_ns()) == (500, 2_000_005)
    with pytest.raises(ValueError):
        clock.advance_ms(-1)


def test_submit_runs_nothing_by_itself():
    ran = []
    worker = SimulatedWorker(random.Random(1))
    worker.submit(lambda: ran.append("task"), lambda result, error: ran.append("done"))
    assert ran == []
    assert worker.run_until_idle() == 2
    assert ran == ["task", "done"]
    assert worker.run_one() is False


def test_results_and_errors_reach_on_done():
    seen = []
    worker = SimulatedWorker(random.Random(1))
    worker.submit(lambda: 5, lambda *answer: seen.append(answer))
    error = OSError(errno.EIO, "x")

    def fail():
        raise error

    worker.submit(fail, lambda *answer: seen.append(answer))
    worker.run_until_idle()
    assert seen == [(5, None), (None, error)]


def run_two_workers(seed: int) -> list[str]:
    scheduler = SimulatedScheduler(random.Random(seed))
    events: list[str] = []
    for name in "ab":
        worker = scheduler.worker()
        for number in range(3):
            label = f"{name}{number}"
            worker.submit(
                lambda label=label: events.append(label),
                lambda result, error, label=label: events.append(f"{label}!"),
            )
    scheduler.run_until_idle()
    return events


def test_tasks_keep_their_order_within_a_worker_and_not_across():
    orders = {tuple(run_two_workers(seed)) for seed in range(30)}
    assert len(orders) > 20
    for order in orders:
        for name in "ab":
            for mark in ("", "!"):
                mine = [f"{name}{number}{mark}" for number in range(3)]
                assert [event for event in order if event in mine] == mine
        assert all(order.index(f"{name}0") < order.index(f"{name}0!") for name in "ab")
    assert run_two_workers(3) == run_two_workers(3)


def test_a_crash_in_a_task_ends_the_run_and_discard_drops_the_rest(disk):
    files = disk.files()
    disk.crash_on("sync_all")
    scheduler = SimulatedScheduler(random.Random(1))
    worker = scheduler.worker()
    worker.submit(files.sync_all, lambda result, error: pytest.fail("never acknowledged"))
    worker.submit(lambda: None, lambda result, error: None)
    with pytest.raises(SimulatedCrash):
        scheduler.run_until_idle()
    scheduler.discard()
    assert scheduler.pending == 0


def test_an_endless_loop_is_reported():
    worker = SimulatedWorker(random.Random(1))

    def again(*_):
        worker.submit(lambda: None, again)

    again()
    with pytest.raises(RuntimeError):
        worker.run_until_idle(limit=50)
