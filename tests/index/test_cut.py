"""A cut of the log: items above it are removed at once from answers, and soon from the files."""

import random

import pytest

from stratamq.files.simulated import SimulatedDisk
from tests.index.harness import GENERATION, Follower, TestLog, contents, names


@pytest.mark.parametrize("written", [True, False], ids=["on-disk", "in-memory"])
@pytest.mark.parametrize("part", [0.0, 0.1, 0.33, 0.5, 0.9, 0.99])
def test_after_a_cut_the_files_are_those_of_the_shorter_log(log, part, written):
    log.fill(90)
    follower = Follower(log).load()
    follower.connect()
    follower.apply(flushed=None if written else 0)
    follower.sync()
    offset = log.messages[int(part * len(log.messages))].offset
    log.cut(offset)
    follower.connect(cut_to=offset, generation=GENERATION + 1)
    assert follower.engine.fold.report().durable <= offset, "before the files follow"
    follower.assert_answers_like_the_log()
    follower.stop()
    assert contents(log.files) == log.index_files()
    assert Follower(log).load().engine.fold.resume_point() == (GENERATION + 1, offset)


@pytest.mark.parametrize("seed", range(25))
def test_cuts_and_growth_in_any_order_end_in_the_same_bytes(seed):
    chance = random.Random(seed)
    log = TestLog(SimulatedDisk(seed).files())
    follower = Follower(log, seed=seed).start()
    for generation in range(GENERATION + 1, GENERATION + 9):
        log.fill(chance.randrange(1, 40), seed=chance.randrange(10**6))
        flushed = log.messages[chance.randrange(len(log.messages))].offset
        follower.apply(flushed=chance.choice([flushed, None]), count=chance.choice([1, 3, 50]))
        if chance.random() < 0.7:
            follower.clock.advance_ms(2000)
            follower.engine.tick()
        if chance.random() < 0.5:
            follower.settle()
        offset = chance.choice([0, *(message.offset for message in log.messages)])
        log.cut(offset)
        follower.connect(cut_to=offset, generation=generation)
        if chance.random() < 0.5:
            follower.settle()
            follower.assert_answers_like_the_log()
        if chance.random() < 0.3:
            follower.settle()
            follower.stop()
            follower = Follower(log, seed=seed).load()
            follower.connect(generation=generation)
    log.fill(20, seed=seed)
    follower.apply()
    follower.sync()
    follower.assert_answers_like_the_log()
    follower.stop()
    assert contents(log.files) == log.index_files()


def test_a_cut_to_where_we_are_drops_nothing(log):
    log.fill(40)
    follower = Follower(log).start()
    follower.sync()
    before = contents(log.files)
    follower.connect(generation=GENERATION + 1, cut_to=log.end)
    follower.settle()
    assert contents(log.files) == before
    assert Follower(log).load().engine.fold.resume_point() == (GENERATION + 1, log.end)


def test_answers_stop_at_the_cut_before_the_files_follow(log):
    log.fill(60)
    follower = Follower(log).start()
    offset = log.messages[20].offset
    log.cut(offset)
    follower.connect(cut_to=offset, generation=GENERATION + 1)
    assert follower.engine.followed.applied == offset
    assert len(names(log.files)) > len(follower.engine.records)
    follower.assert_answers_like_the_log()


def test_a_file_is_never_shortened_under_a_reader(log):
    """Another process may have mapped it: the file is replaced, not truncated."""
    log.fill(60)
    follower = Follower(log).start()
    follower.sync()
    path = f"index/{names(log.files)[-1]}"
    reader = log.files.open(path)
    before = bytes(reader.view())
    offset = follower.engine.records[-1].header.end_phy_offset
    log.cut(offset)
    follower.connect(cut_to=offset, generation=GENERATION + 1)
    follower.settle()
    assert bytes(reader.view()) == before


def test_of_two_answers_that_come_while_files_are_written_both_are_followed(log):
    """The second goes on above the first, because the log has deleted its messages there."""
    log.fill(90)
    follower = Follower(log).load()
    follower.connect()
    follower.apply()
    follower.clock.advance_ms(5000)
    follower.engine.tick()
    assert follower.engine.writer.busy
    lost = [number for number, one in enumerate(log.messages) if one.offset < log.segment_bytes]
    cut_to = log.messages[lost[-5]].offset
    log.cut(cut_to)
    follower.connect(cut_to=cut_to, generation=GENERATION + 1)
    log.fill(60, seed=2)
    log.delete_below(log.segment_bytes)
    assert log.minimum > cut_to
    follower.connect(cut_to=log.minimum, generation=GENERATION + 1)
    follower.settle()
    assert all(
        record.header.end_phy_offset < cut_to or record.header.begin_phy_offset >= log.minimum
        for record in follower.engine.records
    )
    follower.apply()
    follower.assert_answers_like_the_log()


def test_a_log_that_begins_again_with_larger_segments_is_answered_from(log):
    log.fill(60)
    follower = Follower(log).start()
    log.cut(0)
    log.segment_bytes *= 2
    follower.connect(cut_to=0, generation=GENERATION + 1)
    log.fill(90, seed=2)
    follower.connect(cut_to=0, generation=GENERATION + 1)
    follower.apply()
    follower.assert_answers_like_the_log()


def test_nothing_above_a_cut_is_reported_while_the_files_are_yet_to_follow(log):
    log.fill(60)
    follower = Follower(log).load()
    follower.connect()
    follower.apply()
    follower.clock.advance_ms(5000)
    follower.engine.tick()
    assert follower.engine.writer.busy
    offset = log.messages[10].offset
    log.cut(offset)
    follower.connect(cut_to=offset, generation=GENERATION + 1)
    while follower.lanes.run_one():
        report = follower.engine.fold.report()
        assert report.durable <= report.applied == offset


def test_an_answer_of_the_log_that_comes_while_files_are_written_waits_for_them(log):
    log.fill(60)
    follower = Follower(log).load()
    follower.connect()
    follower.apply()
    follower.clock.advance_ms(5000)
    follower.engine.tick()
    assert follower.engine.writer.busy
    offset = log.messages[10].offset
    log.cut(offset)
    follower.connect(cut_to=offset, generation=GENERATION + 1)
    event = next(iter(log.events(0, GENERATION + 1)), None)
    assert event is not None
    follower.settle()
    assert follower.engine.followed.applied == offset
    follower.assert_answers_like_the_log()
    follower.stop()
    assert contents(log.files) == log.index_files()
