"""Wherever it crashes, whatever of the unsynced bytes survives, the next start ends the same."""

import random
from collections.abc import Callable

import pytest
from stratamq_index.persistence import EngineSettings

from stratamq.files.simulated import (
    SimulatedCrash,
    SimulatedDisk,
    keep_everything,
    keep_nothing,
    random_choice,
)
from tests.index.harness import ITEMS, SLOTS, Follower, TestLog, contents, names
from tests.support.sampling import sampled

SETTINGS = EngineSettings(SLOTS, ITEMS, sync_interval_ms=1000, slot_interval_ms=1)
CHOICES = {
    "nothing": lambda seed: keep_nothing,
    "everything": lambda seed: keep_everything,
    "something": lambda seed: random_choice(random.Random(seed)),
}

Life = Callable[[Follower], None]


def logged(disk: SimulatedDisk, count: int = 20, seed: int = 5) -> TestLog:
    log = TestLog(disk.files(name="log"))
    log.fill(count, seed=seed)
    return log


def steady(follower: Follower) -> None:
    """A start, a second's writing every few messages, a clean stop."""
    follower.load().connect()
    follower.apply(count=4, between=follower.sync)
    follower.sync()
    follower.stop()


def behind_the_flush(follower: Follower) -> None:
    """The log flushes late: items wait in memory over several files."""
    follower.load().connect()
    follower.settle()
    log = follower.log
    for number, event in enumerate(
        log.events(follower.engine.followed.applied, 7, flushed=0, count=6)
    ):
        flushed = event.start if number % 4 == 3 else 0
        steps = follower.engine.fold.apply(
            type(event)(event.generation, event.start, event.end, log.end, flushed, 0)
        )
        for _ in steps:
            follower.settle()
        follower.sync()
    follower.engine.fold.close_at(log.end, lambda: None)
    follower.settle()


