"""What one consumer's pull has verified the next one's is given unverified: for a minute, until the
log may have changed it, and as long as it is read from memory."""

import numpy as np
import pytest
from stratamq_dispatcher.cold_reads import ColdReads, LogIdentity
from stratamq_dispatcher.frame_reads import DamagedFrameError
from stratamq_dispatcher.pull import PullAnswer, PullLimits, PullQuery, TagFilter, plan_pull
from stratamq_dispatcher.verified_reads import MAX_QUEUES, TRUSTED_S, VerifiedReads

from stratamq.files.simulated import SimulatedClock
from stratamq.formats.file_names import offset_name
from tests.dispatcher.followed_log import Broker, Stored, WrittenLog, start
from tests.dispatcher.queue_checks import frames_of, pull
from tests.support.disks import simulated_place

BODY_AT = 90


@pytest.fixture
def broker() -> Broker:
    """Eight messages of one queue, dispatched."""
    files = simulated_place().files
    log = WrittenLog(files)
    for number in range(8):
        log.put("t", body=bytes(20), tags="ab"[number % 2])
    broker = start(files, log)
    broker.follow()
    return broker


def damage(broker: Broker, number: int) -> None:
    """Change one byte of a message's body where it lies."""
    message: Stored = broker.log.messages[number]
    segment = message.offset - message.offset % broker.log.segment_bytes
    file = broker.engine_files.open(f"commitlog/{offset_name(segment)}", writable=True)
    file.write(message.offset - segment + BODY_AT, b"#")
    file.flush()
    file.close()


def read(broker: Broker, first: int, count: int, topic: str = "t", **more: object) -> bool:
    """Whether the first of these messages is given."""
    try:
        return pull(broker, topic, 0, first, count, **more).count > 0
    except DamagedFrameError:
        return False


