"""Ranges of the log indexed anew, while following and answering continue."""

import random

import pytest
from stratamq_index.persistence import EngineSettings
from stratamq_index.query import KeyQuery
from stratamq_index.rebuild import Rebuild, Wait

from stratamq.errors import BusyError, InvalidRequestError, UnavailableError
from stratamq.files.simulated import SimulatedDisk
from tests.index.harness import GENERATION, ITEMS, SLOTS, Follower, TestLog, contents, names


@pytest.fixture
def follower(log) -> Follower:
    log.fill(100)
    return Follower(log).start()


def test_everything_rebuilt_gives_the_same_names_and_bytes(follower):
    before = names(follower.log.files)
    rebuilt = follower.rebuild()
    assert rebuilt.files == len(before)
    assert rebuilt.items == sum(r.header.next_item - 1 for r in follower.engine.records)
    follower.assert_answers_like_the_log()
    follower.stop()
    assert names(follower.log.files) == before
    assert contents(follower.log.files) == follower.log.index_files()


@pytest.mark.parametrize("seed", range(8))
def test_any_range_rebuilt_mends_what_was_damaged_in_it(seed):
    chance = random.Random(seed)
    disk = SimulatedDisk(seed)
    log = TestLog(disk.files())
    log.fill(100)
    follower = Follower(log).start()
    for _ in range(4):
        number = chance.randrange(len(follower.engine.series.sealed))
        record = follower.engine.series.sealed[number]
        disk.rot(f"index/{record.name}", 40, bytes(200))
        follower.engine.lane.forget()
        start = chance.randint(record.header.begin_phy_offset + 1, record.header.end_phy_offset)
        rebuilt = follower.rebuild(start, start + 1)
        assert 1 <= rebuilt.files <= 2
    follower.assert_answers_like_the_log()
    follower.stop()
    assert contents(log.files) == log.index_files()


def test_an_index_on_a_volume_of_its_own_is_rebuilt_and_written_to():
    disk = SimulatedDisk()
    disk.mount("index")
    log = TestLog(disk.files())
    log.fill(100)
    follower = Follower(log).start()
    follower.rebuild()
    log.fill(30)
    follower.apply()
    follower.sync()
    follower.assert_answers_like_the_log()
    follower.stop()
    assert contents(log.files) == log.index_files()


def test_a_range_without_files_rebuilds_nothing(follower):
    end = follower.log.end
    assert follower.rebuild(end + 1, end + 2).files == 0


def test_following_continues_while_files_are_rebuilt(follower):
    log = follower.log
    chance = random.Random(1)

    def meanwhile() -> None:
        if chance.random() < 0.2 and not follower.engine.exchange:
            log.fill(2, seed=chance.randrange(10**6))
            for event in log.events(follower.engine.followed.applied, GENERATION):
                for _ in follower.engine.fold.apply(event):
                    follower.lanes.run_one()
        follower.clock.advance_ms(300)
        follower.engine.tick()

    follower.rebuild(between=meanwhile)
    follower.rebuild(1000, 5000, between=meanwhile)
    follower.apply()
    follower.sync()
    follower.assert_answers_like_the_log()
    follower.stop()
    assert contents(log.files) == log.index_files()


def test_applying_waits_while_the_newest_file_is_exchanged(follower):
    log = follower.log
    steps = Rebuild(follower.engine, 0, 0).steps()
    while not follower.engine.exchange:
        step = next(steps)
        if isinstance(step, Wait):
            follower.settle()
    log.append("late")
    applying = follower.engine.fold.apply(
        next(log.events(follower.engine.followed.applied, GENERATION))
    )
    for _ in range(5):
        next(applying)
    assert follower.engine.followed.applied < log.end
    for step in steps:
        if isinstance(step, Wait):
            follower.settle()
    list(applying)
    assert follower.engine.followed.applied == log.end
    follower.assert_answers_like_the_log()


def test_questions_are_answered_at_every_step_of_a_rebuild(follower):
    topic, key = next(iter(follower.log.questions()))
    expected = follower.log.scan(KeyQuery(topic, key))
    answers = []

    def meanwhile() -> None:
        follower.engine.ask(
            KeyQuery(topic, key, max_messages=10_000, oldest_first=True),
            lambda answer, error: answers.append(answer),
        )

    follower.rebuild(between=meanwhile)
    follower.settle()
    assert len(answers) > 5
    assert all([offset for offset, _ in answer.frames] == expected for answer in answers)


def test_two_rebuilds_at_once_are_refused(follower):
    steps = Rebuild(follower.engine, 0, 0).steps()
    next(steps)
    with pytest.raises(BusyError):
        Rebuild(follower.engine, 0, 0)
    steps.close()
    follower.settle()
    follower.rebuild()


@pytest.mark.parametrize("steps_before", [1, 2, 5, 20, 30, 31, 32, 33, 34])
def test_a_rebuild_that_is_given_up_changes_nothing(follower, steps_before):
    before = contents(follower.log.files)
    steps = Rebuild(follower.engine, 0, 0).steps()
    for _, step in zip(range(steps_before), steps, strict=False):
        if isinstance(step, Wait) and not follower.engine.writer.busy:
            follower.settle()
    steps.close()
    follower.settle()
    assert follower.engine.exchange == ""
    assert not [e for e in follower.log.files.list("stratamq/tmp") if e.name.startswith("index-")]
    follower.assert_answers_like_the_log()
    follower.log.fill(10, seed=8)
    follower.apply()
    follower.sync()
    follower.stop()
    assert contents(follower.log.files) == follower.log.index_files()
    assert contents(follower.log.files)[: len(before) - 1] == before[:-1]


def test_a_cut_ends_a_rebuild(follower):
    log = follower.log
    steps = Rebuild(follower.engine, 0, 0).steps()
    next(steps)
    middle = log.messages[50].offset
    log.cut(middle)
    follower.connect(cut_to=middle, generation=GENERATION + 1)
    with pytest.raises(UnavailableError):
        for step in steps:
            if isinstance(step, Wait):
                follower.settle()
    follower.apply()
    follower.sync()
    follower.assert_answers_like_the_log()
    follower.stop()
    assert contents(log.files) == log.index_files()


def test_files_do_not_expire_under_a_rebuild(follower):
    log = follower.log
    steps = Rebuild(follower.engine, 0, log.end // 2).steps()
    next(steps)
    before = names(log.files)
    follower.engine.followed.minimum = log.end
    follower.sync()
    assert names(log.files) == before
    follower.engine.followed.minimum = 0
    for step in steps:
        if isinstance(step, Wait):
            follower.settle()
    follower.assert_answers_like_the_log()


def test_nonsense_is_refused(follower):
    for start, end in ((-1, 5), (7, 3)):
        with pytest.raises(InvalidRequestError):
            Rebuild(follower.engine, start, end)


def test_an_index_that_is_not_ready_is_not_rebuilt(log):
    log.fill(5)
    follower = Follower(log).load()
    with pytest.raises(UnavailableError):
        Rebuild(follower.engine, 0, 0)


def test_a_rebuild_that_finds_no_space_reports_it_and_changes_nothing():
    disk = SimulatedDisk(1)
    log = TestLog(disk.files())
    log.fill(100)
    follower = Follower(log, EngineSettings(SLOTS, ITEMS)).start()
    fault = disk.fail("write", "stratamq/tmp/*", error=28, repeat=True)
    with pytest.raises(BusyError):
        follower.rebuild()
    disk.faults.remove(fault)
    follower.settle()
    follower.assert_answers_like_the_log()
    follower.rebuild()
    follower.stop()
    assert contents(log.files) == log.index_files()
