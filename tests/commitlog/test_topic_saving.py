"""Many topics: what changed is appended, RocketMQ's file is written now and then, in steps."""

import errno
import random

import pytest
from stratamq_commitlog.write.topic_table import TopicConfig, TopicTable

from stratamq.files.journaled import BYTES_PER_S
from stratamq.files.simulated import (
    SimulatedClock,
    SimulatedCrash,
    SimulatedDisk,
    SimulatedWorker,
    keep_everything,
    keep_nothing,
)
from stratamq.formats.json_files import parse_json
from stratamq.formats.store_paths import TOPICS_PATH
from tests.support.disks import write_file

JOURNAL = f"stratamq/changes/{TOPICS_PATH}"


class Process:
    """The topics of one process. What was saved without an error is `durable`."""

    def __init__(self, disk: SimulatedDisk, *, foreign: bool = False, small_bytes: int = 0) -> None:
        self.disk = disk
        self.clock = SimulatedClock()
        self.worker = SimulatedWorker(random.Random(1))
        self.topics = TopicTable(
            disk.files(),
            self.clock,
            auto_create=True,
            default_queues=4,
            small_bytes=small_bytes,
        )
        self.topics.load(foreign=foreign)
        self.durable: set[str] = set()
        self.counts: dict[str, int] = {}
        """Of durable topics, with at least so many queues."""
        self.errors: list[BaseException] = []

    def put(self, name: str, queues: int = 4) -> None:
        self.topics.put(TopicConfig(name, queues, queues))

        def saved(error: BaseException | None) -> None:
            if error is None:
                self.durable.add(name)
                self.counts[name] = queues
            else:
                self.errors.append(error)

        self.topics.saving.save(self.worker.submit, saved)

    def settle(self) -> None:
        self.worker.run_until_idle()

    def tick(self, seconds: float = 0.0) -> None:
        self.clock.advance_ms(int(seconds * 1000))
        self.topics.saving.tick(self.worker.submit)

    def names(self) -> set[str]:
        return {config.topic for config in self.topics.list()}


def in_file(disk: SimulatedDisk) -> set[str]:
    return set(parse_json(disk.contents(TOPICS_PATH))["topicConfigTable"])


def with_topics(count: int) -> SimulatedDisk:
    disk = SimulatedDisk()
    process = Process(disk)
    for number in range(count):
        process.topics.put(TopicConfig(f"old-{number}"))
    process.topics.save()
    return disk


def test_a_topic_is_durable_by_its_change_and_the_file_has_it_later():
    disk = with_topics(20)
    process = Process(disk)
    process.put("new")
    process.settle()
    assert process.durable == {"new"}
    assert "new" not in in_file(disk)
    assert "new" in Process(disk.image(keep_nothing)).names()
    process.tick()
    process.settle()
    assert "new" in in_file(disk.image(keep_nothing))
    assert Process(disk.image(keep_nothing)).names() == process.names()


def test_what_topics_made_one_by_one_write_is_linear_in_their_number():
    """Twice as many cost twice as much, within the pace at which the file is written again."""
    written = []
    for count in (200, 400):
        disk = with_topics(200)
        process = Process(disk)
        disk.trace = []
        for number in range(count):
            process.put(f"new-{number}")
            process.settle()
            process.tick(0.001)
            process.settle()
        written.append(sum(call.operation == "write" for call in disk.trace))
        assert process.durable == {f"new-{number}" for number in range(count)}
    assert written[1] < 2.5 * written[0]


def test_the_file_is_not_written_again_before_it_is_as_old_as_its_size_asks():
    disk = with_topics(2_000)
    process = Process(disk)
    size = len(disk.contents(TOPICS_PATH))
    process.put("first")
    process.settle()
    process.tick()
    process.settle()
    process.put("second")
    process.settle()
    wait_s = size / BYTES_PER_S
    process.tick(wait_s * 0.9)
    process.settle()
    assert in_file(disk) == process.names() - {"second"}
    process.tick(wait_s * 0.2)
    process.settle()
    assert in_file(disk) == process.names()


