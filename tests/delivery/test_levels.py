"""Delayed messages of RocketMQ's levels arrive at their time, once and in order, whatever is
killed, cut or promoted."""

import random

import pytest
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_delivery.delayed_copies import MAX_TAKEN

from stratamq.files.port import EntryKind
from stratamq.files.simulated import keep_nothing
from stratamq.follow.own_appends import OwnRecord
from stratamq.formats.delay import parse_delay_levels
from stratamq.formats.json_files import parse_json
from stratamq.formats.log_state import Role
from stratamq.formats.source_item import MessageSource, source_of
from stratamq.formats.store_paths import DELAY_OFFSETS_PATH
from tests.delivery.scene import RECORDS, SEGMENT_BYTES, Broker
from tests.follow.chance import HOUR_MS, World, jump
from tests.support.logs import raw_frame
from tests.support.sampling import few

MASTER, TO_SLAVE = RoleChange(Role.ASYNC_MASTER), RoleChange(Role.SLAVE, master="m:1")


@pytest.fixture
def broker():
    broker = Broker()
    broker.service.follow()
    return broker


def pass_time(broker: Broker, milliseconds: int) -> None:
    broker.store.clock.advance_ms(milliseconds)
    broker.service.settle()


# --- at its time, once, in order ---


def test_a_message_arrives_after_the_delay_of_its_level_and_not_before(broker):
    offset = broker.delay(b"egg", 2, properties={"KEYS": "k"})
    pass_time(broker, 4_999)
    assert broker.copies() == {}
    pass_time(broker, 1)
    (copy,) = broker.copies()[offset]
    assert (copy.topic, copy.queue_id, copy.body) == ("eggs", 0, b"egg")
    assert source_of(copy.properties_raw).offset == offset
    kept = {"KEYS": "k", "DELAY": "2", "REAL_TOPIC": "eggs", "REAL_QID": "0"}
    assert kept.items() <= copy.properties.items()
    pass_time(broker, 10 * HOUR_MS)
    broker.check()


def test_the_log_must_keep_what_waits_and_nothing_below(broker):
    first, second = broker.delay(b"soon", 1), broker.delay(b"later", 3)
    timed = broker.deliver(b"at", broker.store.clock.wall_ms() + 6_000)
    service = broker.service
    service.settle()
    assert service.levels.needed() == first
    pass_time(broker, 1_000)
    assert (service.levels.needed(), service.timed.needed()) == (second, timed)
    pass_time(broker, 5_000)
    assert (service.levels.needed(), service.timed.needed()) == (second, None)
    pass_time(broker, 4_000)
    assert service.levels.needed() is None


def test_each_level_is_delivered_in_order_and_none_waits_for_another(broker):
    offsets = [broker.delay(b"%d" % number, 1 + number % 3) for number in range(90)]
    pass_time(broker, 1_000)
    assert broker.copies().keys() == {*offsets[::3]}
    pass_time(broker, 9_000)
    broker.check()
    assert broker.copies().keys() == {*offsets}


def test_a_level_above_the_table_is_its_highest():
    broker = Broker(message_delay_level="1s 2s")
    broker.levels_ms = parse_delay_levels("1s 2s")
    broker.kill_service()
    offset = broker.delay(b"egg", 9)
    pass_time(broker, 1_999)
    assert broker.copies() == {}
    pass_time(broker, 1)
    assert broker.copies().keys() == {offset}


def test_another_table_counts_for_what_is_stored_already(broker):
    offset = broker.delay(b"egg", 5)
    broker.service.settle()
    broker.service.save()
    broker.levels_ms = parse_delay_levels("1s 1s 1s 1s 2s")
    broker.kill_service()
    pass_time(broker, 2_000)
    assert broker.copies().keys() == {offset}


def test_a_burst_goes_out_in_steps(broker):
    for number in range(3 * MAX_TAKEN):
        broker.delay(b"%d" % number, 1)
    broker.store.clock.advance_ms(1_000)
    broker.service.follow()
    broker.service.open()
    assert len(broker.service.send().records) == MAX_TAKEN
    broker.service.settle()
    broker.check()