def units(queue_offsets: np.ndarray, log_offset: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Where messages of 100 bytes lie whose queue begins at `log_offset`."""
    return queue_offsets, log_offset + 100 * queue_offsets


def test_the_next_consumer_is_given_what_was_verified_without_another_check(broker):
    assert read(broker, 0, 4)
    damage(broker, 2)
    assert pull(broker, "t", 0, 1, 3).count == 3


def test_what_no_pull_has_verified_is_verified(broker):
    assert read(broker, 0, 4)
    damage(broker, 4)
    assert pull(broker, "t", 0, 2, 6).count == 2
    assert not read(broker, 4, 2)


def test_what_is_verified_again_begins_where_the_queue_was_not_read(broker):
    """A pull that goes back behind the range finds what is damaged in front of it."""
    assert read(broker, 4, 4)
    damage(broker, 2)
    assert pull(broker, "t", 0, 0, 8).count == 2
    assert read(broker, 5, 2)


@pytest.mark.parametrize("extended", [False, True])
def test_a_minute_later_damage_is_found_however_the_range_grew(broker, extended):
    assert read(broker, 0, 4)
    damage(broker, 0)
    broker.clock.advance_ms(TRUSTED_S * 1000 - 1)
    assert read(broker, 0, 1)
    if extended:
        assert read(broker, 4, 4)
    broker.clock.advance_ms(1)
    assert not read(broker, 0, 1)


def test_a_log_that_answers_anew_may_have_other_bytes(broker):
    assert read(broker, 0, 8)
    damage(broker, 3)
    broker.connect()
    assert not read(broker, 3, 1)


def test_after_a_cut_what_came_in_its_place_is_verified(broker):
    assert read(broker, 0, 8)
    broker.log.cut(broker.log.messages[5].offset)
    broker.connect()
    for _ in range(3):
        broker.log.put("t", body=bytes(20), tags="a")
    broker.follow()
    damage(broker, 6)
    assert pull(broker, "t", 0, 5, 3).count == 1
    assert not read(broker, 6, 1)


def test_what_comes_from_the_disk_is_verified_each_time(broker):
    assert read(broker, 0, 8)
    damage(broker, 0)
    engine = broker.engine
    plan = plan_pull(
        engine.queues.get("t", 0),
        PullQuery("t", 0, 0, 8, 50_000),
        engine.queues.open_files,
        0,
        engine.followed.confirmed,
        PullLimits(hot_bytes=0),
        engine.followed.segment_bytes,
    )
    assert not isinstance(plan, PullAnswer)
    view = LogIdentity(engine.followed.segment_bytes, engine.history, 0)
    with pytest.raises(DamagedFrameError):
        ColdReads(broker.engine_files).pull(plan, view)


def test_a_filtered_pull_vouches_for_no_message_that_it_did_not_read(broker):
    assert read(broker, 0, 8, tag_filter=TagFilter(("a",)))
    damage(broker, 1)
    assert pull(broker, "t", 0, 0, 8).count == 1


def test_a_light_queue_is_verified_each_time():
    """Its places are those of other queues, which frames are not compared with."""
    files = simulated_place().files
    log = WrittenLog(files)
    light = {"INNER_MULTI_DISPATCH": "%LMQ%light", "INNER_MULTI_QUEUE_OFFSET": "0"}
    log.put("t", body=bytes(20), properties=light)
    broker = start(files, log)
    broker.follow()
    assert read(broker, 0, 1, topic="%LMQ%light")
    damage(broker, 0)
    assert not read(broker, 0, 1, topic="%LMQ%light")


def test_ranges_join_and_of_two_apart_the_one_further_on_is_kept():
    verified = VerifiedReads(SimulatedClock())
    verified.add("q", *units(np.arange(10, 20)))
    verified.add("q", *units(np.arange(20, 30)))
    verified.add("q", *units(np.arange(0, 5)))
    assert verified.count("q", *units(np.arange(0, 5))) == 0
    assert verified.count("q", *units(np.arange(12, 40))) == 18
    assert verified.count("q", *units(np.array([12, 15, 29, 30, 31]))) == 3
    verified.add("q", *units(np.arange(40, 50)))
    assert verified.count("q", *units(np.arange(12, 40))) == 0
    assert verified.count("q", *units(np.arange(40, 50))) == 10


def test_memory_is_bounded_and_what_was_read_last_is_kept():
    verified = VerifiedReads(SimulatedClock())
    for number in range(MAX_QUEUES + 1):
        verified.add(f"{number}", *units(np.arange(3)))
        verified.add("0", *units(np.arange(3)))
    assert verified.count("0", *units(np.arange(3))) == 3
    assert verified.count("1", *units(np.arange(3))) == 0
    assert verified.count("2", *units(np.arange(3))) == 3


def test_the_right_bytes_come_with_and_without_a_range(broker):
    expected = [message.frame for message in broker.log.messages]
    for first in (3, 0, 5, 0):
        assert frames_of(pull(broker, "t", 0, first, 8)) == expected[first:]


@pytest.mark.parametrize("read_before", [False, True])
def test_the_messages_of_a_topic_that_was_made_again_are_verified(read_before):
    files = simulated_place().files
    log = WrittenLog(files)
    for _ in range(8):
        log.put("t", body=bytes(20))
    broker = start(files, log)
    broker.follow()
    assert not read_before or read(broker, 0, 8)
    for number in range(8):
        log.put("t", body=bytes(20), queue_offset=number)
    broker.follow()
    damage(broker, 10)
    assert pull(broker, "t", 0, 0, 8).count == 2


def test_two_lives_of_a_queue_are_not_joined():
    verified = VerifiedReads(SimulatedClock())
    verified.add("q", *units(np.arange(8)))
    verified.add("q", *units(np.arange(2, 4), 10_000))
    assert verified.count("q", *units(np.arange(2), 10_000)) == 0
    assert verified.count("q", *units(np.arange(2, 8), 10_000)) == 2
