"""Messages for times of their own arrive then, once, whatever is killed, cut or promoted, and
however long they wait. Chance is in `test_levels.py`."""

import itertools

import pytest
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_delivery.delayed_copies import MAX_ON_THE_WAY, MAX_TAKEN
from stratamq_delivery.taken_over import TakenOver
from stratamq_delivery.timed_messages import TimedMessages

from stratamq.files.simulated import keep_nothing
from stratamq.follow.own_appends import OwnRecord
from stratamq.formats.log_state import Role
from stratamq.formats.message_status import SendStatus
from stratamq.formats.source_item import MessageSource, source_of
from stratamq.formats.topics import TIMER_TOPIC
from stratamq.store.log_pieces import read_pieces
from tests.delivery.scene import RECORDS, SEGMENT_BYTES, Broker
from tests.delivery.test_levels import adopted, pass_time
from tests.follow.chance import HOUR_MS, jump
from tests.support.logs import raw_frame

MASTER = RoleChange(Role.ASYNC_MASTER)
DAY_MS = 24 * HOUR_MS


@pytest.fixture
def broker():
    broker = Broker()
    broker.service.follow()
    return broker


def now_ms(broker: Broker) -> int:
    return broker.store.log.store_clock.wall_ms()


# --- at its time, once ---


@pytest.mark.parametrize("after_ms", [1, 999, 1_000, 61_234])
def test_a_message_arrives_in_its_millisecond_and_not_before(broker, after_ms):
    at_ms = now_ms(broker) + after_ms
    offset = broker.deliver(b"egg", at_ms, properties={"KEYS": "k"})
    pass_time(broker, after_ms - 1)
    assert broker.copies() == {}
    pass_time(broker, 1)
    (copy,) = broker.copies()[offset]
    assert (copy.topic, copy.queue_id, copy.body) == ("eggs", 0, b"egg")
    pass_time(broker, HOUR_MS)
    broker.check()


def test_a_copy_has_the_properties_that_rocketmqs_has(broker):
    at_ms = now_ms(broker) + 1_500
    offset = broker.deliver(b"egg", at_ms, properties={"KEYS": "k"})
    stored_ms = broker.timed()[offset].store_timestamp_ms
    pass_time(broker, 2_000)
    (copy,) = broker.copies()[offset]
    out_ms = (at_ms - 1) // 1_000 * 1_000
    assert {
        "KEYS": "k",
        "TIMER_DELIVER_MS": str(at_ms),
        "TIMER_OUT_MS": str(out_ms),
        "TIMER_ENQUEUE_MS": str(stored_ms),
        "TIMER_DEQUEUE_MS": str(stored_ms + 2_000),
        "REAL_TOPIC": "eggs",
        "REAL_QID": "0",
    }.items() <= copy.properties.items()
    assert source_of(copy.properties_raw).offset == offset


@pytest.mark.parametrize(("name", "value"), [("TIMER_DELAY_SEC", "2"), ("TIMER_DELAY_MS", "2000")])
def test_a_delay_counts_from_when_the_log_takes_the_message(broker, name, value):
    offset = broker.store.put(b"egg", "eggs", properties={name: value}).physical_offset
    pass_time(broker, 1_999)
    assert broker.copies() == {}
    pass_time(broker, 1)
    assert broker.copies().keys() == {offset}


def test_messages_go_in_the_order_of_their_times(broker):
    start = now_ms(broker)
    offsets = {after: broker.deliver(b"%d" % after, start + after) for after in (300, 100, 200)}
    pass_time(broker, 1_000)
    copies = {offset: frames[0].physical_offset for offset, frames in broker.copies().items()}
    in_order = [copies[offsets[after]] for after in (100, 200, 300)]
    assert in_order == sorted(in_order)


def test_a_burst_goes_out_in_steps_and_holds_up_no_level(broker):
    for number in range(3 * MAX_TAKEN):
        broker.deliver(b"%d" % number, now_ms(broker) + 1_000)
    level = broker.delay(b"level", 1)
    broker.store.clock.advance_ms(1_000)
    broker.service.follow()
    broker.service.open()
    batch = broker.service.send()
    assert len(batch.records) == MAX_TAKEN + 1
    assert level in {record.source.offset for record in batch.records}
    broker.service.settle()
    broker.check()