def adopted(send=lambda broker: broker.delay(b"old", 1)) -> tuple[Broker, int]:
    """A log that another program wrote: nothing of ours is beside it."""
    broker = Broker()
    old = send(broker)
    broker.store.kill()
    files = broker.store.disk.files()
    for entry in files.list("stratamq"):
        if entry.kind is EntryKind.FILE:
            files.unlink(f"stratamq/{entry.name}")
    broker.restart_log()
    return broker, old


def test_what_another_program_stored_is_held_and_what_comes_later_is_delivered():
    broker, _ = adopted()
    new = broker.delay(b"new", 1)
    pass_time(broker, HOUR_MS)
    assert broker.copies().keys() == {new}
    levels = broker.service.levels
    assert (len(levels), levels.held, levels.positions()) == (1, 1, {})
    broker.service.save()
    broker.kill_service()
    pass_time(broker, HOUR_MS)
    assert broker.copies().keys() == {new}
    broker.delay(b"another", 2)
    broker.service.follow()
    assert broker.service.levels.positions() == {2: 0}


# --- what cannot be delivered ---


def test_a_topic_that_cannot_be_written_is_recorded_and_holds_up_nothing(broker):
    bad = [raw_delayed(broker, topic) for topic in ("no/topic", RECORDS, "")]
    good = [broker.delay(b"egg", 1) for _ in range(40)]
    for _ in range(10):
        pass_time(broker, 1_000)
    assert broker.copies().keys() == {*good}
    assert broker.records().keys() == {*bad}
    for offset in bad:
        (record,) = broker.records()[offset]
        assert record.body.startswith(b"given up: ")
    broker.check_order()
    assert len(broker.service.levels) == 0


def test_a_queue_that_its_topic_has_no_longer_is_replaced_by_another(broker):
    offset = raw_delayed(broker, "eggs", queue="99")
    later = broker.delay(b"later", 1)
    for _ in range(3):
        pass_time(broker, 1_000)
    assert broker.copies().keys() == {offset, later}
    assert broker.records() == {}


def raw_delayed(broker: Broker, topic: str, queue: str = "0") -> int:
    """As replication or a take-over brings it in: nothing has looked at its target."""
    items = (f"DELAY\x011\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x01{queue}\x02").encode()
    raw = raw_frame(b"bad", "SCHEDULE_TOPIC_XXXX", properties=items)
    return broker.store.put_raw(raw)[0].physical_offset


# --- restarts, cuts, promotions ---


def test_a_restart_knows_by_the_copies_what_was_delivered(broker):
    offsets = [broker.delay(b"egg", 1) for _ in range(3)]
    pass_time(broker, 1_000)
    for saved in (False, True):
        if saved:
            broker.service.save()
        broker.kill_service()
        pass_time(broker, HOUR_MS)
        assert [len(broker.copies()[offset]) for offset in offsets] == [1, 1, 1]


def test_the_saved_state_is_the_one_that_the_log_gives(broker):
    for number in range(12):
        broker.delay(b"egg", 1 + number % 4)
    pass_time(broker, 5_000)
    broker.service.save()
    broker.kill_service()
    broker.service.follow()
    saved = broker.service.levels.snapshot()()
    broker.store.disk.files().unlink(broker.service.path)
    broker.kill_service()
    broker.service.follow()
    assert broker.service.levels.snapshot()() == saved
    assert broker.service.levels.positions() == {1: 3, 2: 3, 3: 0, 4: 0}


def test_a_promoted_slave_goes_on_where_the_master_was():
    master, slave = Broker(1), Broker(2, role="SLAVE")
    master.service.follow()
    first, second = master.delay(b"first", 1), master.delay(b"second", 2)
    pass_time(master, 1_000)
    slave.take_from(master)
    pass_time(slave, 10_000)
    assert slave.copies().keys() == {first}, "a slave delivers nothing"
    slave.set_role(MASTER)
    pass_time(slave, 10_000)
    assert slave.copies().keys() == {first, second}
    slave.check()


def test_a_copy_that_a_power_loss_took_away_is_made_again():
    broker = Broker(flush_disk_type="ASYNC_FLUSH", flush_interval_ms=HOUR_MS)
    broker.service.follow()
    offset = broker.delay(b"egg", 1)
    broker.store.pass_time(HOUR_MS)
    broker.service.settle()
    assert len(broker.copies()[offset]) == 1
    broker.service.save()
    broker.restart_log(random.Random(5))
    broker.store.power_loss(keep_nothing)
    broker.restart_log()
    broker.service.settle()
    broker.check()
    assert broker.copies().keys() == {offset}