def play(process: Process) -> None:
    """Saves before, within and behind the steps of two writings of the file: also of a topic that
    the step before has written."""
    process.put("a")
    process.settle()
    process.tick(1)
    for count, name in enumerate(("b", "old-0", "c", "old-0", "d", "old-0"), start=5):
        process.put(name, count)
        for _ in range(2):
            process.worker.run_one()
    process.settle()
    process.tick(1)
    for _ in range(4):
        process.worker.run_one()
    process.put("old-1", 20)
    process.put("e")
    process.settle()
    process.put("f")
    process.settle()


@pytest.mark.parametrize("keep", [keep_nothing, keep_everything])
def test_a_crash_at_any_call_loses_no_topic_that_was_saved(keep):
    original = with_topics(12)
    reference = Process(original.image(keep_everything))
    before = reference.disk.calls
    play(reference)
    calls = reference.disk.calls - before
    assert reference.durable == {*"abcdef", "old-0", "old-1"}
    for call in range(1, calls + 1):
        process = Process(original.image(keep_everything))
        process.disk.crash_at(process.disk.calls + call)
        with pytest.raises(SimulatedCrash):
            play(process)
        again = Process(process.disk.image(keep))
        old = {f"old-{number}" for number in range(12)}
        assert old | process.durable <= again.names() <= old | set("abcdef"), call
        for name, count in process.counts.items():
            assert again.topics.get(name).write_queues >= count, (call, name)
        play(again)
        assert Process(again.disk.image(keep_nothing)).names() == old | set("abcdef")


def test_every_failed_call_is_reported_and_made_up_for():
    original = with_topics(12)
    reference = Process(original.image(keep_everything))
    before = reference.disk.calls
    play(reference)
    for call in range(1, reference.disk.calls - before + 1):
        process = Process(original.image(keep_everything))
        process.disk.fail_at(process.disk.calls + call, errno.EIO)
        play(process)
        process.disk.clear_faults()
        for _ in range(3):
            process.tick(1)
            process.settle()
            process.topics.saving.save(process.worker.submit, lambda error: None)
            process.settle()
        assert not process.topics.dirty, call
        assert Process(process.disk.image(keep_nothing)).names() == process.names(), call


def test_the_file_of_another_program_counts_and_our_changes_do_not():
    disk = with_topics(20)
    process = Process(disk)
    process.put("ours")
    process.settle()
    files = disk.files()
    files.unlink(TOPICS_PATH)
    write_file(files, TOPICS_PATH, b'{"topicConfigTable":{"theirs":{"perm":6}}}')
    assert Process(disk, foreign=True).names() == {"theirs"}


def test_a_clean_stop_leaves_everything_in_the_file():
    disk = with_topics(20)
    process = Process(disk)
    process.put("new")
    process.settle()
    process.topics.save()
    assert in_file(disk) == process.names()
    assert disk.files().entry(JOURNAL) is not None
    assert Process(disk).names() == process.names()


def test_no_failed_call_makes_a_later_crash_lose_what_was_saved():
    """Also when the failure fell into the writing of the file, and a save behind it succeeded."""
    original = with_topics(12)
    reference = Process(original.image(keep_everything))
    before = reference.disk.calls
    play(reference)
    for call in range(1, reference.disk.calls - before + 1):
        for error in (errno.EIO, errno.ENOSPC):
            process = Process(original.image(keep_everything))
            process.disk.fail_at(process.disk.calls + call, error)
            play(process)
            process.disk.clear_faults()
            for number in range(3):
                process.put("a", 30 + number)
                process.put(f"late-{number}")
                process.settle()
                for keep in (keep_nothing, keep_everything):
                    again = Process(process.disk.image(keep))
                    assert process.durable <= again.names(), (call, keep)
                    for name, count in process.counts.items():
                        assert again.topics.get(name).write_queues >= count, (call, name)
                process.tick(1)
                process.worker.run_one()


