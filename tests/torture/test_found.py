"""What torture has found, each as the few steps that are left of it."""

import errno
from contextlib import suppress

import pytest

from stratamq.errors import StoreRefusedError
from stratamq.files.simulated import SimulatedCrash, SimulatedDisk, keep_nothing
from stratamq.follow.protocol import ReadAgainError
from stratamq.formats.file_names import parse_offset_name
from stratamq.formats.queue_unit import PRE_BLANK_SIZE
from stratamq.formats.queue_units import decode_units
from tests.dispatcher.followed_log import WrittenLog, start
from tests.index.harness import Follower, TestLog
from tests.support.disks import names, read_file


def test_a_log_that_has_what_it_deleted_again_does_not_stop_the_dispatcher():
    # It died after it had announced the deletion, before it unlinked the segments.
    disk = SimulatedDisk()
    log = WrittenLog(disk.files(name="log"))
    log.put("quiet")
    files = disk.files(name="dispatcher")
    start(files, log).follow()
    files.kill()
    log.put("quiet")
    log.put_many(120, topics=1, queues=1)
    log.minimum = 2 * log.segment_bytes
    files = disk.files(name="dispatcher")
    behind = start(files, log)
    behind.follow()
    assert behind.engine.followed.durable == log.end
    files.kill()
    log.minimum = 0
    last = log.put("quiet")
    again = start(disk.files(name="dispatcher"), log)
    again.follow()
    assert again.engine.followed.serving
    queue = again.engine.queues.get("quiet", 0)
    assert queue is not None and queue.end == last.queue_offset + 1 == 3


def test_a_crash_leaves_at_most_two_queue_files_unfinished_whatever_is_written_at_once():
    # RocketMQ looks at the last three files of a queue, and takes the others for full.
    disk = SimulatedDisk()
    log = WrittenLog(disk.files(name="log"))
    log.put_many(60, topics=1, queues=1)
    broker = start(disk.files(name="dispatcher"), log, flush_window_bytes=100_000)
    broker.send()
    disk.crash_on("flush", "consumequeue/*")
    with pytest.raises(SimulatedCrash):
        broker.flush()
    disk.crash(keep_nothing)
    files = disk.files(name="next")
    directory = "consumequeue/topic-0/0"
    made = [read_file(files, f"{directory}/{name}") for name in names(files, directory)]
    unfinished = [raw for raw in made if not raw[-20:].strip(b"\0")]
    assert 0 < len(unfinished) <= 2


def test_a_queue_file_whose_maker_died_before_its_directory_was_synced_is_durable_when_it_counts():
    disk = SimulatedDisk()
    log = WrittenLog(disk.files(name="log"))
    log.put_many(8, topics=1, queues=1)
    broker = start(disk.files(name="dispatcher"), log)
    broker.follow()
    log.put_many(4, topics=1, queues=1)
    broker.send()
    disk.crash_on("create.sync_target", "consumequeue/*")
    with pytest.raises(SimulatedCrash):
        broker.flush()
    disk.clear_faults()
    broker.engine_files.kill()
    again = start(disk.files(name="dispatcher"), log)
    again.follow()
    assert again.engine.followed.durable == log.end
    disk.crash(keep_nothing)
    assert len(names(disk.files(), "consumequeue/topic-0/0")) == 2


@pytest.mark.parametrize("crash", ["once", "after a kill"])
def test_a_power_loss_while_queue_files_are_deleted_leaves_no_gap_in_the_queue(crash):
    # RocketMQ counts units by the files that are there; ours would be dropped behind a gap.
    for calls in range(1, 60):
        disk = SimulatedDisk()
        log = WrittenLog(disk.files(name="log"))
        log.put_many(60, topics=1, queues=1)
        broker = start(disk.files(name="dispatcher"), log)
        broker.follow()
        if crash == "after a kill":
            log.minimum = log.messages[20].offset
            disk.crash_on("sync_directory", "consumequeue/*")
            with pytest.raises(SimulatedCrash):
                broker.follow()
            disk.clear_faults()
            broker.engine_files.kill()
            broker = start(disk.files(name="dispatcher"), log)
        log.minimum = log.messages[50].offset
        disk.crash_at(disk.calls + calls)
        with suppress(SimulatedCrash):
            broker.follow()
        disk.clear_faults()
        kept = iter(range(100))
        disk.crash(lambda item, kept=kept: item.kind == "entry" and next(kept) % 2 == 1)
        made = [parse_offset_name(n) for n in names(disk.files(), "consumequeue/topic-0/0")]
        assert made == list(range(made[0], made[-1] + 1, 160))


def test_queue_files_of_a_lost_history_are_durably_gone_when_the_dispatcher_serves():
    # RocketMQ left a unit of a log that the power took.
    disk = SimulatedDisk()
    log = WrittenLog(disk.files(name="log"))
    log.put_many(8, topics=1, queues=1)
    start(disk.files(name="dispatcher"), log).follow()
    assert names(disk.files(), "consumequeue/topic-0/0")
    log.cut(0)
    log.forget_generations()
    again = start(disk.files(name="next"), log)
    again.follow()
    assert again.engine.followed.serving
    disk.crash(keep_nothing)
    assert not names(disk.files(), "consumequeue/topic-0/0")


def test_an_index_that_cannot_be_cut_for_lack_of_space_is_refused_with_the_reason():
    disk = SimulatedDisk()
    log = TestLog(disk.files(name="log"))
    log.fill(3)
    files = disk.files(name="index")
    running = Follower(log, files=files).start()
    log.fill(3, seed=2)
    # Items of the second three messages reach their file, their watermark does not.
    disk.fail("replace", "stratamq/index.json", repeat=True)
    running.apply()
    running.sync()
    files.kill()
    disk.clear_faults()
    disk.fail("flush", "stratamq/tmp/*", error=errno.ENOSPC)
    with pytest.raises(StoreRefusedError, match="No space left"):
        Follower(log, files=disk.files(name="index")).load()
    Follower(log, files=disk.files(name="index")).start().assert_answers_like_the_log()


def test_a_queue_whose_messages_went_before_they_were_dispatched_leaves_no_old_unit_at_its_end():
    # RocketMQ would go on behind the last unit it finds, and give new messages old numbers.
    disk = SimulatedDisk()
    log = WrittenLog(disk.files(name="log"))
    for _ in range(3):
        log.put("quiet")
    files = disk.files(name="dispatcher")
    start(files, log).follow()
    files.kill()
    for _ in range(4):
        log.put("quiet")
    log.put_many(120, topics=1, queues=1)
    log.minimum = 2 * log.segment_bytes
    files = disk.files(name="dispatcher")
    again = start(files, log)
    again.engine.learn_queues(log.end, [("quiet", 0, 7)])
    with pytest.raises(ReadAgainError):
        again.follow()
    assert again.connect() == log.minimum
    again.engine.learn_queues(log.end, [("quiet", 0, 7)])
    again.follow()
    disk.crash(keep_nothing)
    content = read_file(disk.files(), "consumequeue/quiet/0/" + "0" * 20)
    units = decode_units(content)
    assert units["size"][:8].tolist() == [PRE_BLANK_SIZE] * 7 + [0]
