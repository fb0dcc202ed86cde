"""The queues after a crash or a failure at every single call to the disk.

The log is durable and complete; whatever is lost, torn or unfinished below `consumequeue/` and
`stratamq/`, the next start must make the queues equal to what follows from the log, to the byte.
"""

import contextlib
import errno
import functools
import itertools
import random
from collections.abc import Callable

import pytest
from stratamq_dispatcher.engine import DispatchEngine
from stratamq_dispatcher.queue_writer import FEW_FILES

from stratamq.errors import StrataError
from stratamq.files.simulated import (
    SimulatedCrash,
    SimulatedDisk,
    keep_everything,
    keep_nothing,
    random_choice,
)
from stratamq.formats.file_names import offset_name
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.store_paths import DISPATCHER_STALE_PATH, DISPATCHER_STATE_PATH
from tests.dispatcher.followed_log import Broker, WrittenLog, start
from tests.dispatcher.queue_checks import check_files, check_queues, contents
from tests.support.disks import read_file, write_file
from tests.support.sampling import few, sampled

Act = Callable[[SimulatedDisk, WrittenLog], None]

CRASHES = {
    "nothing kept": lambda seed: keep_nothing,
    "everything kept": lambda seed: keep_everything,
    "some kept": lambda seed: random_choice(random.Random(seed)),
}


def new_log(disk: SimulatedDisk) -> WrittenLog:
    log = WrittenLog(disk.files(name="log"))
    log.put_many(90, topics=2, queues=2)
    return log


def first_pass(disk: SimulatedDisk, log: WrittenLog) -> None:
    """A dispatcher meets a log for the first time, in three portions."""
    broker = start(disk.files(name="dispatcher"), log, connect=False)
    for message in (log.messages[30], log.messages[60], None):
        broker.confirmed = message.offset if message else None
        if message is log.messages[30]:
            broker.connect()
        broker.follow()
    broker.stop()


def next_start(disk: SimulatedDisk, log: WrittenLog) -> None:
    """A dispatcher comes back, catches up, and stops in order."""
    broker = start(disk.files(name="dispatcher"), log)
    broker.follow()
    broker.stop()


def with_more_messages(disk: SimulatedDisk) -> WrittenLog:
    log = new_log(disk)
    next_start(disk, log)
    log.put_many(50)
    return log


def with_many_new_queues(disk: SimulatedDisk) -> WrittenLog:
    """So many that their files are made together."""
    log = new_log(disk)
    next_start(disk, log)
    new = log.put_many(40, topics=20, queues=1)
    assert len({message.topic for message in new}) > FEW_FILES + 2
    return log


def after_a_cut(disk: SimulatedDisk) -> WrittenLog:
    log = new_log(disk)
    next_start(disk, log)
    log.cut(log.messages[37].offset)
    log.restart()
    for _ in range(20):
        # The other queues have nothing that would be written over, and what is stale in them looks
        # like units of this history: its messages end where lost ones did.
        log.put("topic-0", tags="A")
    return log


def after_an_unknown_history(disk: SimulatedDisk) -> WrittenLog:
    log = new_log(disk)
    next_start(disk, log)
    log.forget_generations()
    return log


def after_another_history(disk: SimulatedDisk) -> WrittenLog:
    """The files hold units of messages that the log does not have, in its first part."""
    log = WrittenLog(disk.files(name="log"))
    log.put_many(16, topics=2, queues=2)
    fork = log.end
    for _ in range(20):
        log.put("topic-0", 0, b"x" * 20)
        log.put("only-there", 7)
    next_start(disk, log)
    log.cut(fork)
    for number in range(60):
        log.put("topic-1", number % 2, b"y" * 40)
    log.put_many(15, topics=2, queues=2)
    log.forget_generations()
    return log


def after_deletion(disk: SimulatedDisk) -> WrittenLog:
    log = WrittenLog(disk.files(name="log"))
    log.put_many(150, topics=1, queues=1)
    next_start(disk, log)
    log.delete_below(2 * log.segment_bytes)
    return log


SCENARIOS: dict[str, tuple[Callable[[SimulatedDisk], WrittenLog], Act]] = {
    "first pass": (new_log, first_pass),
    "more messages": (with_more_messages, next_start),
    "many new queues": (with_many_new_queues, next_start),
    "after a cut": (after_a_cut, next_start),
    "unknown history": (after_an_unknown_history, next_start),
    "another history": (after_another_history, first_pass),
    "deletion": (after_deletion, next_start),
}