def test_changes_that_an_earlier_journal_still_has_are_not_forgotten_by_the_next_save():
    """The journal is damaged, and the one before it follows the file as it is."""
    disk = with_topics(20)
    process = Process(disk)
    process.put("a")
    process.settle()
    files = disk.files()
    content = disk.contents(JOURNAL)
    write_file(files, f"{JOURNAL}.previous", content)
    disk.rot(JOURNAL, 0, b"\0")
    again = Process(disk)
    assert "a" in again.names()
    again.put("b")
    again.settle()
    third = Process(disk.image(keep_nothing))
    assert {"a"} | again.durable <= third.names()
    again.tick(1)
    again.settle()
    again.put("b")
    again.settle()
    assert {"a", "b"} <= again.durable | {"a"}
    assert {"a", "b"} <= Process(disk.image(keep_nothing)).names()


def test_a_journal_that_is_damaged_or_follows_another_file_is_reported():
    disk = with_topics(20)
    process = Process(disk)
    process.put("a")
    process.settle()
    process.put("b")
    process.settle()
    damaged = disk.image(keep_everything)
    damaged.rot(JOURNAL, len(disk.contents(JOURNAL)) - 200, b"\0")
    report = Process(damaged).topics.load(foreign=False)
    assert any(JOURNAL in line for line in report)
    files = disk.files()
    files.unlink(TOPICS_PATH)
    write_file(files, TOPICS_PATH, b'{"topicConfigTable":{"theirs":{"perm":6}}}')
    report = Process(disk, foreign=True).topics.load(foreign=True)
    assert any(JOURNAL in line and "another content" in line for line in report)


def test_while_saves_fail_what_waits_is_no_more_than_the_table():
    disk = with_topics(20)
    process = Process(disk)
    disk.fail("*", "stratamq/changes/*", repeat=True)
    disk.fail("*", "config/*", repeat=True)
    for count in range(1, 200):
        process.put("a", count)
        process.put("b", count)
        process.settle()
        process.tick(1)
        process.settle()
    assert len(process.errors) == 398
    assert sum(map(len, process.topics.saving._unsaved)) <= 6
    disk.clear_faults()
    process.tick(10)
    process.settle()
    assert Process(disk.image(keep_nothing)).topics.get("b").write_queues == 199


@pytest.mark.parametrize("keep", [keep_nothing, keep_everything])
def test_a_journal_that_fails_while_the_file_is_written_and_then_a_crash_lose_nothing(keep):
    """The journal holds a save of an entry that the new file has in its earlier state; the next
    write fails, so the journal cannot record that it follows the new file."""
    lost_power = 0
    for nth in range(1, 6):
        for call in range(1, 120):
            process = Process(with_topics(12))
            process.disk.fail("flush", JOURNAL, nth=nth)
            process.disk.crash_at(process.disk.calls + call)
            try:
                play(process)
                process.tick(1)
                process.settle()
            except SimulatedCrash:
                lost_power += 1
            again = Process(process.disk.image(keep))
            assert process.durable <= again.names(), (nth, call)
            for name, count in process.counts.items():
                assert again.topics.get(name).write_queues >= count, (nth, call, name)
    assert lost_power > 400


def test_a_file_that_cannot_be_read_after_its_writing_failed_loses_no_later_save():
    """The new content is there, and the look at it fails: it is not taken for the old one."""
    disk = with_topics(20)
    process = Process(disk)
    process.put("a")
    process.settle()
    disk.fail("sync_directory", "config")
    process.tick(1)
    process.settle()
    disk.fail("open", TOPICS_PATH)
    process.put("b")
    process.settle()
    assert disk.faults[-1].met
    process.put("c")
    process.settle()
    for keep in (keep_nothing, keep_everything):
        assert process.durable <= Process(disk.image(keep)).names()
    assert process.durable >= {"a", "b"}


def test_changes_that_a_written_file_has_do_not_follow_an_older_one_that_is_put_back():
    disk = with_topics(1)
    first = disk.contents(TOPICS_PATH)
    process = Process(disk)
    process.put("old-0", queues=8)
    process.settle()
    assert disk.contents(TOPICS_PATH) == first, "the change is in the journal"
    small = Process(disk, small_bytes=1 << 20)
    small.put("new")
    small.settle()
    assert in_file(disk) == {"old-0", "new"}
    disk.files().unlink(TOPICS_PATH)
    write_file(disk.files(), TOPICS_PATH, first)
    again = Process(disk)
    assert again.names() == {"old-0"}
    assert [one.write_queues for one in again.topics.list()] == [4]