def test_a_copy_of_another_history_proves_nothing(broker):
    """Example: a consumer read it before the log lost it, and a service sends it on."""
    offset = broker.delay(b"egg", 1)
    other = OwnRecord("eggs", b"old", source=MessageSource(99, offset), part="levels")
    broker.service.follow()
    broker.service.open()
    broker.service.appends._waiting.append(other)
    broker.service.settle()
    pass_time(broker, 1_000)
    assert [copy.body for copy in broker.copies()[offset]] == [b"old", b"egg"]


def test_what_was_delivered_long_ago_is_forgotten_and_a_deep_cut_reads_the_log_again(monkeypatch):
    monkeypatch.setattr("stratamq_delivery.level_queue.FORGET_AT_ONCE", 4)
    broker = Broker(undo_bytes=100)
    broker.service.follow()
    for _ in range(4):
        for _ in range(5):
            broker.delay(b"egg", 1)
        pass_time(broker, 1_000)
    levels = broker.service.levels
    assert len(levels.queues[0].snapshot()()["source"]) < 5 * 11, "most are forgotten"
    assert levels.positions() == {1: 20}
    waiting = broker.delay(b"last", 1)
    broker.service.follow()
    assert levels.cut(waiting) == waiting and levels.positions() == {1: 20}
    assert levels.cut(SEGMENT_BYTES // 8) == 0 and levels.positions() == {}


# --- clocks ---


def test_a_clock_that_jumps_ahead_delivers_nothing_early(broker):
    offset = broker.delay(b"egg", 18)
    broker.service.settle()
    jump(broker.store, 10 * HOUR_MS)
    broker.service.settle()
    assert broker.copies() == {}
    pass_time(broker, 2 * HOUR_MS)
    assert broker.copies().keys() == {offset}


# --- RocketMQ's file ---


def test_rocketmqs_file_says_what_is_delivered_and_no_more_than_is_flushed():
    broker = Broker(flush_disk_type="ASYNC_FLUSH", flush_interval_ms=HOUR_MS)
    broker.service.follow()
    for _ in range(3):
        broker.delay(b"egg", 1)
    broker.delay(b"late", 18)
    broker.store.pass_time(HOUR_MS)
    broker.service.settle()
    service = broker.service
    offsets = service.rocketmq_files()
    service.followed.flushed = service.followed.applied - 1
    offsets.tick()
    service.lanes.run_until_idle()
    files = broker.store.disk.files()
    assert files.entry(DELAY_OFFSETS_PATH) is None
    service.followed.flushed = service.followed.applied
    offsets.tick()
    service.lanes.run_until_idle()
    written = parse_json(broker.store.disk.contents(DELAY_OFFSETS_PATH))
    assert written == {"offsetTable": {"1": 3, "18": 0}}


# --- chance ---


class ShortRolls(Broker):
    """Messages that wait for a time of their own are rolled several times."""

    def __init__(self, seed: int = 0, **settings) -> None:
        super().__init__(seed, roll_ms=200, **settings)


class DelayedWorld(World):
    broker_type = ShortRolls

    def act(self) -> None:
        if self.chance.random() < 0.1:  # a while in which nothing goes wrong: much is rolled
            pass_time(self.master, self.chance.randrange(1, 1_500))
        super().act()

    def ask(self) -> None:
        body, level = b"%d" % self.chance.getrandbits(32), self.chance.choice((0, 0, 1, 1, 2))
        if level:
            self.master.delay(body, level)
        else:
            now_ms = self.master.store.log.store_clock.wall_ms()
            self.master.deliver(body, now_ms + self.chance.randrange(1, 12_000))

    def last_due_ms(self) -> int:
        master, timed = self.master, self.master.timed().values()
        times = [*map(master.due_ms, master.delayed().values())]
        times += [int(one.properties["TIMER_DELIVER_MS"]) for one in timed]
        return max(times, default=0)


@pytest.mark.parametrize("seed", few(range(400), 40))
def test_each_message_is_delivered_once_and_in_order_whatever_happens(seed):
    world = DelayedWorld(seed)
    for _ in range(120):
        world.act()
    world.rest()
    world.master.check(put_back=world.put_back)
