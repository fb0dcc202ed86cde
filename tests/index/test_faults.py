"""Each disk call fails in turn: it is reported, nothing is lost, a start or a tick repairs it."""

import errno
from collections.abc import Callable

import pytest
from stratamq_index.index_file import SyncError

from stratamq.errors import BusyError, CorruptionError, StoreRefusedError, UnavailableError
from stratamq.files.simulated import SimulatedDisk, keep_nothing
from tests.index.harness import Follower, TestLog, contents
from tests.index.test_crashes import SETTINGS, end_of, logged, rebuilt, steady
from tests.support.sampling import sampled

SAID = (
    OSError,
    SyncError,
    StoreRefusedError,
    BusyError,
    UnavailableError,
    CorruptionError,
)
"""Whatever stops following or answers a call; never anything else."""


def calls_of(life: Callable[[Follower], None]) -> int:
    disk = SimulatedDisk(1)
    log = logged(disk)
    before = disk.calls
    life(Follower(log, SETTINGS, files=disk.files(name="index")))
    return disk.calls - before


@pytest.mark.parametrize("life", [steady, rebuilt], ids=["steady", "rebuilt"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_any_call_may_fail_once(life, error):
    stopped = 0
    for call in sampled(range(1, calls_of(life) + 1)):
        disk = SimulatedDisk(call)
        log = logged(disk)
        disk.fail_at(disk.calls + call, error)
        follower = Follower(log, SETTINGS, files=disk.files(name="index"))
        try:
            life(follower)
        except SAID:
            stopped += 1
        disk.clear_faults()
        follower.lanes.discard()
        disk.crash(keep_nothing)
        assert end_of(disk, log, 7)[1] == log.index_files(), call
    assert stopped


def test_a_full_disk_is_a_level_that_clears_itself(monkeypatch):
    disk = SimulatedDisk(1)
    log = logged(disk)
    follower = Follower(log, SETTINGS, files=disk.files(name="index")).load()
    follower.connect()
    follower.settle()
    fault = disk.fail("write", "index/*", error=errno.ENOSPC, repeat=True)
    follower.apply(between=follower.sync)
    assert follower.engine.writer.blocked
    assert follower.engine.stop_reason == ""
    assert follower.engine.fold.report().durable < log.end
    follower.assert_answers_like_the_log()
    disk.faults.remove(fault)
    follower.sync()
    assert follower.engine.writer.blocked == ""
    assert follower.engine.fold.report().durable == log.end
    follower.stop()
    assert contents(log.files) == log.index_files()


def test_a_cut_that_finds_no_space_is_done_before_anything_else_is_written():
    disk = SimulatedDisk(2)
    log = logged(disk)
    follower = Follower(log, SETTINGS, files=disk.files(name="index")).load()
    follower.connect()
    follower.apply(count=4, between=follower.sync)
    middle = log.messages[len(log.messages) // 2].offset
    fault = disk.fail("write", "stratamq/tmp/*", error=errno.ENOSPC, repeat=True)
    log.cut(middle)
    follower.connect(cut_to=middle, generation=8)
    follower.settle()
    log.fill(30, seed=9)
    follower.apply(between=follower.sync)
    assert follower.engine.writer.blocked
    disk.faults.remove(fault)
    follower.sync()
    follower.assert_answers_like_the_log()
    follower.stop()
    assert contents(log.files) == log.index_files()


def test_a_file_that_a_cut_makes_anew_has_no_slots_of_items_that_are_only_in_memory():
    """Writing them had failed; a second cut then takes them away, too."""
    disk = SimulatedDisk(2)
    log = TestLog(disk.files(name="log"))
    for number in range(10):
        log.append(f"key-{number}")
    follower = Follower(log, SETTINGS, files=disk.files(name="index")).load()
    follower.connect()
    written, later = log.messages[4].offset, log.messages[8].offset
    follower.settle()
    fault = None
    for event in log.events(0, follower.generation, count=1):
        if event.start == written:
            fault = disk.fail("write", "index/*", error=errno.ENOSPC, repeat=True)
        for _ in follower.engine.fold.apply(event):
            follower.settle()
        follower.sync()
    assert follower.engine.writer.blocked
    assert follower.engine.fold.report().durable == written
    assert fault is not None
    disk.faults.remove(fault)
    log.cut(later)
    follower.connect(cut_to=later, generation=8)
    follower.engine.tick()
    assert follower.engine.writer.busy, "the first cut is carried out"
    log.cut(written)
    follower.connect(cut_to=written, generation=9)
    follower.settle()
    follower.assert_answers_like_the_log()
    follower.stop()
    assert contents(log.files) == log.index_files()


def test_a_failed_sync_stops_for_good_and_the_next_start_cuts():
    disk = SimulatedDisk(3)
    log = logged(disk)
    follower = Follower(log, SETTINGS, files=disk.files(name="index")).load()
    follower.connect()
    follower.apply(count=4, between=follower.sync)
    durable = follower.engine.fold.report().durable
    log.fill(4, seed=3)
    disk.fail("flush", "index/*")
    follower.apply()
    follower.sync()
    assert follower.engine.stop_reason
    assert follower.engine.fold.report().durable == durable
    log.append("late")
    with pytest.raises(OSError):
        follower.apply()
    disk.clear_faults()
    disk.kill()
    disk.evict()
    assert end_of(disk, log, 7)[1] == log.index_files()


def test_a_watermark_that_cannot_be_synced_stops_too():
    disk = SimulatedDisk(4)
    log = TestLog(disk.files(name="log"))
    follower = Follower(log, SETTINGS, files=disk.files(name="index")).load()
    follower.connect()
    follower.settle()
    log.append("k")
    disk.fail("flush", "stratamq/index.json*")
    follower.apply()
    follower.sync()
    assert follower.engine.stop_reason
    ended = []
    follower.engine.shutdown(lambda: ended.append(True))
    assert ended == [True]


def test_an_index_file_that_cannot_be_read_answers_data_loss():
    disk = SimulatedDisk(5)
    log = logged(disk)
    follower = Follower(log, SETTINGS, files=disk.files(name="index")).load()
    follower.connect()
    follower.apply(count=4, between=follower.sync)
    topic, key = next(iter(log.questions()))
    disk.fail("read", "index/*", repeat=True)
    with pytest.raises(CorruptionError):
        follower.offsets(topic, key)
    disk.clear_faults()
    follower.assert_answers_like_the_log()
