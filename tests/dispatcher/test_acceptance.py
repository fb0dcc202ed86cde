"""Behaviours of RocketMQ's own store tests that concern consume queues, by their names there."""

import pytest
from stratamq_dispatcher.consume_queue import ConsumeQueue
from stratamq_dispatcher.queue_files import OpenFiles

from stratamq.formats.queue_paths import QueueGeometry
from stratamq.formats.queue_unit import encode_queue_unit
from stratamq.formats.queue_units import UnitRun
from tests.dispatcher.followed_log import HOST_V6, WrittenLog, start
from tests.dispatcher.queue_checks import (
    check_files,
    check_queues,
    consume,
    contents,
    frames_of,
    pull,
)
from tests.support.disks import Place


def run_of(first: int, count: int, at: int, size: int = 100) -> UnitRun:
    """Messages of `size` bytes, side by side in the log from `at` on."""
    units = b"".join(encode_queue_unit(at + n * size, size, 0) for n in range(count))
    return UnitRun("t", 0, first, count, memoryview(units), at, at + count * size, 1)


@pytest.fixture
def queue() -> ConsumeQueue:
    return ConsumeQueue("t", 0, QueueGeometry(10))


@pytest.fixture
def open_files(place: Place) -> OpenFiles:
    return OpenFiles(place.files, 8)


def test_put_message_position_info_build_cq_repeatedly(place):
    """Dispatching the first message again succeeds, and adds nothing."""
    log = WrittenLog(place.files)
    for number in range(60):
        log.put("t", store_host=HOST_V6 if number % 2 else bytes(8))
    broker = start(place.files, log)
    broker.follow()
    queue = broker.engine.queues.get("t", 0)
    first = log.messages[0]
    again = run_of(0, 1, first.offset, len(first.frame))
    assert broker.engine.queues.append(again, 0) is queue
    several = run_of(0, 60, first.offset, len(first.frame))
    broker.engine.queues.append(several, 0)
    assert queue.end == 60
    check_queues(broker)


def test_a_run_that_is_partly_there_adds_only_the_rest(queue):
    queue.append(run_of(0, 5, 0), 0)
    queue.append(run_of(0, 8, 0), 0)
    assert queue.end == 8
    assert bytes(queue.tail) == bytes(run_of(0, 8, 0).units)


@pytest.mark.parametrize(
    ("minimum_offset", "index"), [(0, 0), (1, 1), (2_000, 20), (2_001, 21), (10**9, 10_000)]
)
def test_correct_min_offset(queue, open_files, minimum_offset, index):
    queue.append(run_of(0, 10_000, 0), 0)
    assert queue.minimum(open_files, minimum_offset) == index
    assert queue.minimum(open_files, minimum_offset) == index
    assert queue.end == 10_000


def test_correct_min_offset_only_goes_up(queue, open_files):
    queue.append(run_of(0, 10_000, 0), 0)
    assert [queue.minimum(open_files, 100 * n) for n in (3, 500, 5_000)] == [3, 500, 5_000]


def test_a_message_after_all_others_are_gone_is_the_new_minimum(queue, open_files):
    queue.append(run_of(0, 10, 0), 0)
    assert queue.minimum(open_files, 5_000) == 10
    queue.append(run_of(10, 1, 6_000), 5_000)
    assert (queue.minimum(open_files, 5_000), queue.end) == (10, 11)


def test_fill_bank_then_correct_min_offset(place):
    """A queue begins at 100: minimum and maximum stand there, also after a reload."""
    log = WrittenLog(place.files)
    log.put("other")
    log.next_queue_offset["t", 0] = 100
    log.put("t")
    broker = start(place.files, log)
    broker.follow()
    log.cut(log.messages[-1].offset)  # the one message is gone, its pre-blank units are not
    log.restart()
    log.next_queue_offset["t", 0] = 100
    again = start(place.files, log)
    again.engine.learn_queues(log.end, [("t", 0, 100)])
    again.follow()
    queue = again.engine.queues.get("t", 0)
    for minimum_offset in (0, 1):
        minimum = queue.minimum(again.engine.queues.open_files, minimum_offset)
        assert (minimum, queue.end) == (100, 100)


def test_write_and_read(place):
    """Twenty messages, half of them from IPv6 hosts; each offset gives its own."""
    log = WrittenLog(place.files, segment_bytes=1 << 20)
    for number in range(20):
        log.put("t", store_host=HOST_V6 if number % 2 else bytes(8), body=b"%d" % number)
    broker = start(place.files, log, queue_file_bytes=1000)
    broker.follow()
    for number, message in enumerate(log.messages):
        answer = pull(broker, "t", 0, number, 1)
        assert (answer.status.name, frames_of(answer)) == ("FOUND", [message.frame])


def test_get_offset_in_queue_by_time_consume_queue_offset_not_exist(place):
    log = WrittenLog(place.files)
    log.put("t")
    broker = start(place.files, log)
    broker.follow()
    assert broker.engine.queues.get("t", -1) is None
    assert pull(broker, "t", 0, -1).status.name == "OFFSET_TOO_SMALL"


@pytest.mark.parametrize("deleted", [0, 6, 7, 13, 14, 15, 54])
def test_delete_expired_files_by_time_up(place, deleted):
    """One message fills a log file, seven units a queue file: ⌊deleted / 7⌋ queue files go."""
    log = WrittenLog(place.files, segment_bytes=128)
    probe = log.put("t")
    size = len(probe.frame)
    log.cut(0)
    for _ in range(55):
        log.put("t", body=bytes(4 + 120 - size))
    assert all(len(message.frame) == 120 for message in log.messages)
    broker = start(place.files, log, queue_file_bytes=140)
    broker.follow()
    assert len(contents(place.files)) == 8
    log.delete_below(deleted * 128)
    broker.follow()
    assert len(contents(place.files)) == 8 - min(deleted // 7, 7)
    check_queues(broker)


@pytest.mark.parametrize(
    ("keep", "files_left"),
    [
        (17, 3),  # the first unit of the last file is beyond: the file goes
        (16, 2),  # exactly at a file's beginning
        (9, 2),
        (1, 1),
        (0, 0),  # nothing remains
    ],
)
def test_truncate_dirty_logic_files(place, keep, files_left):
    log = WrittenLog(place.files)
    for _ in range(25):
        log.put("t")
    broker = start(place.files, log)
    broker.follow()
    assert len(contents(place.files)) == 4
    log.cut(log.messages[keep].offset if keep else 0)
    log.restart()
    broker.connect()
    broker.follow()
    assert len(contents(place.files)) == files_left
    check_queues(broker)
    check_files(broker)


def test_truncation_at_the_very_unit_drops_it(place):
    """A message at P itself is beyond the cut."""
    log = WrittenLog(place.files)
    for _ in range(5):
        log.put("t")
    broker = start(place.files, log)
    broker.follow()
    kept = [message.frame for message in log.messages[:3]]
    log.cut(log.messages[3].offset)
    log.restart()
    broker.connect()
    broker.follow()
    assert consume(broker, "t", 0) == kept
