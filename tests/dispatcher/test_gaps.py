"""Where queue offsets do not go on, or queues have lost units, the log is read again."""

import pytest

from stratamq.errors import CorruptionError
from stratamq.follow.protocol import ReadAgainError
from tests.dispatcher.followed_log import WrittenLog, start
from tests.dispatcher.queue_checks import check_files, check_queues, contents
from tests.support.disks import Place


@pytest.fixture
def files(place: Place):
    return place.files


@pytest.fixture
def log(files) -> WrittenLog:
    return WrittenLog(files)


def test_a_gap_in_queue_offsets_stops_dispatch_and_misplaces_nothing(files, log):
    log.put("t")
    log.put("t", queue_offset=5)
    broker = start(files, log)
    with pytest.raises(ReadAgainError, match="continues with 5"):
        broker.send()
    broker.connect()
    with pytest.raises(CorruptionError, match="continues with 5"):
        broker.send()
    broker.flush()
    assert broker.engine.queues.get("t", 0).end == 1
    assert not any(contents(files).values())


def test_after_a_gap_the_next_start_compares_all_queues(files, log):
    log.put_many(40)
    broker = start(files, log)
    broker.follow()
    broker.flush()
    log.put("topic-0", queue_offset=99)
    with pytest.raises(ReadAgainError):
        broker.send()
    broker.connect()
    with pytest.raises(CorruptionError):
        broker.send()
    broker.flush()
    assert start(files, log).position == 0


def test_units_that_the_files_have_lost_are_read_from_the_log_again(files, log):
    log.put_many(40)
    broker = start(files, log)
    broker.follow()
    broker.stop()
    path = max(contents(files))
    file = files.open(path, writable=True)
    file.write(0, bytes(160))
    file.flush()
    file.close()
    again = start(files, log)
    log.put_many(40)
    with pytest.raises(ReadAgainError):
        again.send()
    assert 0 < again.connect() < log.end
    again.follow()
    check_queues(again)
    check_files(again)


def test_a_queue_without_its_last_units_is_read_again_before_it_serves(files, log):
    log.put_many(40)
    broker = start(files, log)
    broker.follow()
    ends = [(topic, queue_id, 10) for topic in ("topic-0", "topic-1") for queue_id in (0, 1)]
    broker.stop()
    path = max(contents(files))
    file = files.open(path, writable=True)
    file.write(0, bytes(160))
    file.flush()
    file.close()
    again = start(files, log, awaits_queues=True)
    assert not again.engine.followed.serving
    with pytest.raises(ReadAgainError, match="the log had given it 10"):
        again.engine.learn_queues(log.end, ends, False)
    again.connect()
    again.engine.learn_queues(log.end, ends, True)
    again.follow()
    assert not again.engine.followed.serving
    again.engine.learn_queues(log.end, [], False)
    assert again.engine.followed.serving
    check_queues(again)
    check_files(again)
