"""A slave stores its master's bytes at their own offsets: spec 3.6 and 11."""

import random

import pytest

from stratamq.errors import InvalidRequestError, NotWritableError, UnavailableError
from stratamq.files.simulated import keep_nothing
from stratamq.formats.frame import Blank, encode_blank
from stratamq.formats.log_state import Role
from stratamq.formats.message_status import SendStatus
from tests.support.listeners import Listener
from tests.support.logs import (
    Store,
    batch,
    body_for,
    message,
    queue_table,
    raw_frame,
    segment_path,
)

SEGMENT = 2048


def master(count: int = 30) -> Store:
    store = Store(SEGMENT, seed=9)
    store.start()
    for number in range(count):
        store.put(b"x" * (number * 37 % 400), topic=f"t{number % 3}", queue_id=number % 2)
        if number % 7 == 0:
            store.put_batch(batch([b"b"] * 3, topic="batched"))
    store.put_raw(raw_frame(b"p", sys_flag=4), raw_frame(b"r", sys_flag=12))
    return store


def slave(**settings) -> Store:
    store = Store(SEGMENT, role="SLAVE", **settings)
    store.start()
    assert store.log.role is Role.SLAVE
    return store


def pieces(store: Store, start: int = 0, chance: random.Random | None = None):
    """The master's log from `start`, in ranges of whole members that never cross a segment."""
    members = [(at, raw, value) for at, raw, value in store.members() if at >= start]
    segments = store.segments()
    while members:
        base = members[0][0] // SEGMENT * SEGMENT
        inside = [m for m in members if m[0] // SEGMENT * SEGMENT == base]
        count = len(inside) if chance is None else chance.randrange(1, len(inside) + 1)
        at, raw, value = inside[count - 1]
        end = at + (value.length if isinstance(value, Blank) else len(raw))
        yield members[0][0], segments[base][members[0][0] - base : end - base]
        members = members[count:]


def copied(original: Store, **settings) -> Store:
    copy = slave(**settings)
    for offset, data in pieces(original):
        assert copy.append_data(offset, data) is None
    return copy


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_the_slaves_log_is_the_masters_byte_for_byte(seed):
    original = master()
    copy = slave()
    chance = random.Random(seed) if seed is not None else None
    for offset, data in pieces(original, chance=chance):
        assert copy.append_data(offset, data) is None
    assert copy.end() == original.end()
    for base, raw in copy.segments().items():
        assert raw == original.segments().get(base, bytes(SEGMENT))
    assert copy.queues() == original.queues() == queue_table(original.frames())
    copy.power_loss(keep_nothing)
    copy.start()
    assert (copy.end(), copy.queues()) == (original.end(), original.queues())


def test_the_whole_rest_of_a_segment_can_come_with_its_blank():
    original = master()
    copy = slave()
    for base in range(0, original.end(), SEGMENT):
        assert copy.append_data(base, original.segments()[base][: original.end() - base]) is None
    assert copy.frame_bytes() == original.frame_bytes()


def test_an_empty_slave_begins_where_its_master_begins_to_send():
    original = master()
    copy = slave()
    first = 2 * SEGMENT
    for offset, data in pieces(original, first):
        assert copy.append_data(offset, data) is None
    assert copy.log.status().minimum_offset == first
    assert copy.end() == original.end()
    assert min(copy.segments()) == first
    listener = Listener(copy)
    assert listener.opened.cut_to == first
    listener.listen()
    assert listener.position == copy.end()
    copy.restart()
    assert (copy.log.status().minimum_offset, copy.end()) == (first, original.end())


def test_followers_of_a_slave_hear_what_was_appended():
    original = master()
    copy = slave()
    listener = Listener(copy)
    for offset, data in pieces(original):
        copy.append_data(offset, data)
        listener.listen()
    assert listener.position == copy.end()
    heard = [
        (topic, queue_id, first + number)
        for event in listener.events
        for topic, queue_id, first, count in event.runs or []
        for number in range(count)
    ]
    assert heard == [
        (frame.topic, frame.queue_id, frame.queue_offset) for frame in original.frames()
    ]


def test_data_that_does_not_continue_where_the_log_ends_is_refused():
    original = master()
    copy = slave()
    (first, data), (second, more), *_ = pieces(original)
    assert copy.append_data(first, data) is None
    for offset in (first, second - 1, second + 1, second + SEGMENT):
        error = copy.append_data(offset, more)
        assert isinstance(error, InvalidRequestError)
        assert error.fields["appended"] == second
    assert copy.append_data(second, more) is None


def bad_pieces(original: Store) -> dict[str, bytes]:
    good = original.frame_bytes()[0]
    flipped = bytearray(good)
    flipped[4] ^= 1
    elsewhere = raw_frame(b"x", physical_offset=8)
    room = SEGMENT - len(good)
    return {
        "a part of a frame": good[:-1],
        "a frame and a part": good + original.frame_bytes()[1][:50],
        "garbage": b"\1" * 200,
        "zeros": bytes(200),
        "a broken magic": bytes(flipped),
        "a frame of another place": elsewhere,
        "a blank that is too short": good + encode_blank(room - 1).ljust(room - 1, b"\0"),
        "a blank in the middle": encode_blank(100).ljust(100, b"\0") + good,
        "more than the segment": good + bytes(SEGMENT),
        "a frame that leaves no room for a blank": raw_frame(body_for(SEGMENT - 3)),
        "a delay that is no number": raw_frame(
            b"x", topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x01x"
        ),
    }


@pytest.mark.parametrize("name", bad_pieces(master(1)))
def test_bad_data_is_refused_whole_and_the_next_is_taken(name):
    original = master(2)
    copy = slave()
    before = copy.queues()
    error = copy.append_data(0, bad_pieces(original)[name])
    assert error is not None
    assert (copy.end(), copy.queues()) == (0, before)
    (offset, data), *_ = pieces(original)
    assert copy.append_data(offset, data) is None
    assert copy.frame_bytes()[0] == original.frame_bytes()[0]


def test_no_data_is_fine_and_changes_nothing():
    copy = slave()
    assert copy.append_data(0, b"") is None
    assert copy.end() == 0


def test_a_master_takes_no_data_and_a_slave_no_messages():
    original = master(2)
    (offset, data), *_ = pieces(original)
    assert isinstance(original.append_data(original.end(), data), NotWritableError)
    copy = slave()
    assert copy.put(b"x").status is SendStatus.SERVICE_NOT_AVAILABLE
    answers: list = []
    copy.log.append_data(copy.log.generation + 1, offset, data, answers.append)
    assert isinstance(answers[0], NotWritableError)


def test_data_is_acknowledged_when_it_is_as_durable_as_the_setting_demands():
    original = master(2)
    (offset, data), *_ = pieces(original)
    copy = slave()
    answers: list = []
    copy.log.append_data(copy.log.generation, offset, data, answers.append)
    copy.step()
    copy.scheduler.run_until_idle()  # The segment is allocated.
    copy.step()
    assert answers == []
    copy.settle()
    assert answers == [None]
    lazy = slave(flush_disk_type="ASYNC_FLUSH", flush_interval_ms=3_600_000)
    assert lazy.append_data(offset, data) is None


def test_data_whose_flush_takes_too_long_is_not_acknowledged():
    """The master counts on what this slave's own flush setting promises."""
    original = master(2)
    (offset, data), *_ = pieces(original)
    copy = slave(sync_flush_timeout_ms=1_000)
    answers: list = []
    copy.log.append_data(copy.log.generation, offset, data, answers.append)
    copy.step()
    copy.scheduler.run_until_idle()
    copy.step()
    copy.clock.advance_ms(1_000)
    copy.log.tick()
    assert isinstance(answers[0], UnavailableError)
    copy.settle()
    assert len(answers) == 1
    assert copy.log.offsets.flushed == copy.end() > 0


def test_data_whose_flush_failed_is_not_acknowledged():
    original = master(3)
    copy = slave()
    (first, data), *_ = pieces(original, chance=random.Random(2))
    assert copy.append_data(first, data) is None
    copy.disk.fail("flush", segment_path(0))
    end = copy.end()
    (offset, more), *_ = pieces(original, end)
    assert isinstance(copy.append_data(offset, more), UnavailableError)
    assert isinstance(copy.append_data(copy.end(), more), UnavailableError)


def test_a_closing_slave_takes_no_more():
    original = master(2)
    (offset, data), *_ = pieces(original)
    copy = slave()
    copy.log.begin_close()
    assert isinstance(copy.append_data(offset, data), UnavailableError)


def test_a_slave_that_becomes_a_master_continues_with_dense_queues():
    original = master()
    copy = copied(original)
    copy.stop()
    copy.start(role="ASYNC_MASTER")
    queues = copy.queues()
    for (topic, queue_id), following in queues.items():
        if "SYS" not in topic:
            result = copy.put_all(message(b"x", topic, queue_id))[0]
            assert (result.status, result.queue_offset) == (SendStatus.PUT_OK, following)


def test_no_space_for_the_next_segment_is_reported_and_the_same_data_is_taken_later():
    original = master()
    copy = slave()
    copy.disk.fail("create.allocate", "commitlog/*", error=28)
    (offset, data), *_ = pieces(original)
    assert copy.append_data(offset, data) is not None
    assert copy.end() == 0
    assert copy.append_data(offset, data) is None