def test_no_more_is_taken_than_the_fold_has_seen_the_ends_of(broker):
    """Otherwise a burst fills the log faster than it is read, and what comes in is seen late."""
    at_ms = now_ms(broker) + 1_000
    for number in range(MAX_ON_THE_WAY + MAX_TAKEN):
        broker.deliver(b"%d" % number, at_ms)
    broker.service.settle()
    broker.store.clock.advance_ms(1_000)
    timed, taken = broker.service.timed, 0
    while some := timed.take(at_ms, MAX_TAKEN):
        taken += len(some)
    assert taken == MAX_ON_THE_WAY
    assert timed.due_ms() is None and timed.next_due_ms() == at_ms
    broker.service.hang_up()
    broker.service.settle()
    broker.check()
    assert len(broker.copies()) == MAX_ON_THE_WAY + MAX_TAKEN


# --- what another program stored ---


def test_what_another_program_stored_is_held_and_what_comes_later_is_delivered():
    broker, _ = adopted(lambda broker: broker.deliver(b"old", now_ms(broker) + 1_000))
    new = broker.deliver(b"new", now_ms(broker) + 1_000)
    pass_time(broker, HOUR_MS)
    assert broker.copies().keys() == {new}
    timed = broker.service.timed
    assert (len(timed), timed.held) == (1, 1)
    broker.service.save()
    broker.kill_service()
    pass_time(broker, HOUR_MS)
    assert broker.copies().keys() == {new}


@pytest.mark.parametrize(
    ("items", "after_ms"),
    [
        ({"TIMER_DELIVER_MS": 2_500, "TIMER_OUT_MS": 2_000}, 2_500),
        ({"TIMER_OUT_MS": 2_000}, 3_000),  # of a delay: up to a second later
        ({"TIMER_DELIVER_MS": 500, "TIMER_OUT_MS": 2_000}, 3_000),
        ({"TIMER_DELIVER_MS": 2_500}, 2_500),
        ({}, 0),
    ],
    ids=str,
)
def test_rocketmqs_frames_are_never_delivered_early(items, after_ms):
    broker = Broker()
    start = now_ms(broker) // 1_000 * 1_000 + 1_000
    pass_time(broker, start - now_ms(broker))
    texts = {name: str(start + value) for name, value in items.items()}
    offset = raw_timed(broker, "eggs", **texts)
    pass_time(broker, max(0, after_ms - 1))
    assert (offset in broker.copies()) is (after_ms == 0)
    pass_time(broker, 1)
    assert offset in broker.copies()


def raw_timed(broker: Broker, topic: str, queue: str = "0", **items: str) -> int:
    """As replication or a take-over brings it in: nothing has looked at it."""
    texts = {**items, "REAL_TOPIC": topic, "REAL_QID": queue}
    raw = "".join(f"{name}\x01{value}\x02" for name, value in texts.items()).encode()
    return broker.store.put_raw(raw_frame(b"raw", TIMER_TOPIC, properties=raw))[0].physical_offset


# --- what cannot be delivered ---


def test_an_outcome_is_each_messages_own(broker):
    """RocketMQ #6984: one that fails puts the whole batch back."""
    at_ms = str(now_ms(broker) + 1_000)
    topics = ("no/topic", RECORDS, TIMER_TOPIC, "")
    bad = [raw_timed(broker, topic, TIMER_DELIVER_MS=at_ms) for topic in topics]
    elsewhere = raw_timed(broker, "eggs", queue="99", TIMER_DELIVER_MS=at_ms)
    good = [broker.deliver(b"egg", int(at_ms)) for _ in range(40)]
    for _ in range(10):
        pass_time(broker, 1_000)
    assert broker.copies().keys() == {*good, elsewhere}
    assert all(len(frames) == 1 for frames in broker.copies().values())
    assert broker.records().keys() == {*bad}
    assert len(broker.service.timed) == 0


def test_a_message_whose_copy_fits_into_no_segment_is_given_up_and_holds_up_nothing(broker):
    at_ms = now_ms(broker) + 1_000
    size = SEGMENT_BYTES
    while broker.store.put(
        b"x" * size, "eggs", properties={"TIMER_DELIVER_MS": str(at_ms)}
    ).status is not SendStatus.PUT_OK:  # fmt: skip
        size -= 1
    (large,) = broker.timed()
    good = broker.deliver(b"egg", at_ms)
    pass_time(broker, 1_000)
    for _ in range(3):  # its queue, any queue, the record
        pass_time(broker, 1)
    assert broker.copies().keys() == {good} and broker.records().keys() == {large}