def cut_and_refilled(follower: Follower) -> None:
    """The log goes back into a sealed file, and comes again."""
    steady_start = follower.load()
    steady_start.connect()
    follower.apply(count=4, between=follower.sync)
    follower.sync()
    middle = follower.log.messages[len(follower.log.messages) // 3].offset
    follower.connect(cut_to=middle, generation=8)
    follower.apply(count=4, between=follower.sync)
    follower.sync()
    follower.stop()


def rebuilt(follower: Follower) -> None:
    follower.load().connect()
    follower.apply(count=4)
    follower.sync()
    follower.rebuild()
    follower.rebuild(follower.log.end // 3, follower.log.end // 2)
    follower.rebuild(follower.log.end * 2 // 3, follower.log.end)
    follower.sync()
    follower.stop()


LIVES: dict[str, Life] = {
    "steady": steady,
    "behind-the-flush": behind_the_flush,
    "cut": cut_and_refilled,
    "rebuilt": rebuilt,
}


def live(disk: SimulatedDisk, log: TestLog, life: Life, seed: int) -> bool:
    """True when it came to its end."""
    follower = Follower(log, SETTINGS, seed=seed, files=disk.files(name="index"))
    try:
        life(follower)
    except SimulatedCrash:
        follower.lanes.discard()
        return False
    return True


def end_of(disk: SimulatedDisk, log: TestLog, generation: int) -> tuple[list[str], list[bytes]]:
    """Start again after what happened, catch up, stop: names and bytes."""
    log.files = disk.files(name="log")
    follower = Follower(log, SETTINGS, files=disk.files(name="index")).load()
    known, position = follower.engine.fold.resume_point()
    assert position <= log.end
    if generation == 7:
        # Where the log was cut the files follow before the watermark does; otherwise a crash alone
        # damages no file that a watermark names.
        report = follower.engine.report_lines
        assert [line for line in report if "missing or damaged" in line] == []
    if known not in (0, generation):
        # The life ended before the log's second answer was taken note of.
        assert known == 7
        cut_to = min(position, log.messages[len(log.messages) // 3].offset)
        follower.connect(cut_to=cut_to, generation=generation)
    else:
        follower.connect(generation=generation)
    follower.apply()
    follower.assert_answers_like_the_log()
    follower.sync()
    follower.stop()
    return names(log.files), contents(log.files)


@pytest.mark.parametrize("life", LIVES)
def test_a_crash_at_any_call_changes_nothing_in_the_end(life):
    whole = SimulatedDisk(1)
    log = logged(whole)
    before = whole.calls
    assert live(whole, log, LIVES[life], 0)
    calls = whole.calls - before
    generation = 8 if life == "cut" else 7
    expected = end_of(whole, log, generation)
    assert expected[1] == log.index_files()
    assert calls > 100
    for call in sampled(range(1, calls + 1)):
        kept = list(CHOICES)[call % 3]
        disk = SimulatedDisk(call)
        log = logged(disk)
        disk.crash_at(disk.calls + call)
        finished = live(disk, log, LIVES[life], 0)
        assert not finished
        disk.clear_faults()
        disk.crash(CHOICES[kept](call))
        assert end_of(disk, log, generation) == expected, (call, kept)


@pytest.mark.parametrize("seed", range(12))
def test_crash_after_crash_changes_nothing_in_the_end(seed):
    chance = random.Random(seed)
    disk = SimulatedDisk(seed)
    log = logged(disk, count=60, seed=seed)
    for _ in range(6):
        life = chance.choice([steady, behind_the_flush, rebuilt])
        disk.crash_at(disk.calls + chance.randrange(1, 250))
        log.files = disk.files(name="log")
        live(disk, log, life, seed)
        disk.clear_faults()
        disk.crash(random_choice(random.Random(chance.random())))
    assert end_of(disk, log, 7)[1] == log.index_files()


def test_what_was_reported_as_durable_is_not_indexed_again_after_a_power_loss():
    """That must not be necessary: the log deletes what all its followers have on disk."""
    disk = SimulatedDisk(3)
    log = logged(disk)
    follower = Follower(log, SETTINGS, files=disk.files(name="index")).load()
    follower.connect()
    for count in (3, 5):
        follower.apply(count=count, between=follower.sync)
        follower.sync()
        durable = follower.engine.fold.report().durable
        assert durable == log.end
        assert follower.engine.series.pending_items == 0, "what is written does not wait"
        log.fill(15, seed=count)
    disk.crash(keep_nothing)
    log.files = disk.files(name="log")
    again = Follower(log, SETTINGS, files=disk.files(name="index")).load()
    assert again.engine.fold.resume_point() == (7, durable)


def all_at_once(follower: Follower) -> None:
    """The first thing that is written goes over several files."""
    follower.load().connect()
    follower.apply()
    follower.sync()


def cut_at_once(follower: Follower) -> None:
    """The first thing that changes a file is a cut."""
    follower.load().connect(cut_to=follower.log.end, generation=8)
    follower.settle()


def grown(log: TestLog) -> None:
    log.fill(20, seed=8)


def shortened(log: TestLog) -> None:
    log.cut(log.messages[len(log.messages) // 3].offset)


@pytest.mark.parametrize("kept", CHOICES)
@pytest.mark.parametrize(
    ("meanwhile", "life"), [(grown, all_at_once), (shortened, cut_at_once)], ids=["grown", "cut"]
)
def test_a_crash_after_a_clean_stop_is_not_taken_for_another_programs_work(meanwhile, life, kept):
    """Then the whole index would be held against the log."""

    def second_life(call: int | None) -> tuple[SimulatedDisk, TestLog, int]:
        disk = SimulatedDisk(call or 1)
        log = logged(disk)
        assert live(disk, log, steady, 0)
        log.files = disk.files(name="log")
        meanwhile(log)
        before = disk.calls
        if call is not None:
            disk.crash_at(before + call)
        assert live(disk, log, life, 0) is (call is None)
        return disk, log, disk.calls - before

    *_, calls = second_life(None)
    for call in sampled(range(1, calls + 1)):
        disk, log, _ = second_life(call)
        disk.clear_faults()
        disk.crash(CHOICES[kept](call))
        log.files = disk.files(name="log")
        again = Follower(log, SETTINGS, files=disk.files(name="index")).load()
        report = again.engine.report_lines
        assert [line for line in report if "another program" in line] == [], call


def test_items_of_a_tail_that_the_log_lost_are_not_left_behind_the_last_one():
    """They were written, and the watermark that counts them was not."""
    disk = SimulatedDisk(3)
    log = logged(disk, count=10)
    follower = Follower(log, SETTINGS, files=disk.files(name="index")).load()
    follower.connect()
    follower.apply(count=4, between=follower.sync)
    follower.sync()
    durable = follower.engine.fold.report().durable
    log.fill(3, seed=9)
    disk.crash_on("replace", "stratamq/index.json*")
    with pytest.raises(SimulatedCrash):
        follower.apply()
        follower.sync()
    follower.lanes.discard()
    disk.clear_faults()
    disk.crash(keep_everything)
    log.files = disk.files(name="log")
    log.cut(durable)
    again = Follower(log, SETTINGS, files=disk.files(name="index")).load()
    assert any("are cut" in line for line in again.engine.report_lines)
    again.connect(cut_to=durable, generation=8)
    again.apply()
    again.sync()
    again.stop()
    assert contents(log.files) == log.index_files()


@pytest.mark.parametrize("items", [ITEMS + 3, ITEMS - 1], ids=["last-open", "last-full"])
def test_files_above_the_watermark_go_for_good_when_the_index_starts(items):
    """The log may have lost what is in them."""
    disk = SimulatedDisk(3)
    log = TestLog(disk.files(name="log"))
    for number in range(items):
        log.append(f"key-{number}")
    follower = Follower(log, SETTINGS, files=disk.files(name="index")).load()
    follower.connect()
    follower.apply(count=4, between=follower.sync)
    follower.sync()
    named = names(log.files)
    log.fill(30, seed=9)
    disk.crash_on("replace", "stratamq/index.json*")
    with pytest.raises(SimulatedCrash):
        follower.apply()
        follower.sync()
    follower.lanes.discard()
    disk.clear_faults()
    disk.crash(keep_everything)
    log.files = disk.files(name="log")
    assert len(names(log.files)) > len(named)
    again = Follower(log, SETTINGS, files=disk.files(name="index")).load()
    assert any("above the watermark" in line for line in again.engine.report_lines)
    assert names(log.files) == named
    disk.crash(keep_nothing)
    assert names(disk.files(name="log")) == named


def test_files_that_a_cut_removed_do_not_come_back_after_a_power_loss():
    """No file is shortened: what is left ends with a full one."""
    disk = SimulatedDisk(3)
    log = TestLog(disk.files(name="log"))
    for number in range(2 * ITEMS):
        log.append(f"key-{number}")
    follower = Follower(log, SETTINGS, files=disk.files(name="index")).load()
    follower.connect()
    follower.apply(count=4, between=follower.sync)
    follower.sync()
    full, *others = names(log.files)
    offset = follower.engine.records[1].header.begin_phy_offset
    log.cut(offset)
    follower.connect(cut_to=offset, generation=8)
    follower.stop()
    assert others
    assert names(log.files) == [full]
    disk.crash(keep_nothing)
    log.files = disk.files(name="log")
    assert names(log.files) == [full]
    again = Follower(log, SETTINGS, files=disk.files(name="index")).load()
    assert again.engine.fold.resume_point() == (8, offset)
    assert again.engine.report_lines == []


def test_a_kill_without_power_loss_loses_nothing_below_the_watermark():
    disk = SimulatedDisk(3)
    log = logged(disk)
    follower = Follower(log, SETTINGS, files=disk.files(name="index")).load()
    follower.connect()
    follower.apply(count=4, between=follower.sync)
    durable = follower.engine.fold.report().durable
    disk.kill()
    log.files = disk.files(name="log")
    again = Follower(log, SETTINGS, files=disk.files(name="index")).load()
    assert again.engine.fold.resume_point() == (7, durable)