@functools.cache
def prepared(scenario: str) -> tuple[SimulatedDisk, WrittenLog]:
    disk = SimulatedDisk(seed=1)
    return disk, SCENARIOS[scenario][0](disk)


def prepare(scenario: str) -> tuple[SimulatedDisk, WrittenLog, Act]:
    """A disk of one's own in the scenario's first state."""
    disk, log = prepared(scenario)
    twin = disk.image(keep_everything)
    return twin, log.copy(twin.files(name="log")), SCENARIOS[scenario][1]


def calls_of(scenario: str) -> int:
    disk, log, act = prepare(scenario)
    before = disk.calls
    act(disk, log)
    return disk.calls - before


def check_next_start(disk: SimulatedDisk, log: WrittenLog) -> Broker:
    log.files = disk.files(name="log")
    broker = start(disk.files(name="dispatcher"), log)
    broker.follow()
    assert broker.engine.followed.serving
    assert broker.engine.followed.durable == log.end
    check_queues(broker)
    if log.minimum == 0:
        check_files(broker)
    return broker


@pytest.mark.parametrize("crash", CRASHES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_power_is_lost_at_every_call(scenario, crash):
    total = calls_of(scenario)
    assert total > 30
    for call in sampled(range(1, total + 1)):
        disk, log, act = prepare(scenario)
        disk.crash_at(disk.calls + call)
        try:
            act(disk, log)
        except SimulatedCrash:
            disk.crash(CRASHES[crash](call))
        disk.clear_faults()
        check_next_start(disk, log)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_process_is_killed_at_every_call(scenario):
    for call in sampled(range(1, calls_of(scenario) + 1)):
        disk, log, act = prepare(scenario)
        disk.crash_at(disk.calls + call)
        try:
            act(disk, log)
        except SimulatedCrash:
            disk.kill()
        disk.clear_faults()
        check_next_start(disk, log)


@pytest.mark.parametrize("crash", ["killed", *CRASHES])
def test_the_log_is_cut_behind_the_watermark_after_a_crash_at_every_call(crash):
    """Its answer equals our watermark, as without a change; units behind it in the files belong
    to a history that no longer exists."""
    for call in sampled(range(1, calls_of("more messages") + 1)):
        disk, log, act = prepare("more messages")
        disk.crash_at(disk.calls + call)
        try:
            act(disk, log)
        except SimulatedCrash:
            disk.kill() if crash == "killed" else disk.crash(CRASHES[crash](call))
        disk.clear_faults()
        log.files = disk.files(name="log")
        log.cut(log.messages[100].offset)
        log.restart()
        log.put("elsewhere")
        check_next_start(disk, log)


def test_a_file_whose_removal_the_disk_has_forgotten_is_removed_again():
    """Its units look older than the watermark by then, and are of a history that is gone."""
    disk, log, act = prepare("more messages")
    log.put("gone")
    act(disk, log)
    lost = {"consumequeue/topic-0/0/" + offset_name(480), "consumequeue/gone/0/" + offset_name(0)}
    assert lost <= set(contents(log.files))
    log.cut(log.messages[40].offset)
    log.restart()
    for _ in range(150):
        log.put("elsewhere")
    disk.crash_on("sync_directory", "consumequeue/*")
    with pytest.raises(SimulatedCrash):
        next_start(disk, log)
    disk.clear_faults()
    assert not lost <= set(contents(log.files))
    disk.crash(keep_nothing)
    log.files = disk.files(name="log")
    assert lost <= set(contents(log.files))
    check_next_start(disk, log)


def test_a_crash_behind_a_removal_leaves_a_list_that_the_next_start_believes():
    """A file that the list names and that is gone would count as damage: all would be compared."""
    disk, log, act = prepare("deletion")
    before = set(contents(log.files))
    disk.crash_on("sync_directory", "consumequeue/*")
    with pytest.raises(SimulatedCrash):
        act(disk, log)
    disk.kill()
    disk.clear_faults()
    log.files = disk.files(name="log")
    assert before - set(contents(log.files))
    broker = start(disk.files(name="dispatcher"), log, connect=False)
    assert broker.engine.fold.resume_point()[1] == log.end
    check_next_start(disk, log)


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_crash_between_removals_of_a_cut_leaves_no_gap_in_the_queue(nth):
    disk = SimulatedDisk(seed=1)
    log = WrittenLog(disk.files(name="log"))
    log.put_many(40, topics=1, queues=1)
    next_start(disk, log)
    log.cut(log.messages[3].offset)
    log.restart()
    disk.crash_on("unlink", "consumequeue/*", nth)
    with pytest.raises(SimulatedCrash):
        next_start(disk, log)
    disk.crash(keep_nothing)
    disk.clear_faults()
    log.files = disk.files(name="log")
    names = ["consumequeue/topic-0/0/" + offset_name(first * 160) for first in range(5)]
    assert list(contents(log.files)) == names[: 6 - nth]
    check_next_start(disk, log)


def failed_erasing() -> tuple[SimulatedDisk, WrittenLog]:
    """Zeros behind a cut that the cache shows, clean, and the disk does not have."""
    disk, log, act = prepare("after a cut")
    disk.fail("flush", "consumequeue/topic-1/*")
    act(disk, log)
    disk.clear_faults()
    disk.kill()
    there = contents(disk.files())
    assert any(data != disk.durable_contents(path) for path, data in there.items())
    return disk, log


def check_after_power_loss(disk: SimulatedDisk, log: WrittenLog) -> None:
    """One start in order, the loss of all that it has not synced, and another one."""
    check_next_start(disk, log).stop()
    disk.crash(keep_nothing)
    check_next_start(disk, log)


def test_what_was_being_erased_when_a_sync_failed_is_erased_again():
    disk, log = failed_erasing()
    check_after_power_loss(disk, log)


def test_without_the_record_of_what_was_being_erased_all_queues_are_compared():
    disk, log = failed_erasing()
    files = disk.files()
    files.unlink(DISPATCHER_STALE_PATH)
    write_file(files, DISPATCHER_STALE_PATH, b"damaged")
    check_after_power_loss(disk, log)


def test_before_files_change_the_state_on_disk_marks_that_they_may():
    """Units are in files that the watermark does not cover, and the log loses their messages: only
    the mark shows the next start that units must be erased."""
    disk = SimulatedDisk(seed=1)
    log = new_log(disk)
    next_start(disk, log)
    stopped = log.end
    assert b'"clean":true' in disk.durable_contents(DISPATCHER_STATE_PATH)
    log.put_many(8)
    disk.crash_on("flush", "consumequeue/*")
    with pytest.raises(SimulatedCrash):
        next_start(disk, log)
    disk.kill()
    disk.clear_faults()
    assert b'"clean":false' in disk.durable_contents(DISPATCHER_STATE_PATH)
    log.files = disk.files(name="log")
    log.cut(stopped)
    log.restart()
    check_next_start(disk, log)


def test_an_older_state_file_is_not_trusted_for_files_that_changed_since():
    """It is of a stop in order; units were written after it whose messages the log has lost."""
    disk = SimulatedDisk(seed=1)
    log = new_log(disk)
    next_start(disk, log)
    stopped = log.end
    log.put_many(8)
    disk.crash_on(
        "replace", f"{DISPATCHER_STATE_PATH}*", 3
    )  # of the watermark: two are of the unclean mark
    with pytest.raises(SimulatedCrash):
        next_start(disk, log)
    disk.kill()
    disk.clear_faults()
    files = disk.files(name="log")
    assert b'"clean":false' in read_file(files, DISPATCHER_STATE_PATH)
    assert b'"clean":true' in read_file(files, f"{DISPATCHER_STATE_PATH}.previous")
    files.unlink(DISPATCHER_STATE_PATH)
    write_file(files, DISPATCHER_STATE_PATH, b"damaged")
    log.files = files
    log.cut(stopped)
    log.restart()
    check_next_start(disk, log)


def test_no_more_than_a_window_of_a_queue_is_unsynced():
    """RocketMQ reads the last three files of a queue and takes older ones for full."""
    most = 0
    for nth in itertools.count(1):
        disk = SimulatedDisk(seed=1)
        log = WrittenLog(disk.files(name="log"))
        log.put_many(40, topics=1, queues=1)
        disk.crash_on("flush", "consumequeue/*", nth)
        try:
            next_start(disk, log)
        except SimulatedCrash:
            unsynced = 0
            for path, data in contents(disk.files()).items():
                durable = disk.durable_contents(path).ljust(len(data), b"\0")
                for at in range(0, len(data), QUEUE_UNIT_BYTES):
                    unsynced += data[at:][:QUEUE_UNIT_BYTES] != durable[at:][:QUEUE_UNIT_BYTES]
            most = max(most, unsynced)
        else:
            break
    assert most == 80 // QUEUE_UNIT_BYTES


@pytest.mark.parametrize("seed", few(range(40), 12))
def test_power_is_lost_again_and_again(seed):
    """Also in the start after a loss, and in the one after that."""
    chance = random.Random(seed)
    disk = SimulatedDisk(seed=seed)
    log = new_log(disk)
    for _ in range(6):
        disk.crash_at(disk.calls + chance.randrange(1, 150))
        try:
            next_start(disk, log)
        except SimulatedCrash:
            disk.crash(random_choice(chance))
        disk.clear_faults()
        log.files = disk.files(name="log")
        log.restart()
        log.put_many(chance.randrange(20))
    check_next_start(disk, log)


@pytest.mark.parametrize("seed", few(range(40), 12))
def test_under_async_flush_the_log_loses_its_tail_and_other_messages_take_its_place(seed):
    """What was applied above `flushed` must leave no trace when the log cannot give it again."""
    chance = random.Random(seed)
    disk = SimulatedDisk(seed=seed)
    log = new_log(disk)
    for _ in range(5):
        broker = start(disk.files(name="dispatcher"), log, seed=seed, connect=False)
        kept = sum(message.end <= log.generations[-1][1] for message in log.messages)
        broker.flushed = log.messages[chance.randrange(kept, len(log.messages))].offset
        broker.connect()
        disk.crash_at(disk.calls + chance.randrange(1, 200))
        with contextlib.suppress(SimulatedCrash):
            broker.follow()
        disk.clear_faults()
        disk.crash(random_choice(chance))
        log.files = disk.files(name="log")
        log.cut(broker.flushed)
        log.restart()
        log.put_many(chance.randrange(1, 30), topics=3)
    check_next_start(disk, log)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_call_fails_in_turn(scenario, error):
    """Whatever becomes of the process then, the next start is right; and no failed sync is
    followed by a watermark that counts on it."""
    total = calls_of(scenario)
    for call in sampled(range(1, total + 1)):
        disk, log, act = prepare(scenario)
        disk.fail_at(disk.calls + call, error)
        with contextlib.suppress(OSError, StrataError):  # a bug would be another exception
            act(disk, log)
        disk.clear_faults()
        disk.crash(keep_nothing)
        check_next_start(disk, log)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_after_a_failed_sync_a_start_writes_again_what_only_the_cache_has(scenario):
    """The cache shows the right bytes, clean, and the disk has others: comparing proves nothing."""
    for operation in ("flush", "sync_all", "sync_directory"):
        for nth in range(1, 8):
            disk, log, act = prepare(scenario)
            disk.fail(operation, "consumequeue*", nth, partial=True)
            disk.fail(operation, "", nth, partial=True)
            with contextlib.suppress(OSError, StrataError):
                act(disk, log)
            disk.clear_faults()
            disk.kill()
            check_next_start(disk, log).stop()
            disk.crash(keep_nothing)
            check_next_start(disk, log)


def test_a_failed_sync_stops_writing_and_following():
    disk = SimulatedDisk(seed=1)
    log = new_log(disk)
    broker = start(disk.files(), log)
    disk.fail("flush", "consumequeue/*")
    broker.send()
    broker.flush()
    engine: DispatchEngine = broker.engine
    assert "could not be synced" in engine.followed.stopped_reason
    assert engine.followed.durable == 0
    log.put_many(10)
    with pytest.raises(Exception, match="could not be synced"):
        broker.send()
    calls = disk.calls
    broker.flush()
    assert disk.calls == calls
    check_queues(broker, upto=engine.followed.applied)  # what is applied can still be read


def test_a_full_disk_is_a_level_that_clears_itself():
    disk = SimulatedDisk(seed=1)
    log = new_log(disk)
    broker = start(disk.files(), log)
    fault = disk.fail("write", "consumequeue/*", error=errno.ENOSPC, repeat=True)
    broker.send()
    broker.flush()
    assert "cannot be written" in broker.engine.saver.blocked
    assert broker.engine.followed.durable == 0
    check_queues(broker)
    disk.faults.remove(fault)
    broker.flush()
    assert broker.engine.saver.blocked == ""
    assert broker.engine.followed.durable == log.end
    check_files(broker)