# --- rolled ---


def test_a_message_that_waits_for_a_year_outlives_its_segments():
    broker = Broker(roll_ms=30 * DAY_MS)
    offset = broker.deliver(b"egg", now_ms(broker) + 365 * DAY_MS)
    for _ in range(364):
        pass_time(broker, DAY_MS)
        broker.store.log.store_clock.confirm()
    assert broker.copies() == {}
    waiting = broker.timed()
    assert 365 / 30 <= len(waiting) - 1 <= 365 / 15
    newest = max(waiting)
    assert waiting[newest].properties["TIMER_ROLL_TIMES"] == str(len(waiting) - 1)
    assert now_ms(broker) - waiting[newest].store_timestamp_ms <= 30 * DAY_MS
    assert offset == min(waiting)
    pass_time(broker, DAY_MS)
    assert broker.copies().keys() == {newest}
    broker.check()


def test_a_rolled_message_waits_on_its_own_when_its_source_is_deleted():
    broker = Broker(roll_ms=1_000)
    at_ms = now_ms(broker) + 10_000
    first = broker.deliver(b"egg", at_ms)
    pass_time(broker, 1_000)
    ((source, (rolled,)),) = broker.rolled().items()
    assert source == first
    timed = broker.service.timed
    timed.forget_below(rolled.physical_offset)
    assert (len(timed), timed.missed) == (1, 0)
    followed = broker.service.followed
    fresh = TimedMessages(1_000, followed, TakenOver(followed))  # which never knew the source
    window = followed.segments.window
    for piece in read_pieces(
        window, SEGMENT_BYTES, 100, rolled.physical_offset, broker.store.end()
    ):
        fresh.apply(piece)
    assert len(fresh) == 1


