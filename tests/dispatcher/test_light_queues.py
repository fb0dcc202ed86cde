"""Light queues are built from a property of their messages, and served with their places there."""

import pytest

from stratamq.client.received import split_frames
from stratamq.errors import CorruptionError
from stratamq.files.simulated import SimulatedDisk
from tests.dispatcher.followed_log import Broker, WrittenLog, start
from tests.dispatcher.queue_checks import consume, contents, pull

NAMES = ("%LMQ%a", "%LMQ%b")


def multi(*offsets: int, names: tuple[str, ...] = NAMES) -> dict[str, str]:
    return {
        "INNER_MULTI_DISPATCH": ",".join(names),
        "INNER_MULTI_QUEUE_OFFSET": ",".join(map(str, offsets)),
    }


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def log(disk) -> WrittenLog:
    """Every third message of a topic is in both light queues, every sixth has a long property."""
    log = WrittenLog(disk.files())
    for number in range(60):
        light = {} if number % 3 else multi(number // 3, 5 + number // 3)
        more = {"x": "y" * 40} if number % 6 == 0 else {}
        log.put("t", number % 2, b"%d" % number, tags="AB"[number % 2], properties=light | more)
    return log


def served(broker: Broker, topic: str) -> list[tuple[int, int, bytes]]:
    messages = split_frames(b"".join(consume(broker, topic, 0)))
    return [(one.queue_id, one.queue_offset, one.body) for one in messages]


def expected(begin: int) -> list[tuple[int, int, bytes]]:
    return [(0, begin + number, b"%d" % (3 * number)) for number in range(20)]


def check_light(broker: Broker) -> None:
    assert served(broker, "%LMQ%a") == expected(0)
    assert served(broker, "%LMQ%b") == expected(5)


def test_light_queues_have_their_messages_and_so_have_the_topics_queues(disk, log):
    broker = start(disk.files(), log)
    broker.follow()
    check_light(broker)
    for queue_id in (0, 1):
        frames = [one.frame for one in log.of_queue("t", queue_id)]
        assert consume(broker, "t", queue_id) == frames
    assert [one.topic for one in split_frames(b"".join(consume(broker, "%LMQ%a", 0)))] == ["t"] * 20


def test_they_are_the_same_after_a_restart_and_built_from_the_log_alone(disk, log):
    broker = start(disk.files(), log)
    broker.follow()
    broker.stop()
    files = contents(disk.files())
    assert sum(name.startswith("consumequeue/%LMQ%") for name in files) > 1
    broker = start(disk.files(), log)
    check_light(broker)
    broker.stop()
    for name in files:
        disk.files().unlink(name)
    broker = start(disk.files(), log)
    broker.follow()
    check_light(broker)
    broker.stop()
    assert contents(disk.files()) == files


def test_light_queues_of_an_adopted_directory_keep_their_bytes(disk, log):
    broker = start(disk.files(), log)
    broker.follow()
    broker.stop()
    files = contents(disk.files())
    for path in contents(disk.files(), "stratamq"):
        disk.files().unlink(path)
    broker = start(disk.files(), log)
    broker.follow()
    check_light(broker)
    assert contents(disk.files()) == files
    assert not disk.files().list("stratamq/aside")


def test_an_offset_that_does_not_follow_is_left_out_and_stops_nothing(disk, log):
    log.put("t", 0, b"bad", properties=multi(500, 2))
    log.put("t", 0, b"next", properties=multi(20, 25))
    broker = start(disk.files(), log)
    broker.follow()
    assert served(broker, "%LMQ%a") == [*expected(0), (0, 20, b"next")]
    assert served(broker, "%LMQ%b") == [*expected(5), (0, 25, b"next")]
    (line,) = [one for one in broker.engine.recovery_report() if "is left out" in one]
    assert "names the queue offset 500, and 20 follows" in line


def test_a_unit_that_leads_to_a_message_of_another_place_is_damage(disk, log):
    broker = start(disk.files(), log)
    broker.follow()
    broker.stop()
    (name,) = [one for one in contents(disk.files()) if one.startswith("consumequeue/%LMQ%a")][:1]
    file = disk.files().open(name, writable=True)
    file.write(20, file.read(40, 20))
    file.close()
    broker = start(disk.files(), log)
    with pytest.raises(CorruptionError):
        pull(broker, "%LMQ%a", 0, 1, most=1)
