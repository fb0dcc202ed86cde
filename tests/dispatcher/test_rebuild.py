"""A dispatcher that reads the whole log again: bounded memory, and progress that outlives it."""

import errno

import pytest
from stratamq_dispatcher.resuming import LogWitness

from stratamq.files.simulated import SimulatedDisk, keep_everything
from tests.dispatcher.followed_log import Broker, WrittenLog, start
from tests.dispatcher.queue_checks import check_files, check_listing, check_queues, contents

STEP, BOUND = 10, 2_000
SMALL = {"step_messages": STEP, "flush_bytes": 400, "max_unwritten_bytes": BOUND}


def unwritten(broker: Broker) -> int:
    return sum(queue.unwritten_bytes for queue in broker.engine.queues)


def deliver_all(broker: Broker) -> int:
    """Like `send`; the most bytes of units that were in memory at any step."""
    most = 0
    for start_, end in list(broker.log.ranges(broker.position, broker.log.end, 100)):
        for wait in broker.deliver(start_, end):
            most = max(most, unwritten(broker))
            assert broker.engine.queues.unwritten_bytes == unwritten(broker)
            if wait is not None:
                broker.wait(wait)
    return most


def deliver_to(broker: Broker, stop: int) -> None:
    """Messages up to a log offset, and a flush."""
    for begin, end in list(broker.log.ranges(broker.position, stop, 100)):
        for wait in broker.deliver(begin, end):
            if wait is not None:
                broker.wait(wait)
    broker.flush()


def log_of(files, count: int) -> WrittenLog:
    log = WrittenLog(files)
    log.put_many(count, topics=3, queues=3)
    return log


# --- bounded memory ---


@pytest.mark.parametrize(("bound", "within"), [(BOUND, True), (1 << 30, False)])
def test_units_in_memory_are_bounded_however_slow_the_disk_is(bound, within):
    disk = SimulatedDisk()
    log = log_of(disk.files(), 1_000)
    broker = start(disk.files(), log, **(SMALL | {"max_unwritten_bytes": bound}))
    # The writer runs only when the engine waits for it.
    most = deliver_all(broker)
    assert (most <= BOUND + STEP * 20) is within
    broker.follow()
    check_queues(broker)
    check_files(broker)
    assert broker.engine.queues.unwritten_bytes == unwritten(broker) == 0


def test_the_log_is_read_on_while_it_has_flushed_nothing_that_could_be_written():
    disk = SimulatedDisk()
    log = log_of(disk.files(), 500)
    broker = start(disk.files(), log, connect=False, **SMALL)
    broker.flushed = 0
    broker.connect()
    assert deliver_all(broker) == 500 * 20
    broker.flushed = None
    broker.follow()
    check_files(broker)


def test_a_full_disk_stops_the_reading_of_the_log_until_there_is_room():
    disk = SimulatedDisk()
    log = log_of(disk.files(), 1_000)
    broker = start(disk.files(), log, **SMALL)
    full = disk.fail("write", "consumequeue/*", error=errno.ENOSPC, repeat=True)
    steps = (
        wait
        for begin, end in list(log.ranges(0, log.end, 100))
        for wait in broker.deliver(begin, end)
    )
    held_up = next(wait for wait in steps if wait is not None)
    for _ in range(5):
        broker.flush()
        assert broker.engine.saver.blocked
        held_up = next(steps)
        assert held_up is not None, "it continues while nothing can be written"
        assert unwritten(broker) <= BOUND + STEP * 20
    disk.faults.remove(full)
    broker.wait(held_up)
    for wait in steps:
        if wait is not None:
            broker.wait(wait)
    broker.flush()
    check_files(broker)


# --- progress ---


def own_history(disk: SimulatedDisk) -> WrittenLog:
    """Nothing is known of the queue files, and there are none."""
    return log_of(disk.files(), 300)


def another_history(disk: SimulatedDisk) -> WrittenLog:
    """The files hold the queues of a log of which ours has the first messages alone; units of the
    others follow ours, and point to a part of the log that ours fills with other messages."""
    log = WrittenLog(disk.files())
    log.put_many(30, topics=2, queues=2)
    fork = log.end
    for _ in range(60):
        log.put("topic-0", 0, b"x" * 30)
        log.put("only-there", 7)
    broker = start(disk.files(), log)
    broker.follow()
    broker.stop()
    log.cut(fork)
    for number in range(150):
        log.put("topic-1", number % 2, b"y" * 60)
    log.put("topic-0", 0)
    log.put_many(60, topics=2, queues=2)
    log.forget_generations()
    return log


def queue_offsets_that_went_back(disk: SimulatedDisk) -> WrittenLog:
    """Old units of a queue are behind its end, and the log still has their messages."""
    log = WrittenLog(disk.files())
    for first, count in ((0, 40), (15, 5), (0, 3)):
        for number in range(first, first + count):
            log.put("t", 0, queue_offset=number)
            log.put("u", 0)
    for _ in range(100):
        log.put("u", 1)
    return log


HISTORIES = {
    "its own history": own_history,
    "another history": another_history,
    "queue offsets that went back": queue_offsets_that_went_back,
}
PORTION = 25
"""Messages that are read and flushed between two kills."""


def killed_after_each_portion(disk: SimulatedDisk, log: WrittenLog) -> tuple[Broker, int]:
    """The dispatcher that ended the rebuild, and how many messages were read in all."""
    read = 0
    while True:
        log.files = disk.files()
        broker = start(log.files, log, **SMALL)
        check_listing(broker)
        portion = [m for m in log.messages if m.offset >= broker.position][:PORTION]
        read += len(portion)
        if not portion:
            broker.follow()
            return broker, read
        deliver_to(broker, portion[-1].end)
        disk = disk.image(keep_everything)


def in_one_go(disk: SimulatedDisk, log: WrittenLog) -> Broker:
    log.files = disk.files()
    broker = start(log.files, log, **SMALL)
    broker.follow()
    return broker


@pytest.mark.parametrize("history", HISTORIES)
def test_a_rebuild_that_is_killed_continues_where_it_was_and_ends_the_same(history):
    disk = SimulatedDisk()
    log = HISTORIES[history](disk)
    expected = contents(in_one_go(disk.image(keep_everything), log).engine_files)
    broker, read = killed_after_each_portion(disk, log)
    assert read == len(log.messages)
    assert contents(broker.engine_files) == expected
    assert broker.engine.followed.serving
    assert broker.engine.followed.durable == log.end
    if history != "queue offsets that went back":
        check_queues(broker)
        check_files(broker)


def test_units_of_another_history_are_taken_for_ours_if_the_log_is_not_asked(monkeypatch):
    monkeypatch.setattr(LogWitness, "confirms", lambda *arguments: True)
    disk = SimulatedDisk()
    log = another_history(disk)
    broker, _ = killed_after_each_portion(disk, log)
    with pytest.raises(AssertionError):
        check_queues(broker)


def test_a_log_that_is_cut_below_the_progress_takes_it_back():
    disk = SimulatedDisk()
    log = another_history(disk)
    broker = start(disk.files(), log, **SMALL)
    deliver_to(broker, log.messages[120].end)
    disk = disk.image(keep_everything)
    log.files = disk.files()
    log.cut(log.messages[80].offset)
    log.restart()
    log.put_many(90)
    broker, _ = killed_after_each_portion(disk, log)
    check_queues(broker)
    check_files(broker)