def test_a_burst_is_not_rolled_at_once():
    broker = Broker(roll_ms=HOUR_MS)
    for number in range(64):
        broker.deliver(b"%d" % number, now_ms(broker) + DAY_MS)
    counts = []
    for _ in range(8):
        pass_time(broker, HOUR_MS // 8)
        rolled = [one for one in broker.timed().values() if "TIMER_ROLL_TIMES" in one.properties]
        counts.append(len(rolled))
    assert counts[2] == 0 and counts[-1] == 64
    steps = [after - before for before, after in itertools.pairwise(counts)]
    assert max(steps) < 40, "spread over the second half"


# --- restarts, cuts, promotions, clocks ---


def test_the_saved_state_is_the_one_that_the_log_gives(broker):
    for number in range(12):
        broker.deliver(b"egg", now_ms(broker) + 1_000 * (1 + number % 4))
    pass_time(broker, 2_000)
    broker.service.save()
    broker.kill_service()
    broker.service.follow()
    saved = broker.service.timed.snapshot()()
    broker.store.disk.files().unlink(broker.service.path)
    broker.kill_service()
    broker.service.follow()
    assert broker.service.timed.snapshot()() == saved
    assert len(broker.service.timed) == 6


def test_a_promoted_slave_delivers_what_its_master_has_not():
    master, slave = Broker(1), Broker(2, role="SLAVE")
    master.service.follow()
    first = master.deliver(b"first", now_ms(master) + 1_000)
    second = master.deliver(b"second", now_ms(master) + 5_000)
    pass_time(master, 1_000)
    slave.take_from(master)
    pass_time(slave, 10_000)
    assert slave.copies().keys() == {first}, "a slave delivers nothing"
    slave.set_role(MASTER)
    pass_time(slave, 10_000)
    assert slave.copies().keys() == {first, second}
    slave.check()


def test_a_message_that_the_log_lost_is_not_delivered_from_what_lies_there_now():
    """RocketMQ #10668: the timer refers to a place of the log as it was before the cut."""
    broker = Broker(flush_disk_type="ASYNC_FLUSH", flush_interval_ms=HOUR_MS)
    broker.store.put(b"kept", "eggs")
    broker.store.pass_time(HOUR_MS)
    lost = broker.deliver(b"lost", now_ms(broker) + 1_000)
    broker.service.settle()
    assert len(broker.service.timed) == 1
    broker.service.save()
    broker.store.power_loss(keep_nothing)
    broker.store.start()
    broker.restart_log()
    there = broker.store.put(b"other", "eggs").physical_offset
    assert there == lost
    pass_time(broker, HOUR_MS)
    broker.store.pass_time(HOUR_MS)
    broker.service.settle()
    assert len(broker.service.timed) == 0 and broker.copies() == {}


def test_a_copy_of_another_history_proves_nothing(broker):
    offset = broker.deliver(b"egg", now_ms(broker) + 1_000)
    other = OwnRecord("eggs", b"old", source=MessageSource(99, offset), part="timers")
    broker.service.follow()
    broker.service.open()
    broker.service.appends._waiting.append(other)
    broker.service.settle()
    pass_time(broker, 1_000)
    assert [copy.body for copy in broker.copies()[offset]] == [b"old", b"egg"]


def test_a_clock_that_goes_back_a_day_loses_nothing(broker):
    """RocketMQ #11156: the wall clock is the cursor, and what is behind it is never looked at."""
    before = broker.deliver(b"before", now_ms(broker) + 2_000)
    broker.service.settle()
    jump(broker.store, -DAY_MS)
    after = broker.deliver(b"after", now_ms(broker) + 2_000)
    broker.service.settle()
    assert broker.copies() == {}
    pass_time(broker, DAY_MS + 4_000)
    assert broker.copies().keys() == {before, after}
    broker.check()


def test_a_clock_that_jumps_ahead_delivers_nothing_early(broker):
    offset = broker.deliver(b"egg", now_ms(broker) + 2 * HOUR_MS)
    broker.service.settle()
    jump(broker.store, 10 * HOUR_MS)
    broker.service.settle()
    assert broker.copies() == {}
    pass_time(broker, 2 * HOUR_MS)
    assert broker.copies().keys() == {offset}


# --- what the log does not take ---

BAD = [
    {"TIMER_DELIVER_MS": "soon"},
    {"TIMER_DELIVER_MS": ""},
    {"TIMER_DELAY_SEC": "1.5"},
    {"TIMER_DELAY_MS": "9" * 20},
    {"TIMER_DELAY_MS": str(367 * DAY_MS)},
    {"TIMER_DELIVER_MS": str(2**63 - 1)},
    {"TIMER_DELAY_SEC": str(2**63 - 1)},
    {"TIMER_DELAY_MS": "1000", "large": "x" * 32_500},
]


@pytest.mark.parametrize("properties", BAD, ids=lambda one: str(one)[:40])
def test_a_time_that_is_none_or_too_far_is_refused_and_changes_nothing(broker, properties):
    before = broker.store.end()
    result = broker.store.put(b"egg", "eggs", properties=properties)
    large = SendStatus.PROPERTIES_SIZE_EXCEEDED
    assert result.status is (large if "large" in properties else SendStatus.MESSAGE_ILLEGAL)
    assert broker.store.end() == before
    half = broker.store.put(
        b"egg", "eggs", half=True, properties={"PGROUP": "g", "TIMER_DELAY_MS": "1"}
    )
    assert half.status is SendStatus.MESSAGE_ILLEGAL
    assert broker.store.put(b"egg", TIMER_TOPIC).status is SendStatus.MESSAGE_ILLEGAL


@pytest.mark.parametrize("name", ["TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"])
@pytest.mark.parametrize("value", ["0", "-1", str(-(2**63))])
def test_a_time_that_has_passed_is_now(broker, name, value):
    assert broker.store.put(b"egg", "eggs", properties={name: value}).topic == "eggs"


def test_the_level_counts_beside_a_time_as_in_rocketmq(broker):
    result = broker.store.put(
        b"egg", "eggs", delay_level=2, properties={"TIMER_DELAY_SEC": "1", "TIMER_DELAY_MS": "x"}
    )
    assert result.topic == "SCHEDULE_TOPIC_XXXX"
    assert "TIMER_DELAY_SEC" not in broker.store.frames()[0].properties


def test_what_was_delivered_and_is_sent_on_is_not_delayed_again(broker):
    properties = {"TIMER_DELAY_SEC": "10", "TIMER_OUT_MS": "1000"}
    assert broker.store.put(b"egg", "eggs", properties=properties).topic == "eggs"
