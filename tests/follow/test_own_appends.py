"""A service that writes from inside the broker delivers each message once, whatever is killed,
cut, promoted or held up: the egg timer of the documentation on real logs."""

import random

import pytest
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_commitlog.write.topic_table import TopicConfig

from stratamq.errors import (
    BusyError,
    InvalidRequestError,
    NotFoundError,
    NotWritableError,
    StrataError,
)
from stratamq.files.simulated import SimulatedClock, keep_nothing
from stratamq.follow.fold import FoldPlace
from stratamq.follow.own_appends import MAX_BATCHES, AppendLimits, OwnAppends, OwnRecord, is_final
from stratamq.formats.log_state import Role
from stratamq.formats.message_status import SendStatus
from stratamq.formats.source_item import MessageSource, source_of
from tests.follow.chance import HOUR_MS, World, jump
from tests.follow.egg_scene import RECORDS, REQUESTS, SHAPE, TO, Broker
from tests.support.logs import message
from tests.support.sampling import few

MASTER, TO_SLAVE = RoleChange(Role.ASYNC_MASTER), RoleChange(Role.SLAVE, master="m:1")


@pytest.fixture
def broker():
    broker = Broker()
    broker.service.follow()
    return broker


def now(broker: Broker) -> int:
    return broker.store.clock.wall_ms()


def pass_time(broker: Broker, milliseconds: int) -> None:
    broker.store.clock.advance_ms(milliseconds)
    broker.service.settle()


def copy_alone(broker: Broker) -> int:
    """A message whose copy is in the log, and whose record is not. Its offset."""
    offset = broker.ask(b"egg", now(broker))
    service = broker.service
    service.follow()
    service.open()
    assert service.send().records[0].topic == "eggs"
    service.wire.read()
    broker.store.settle()
    assert (len(broker.copies()[offset]), broker.records()) == (1, {})
    return offset


# --- at its time, once ---


def test_a_message_is_forwarded_at_its_time_and_not_before(broker):
    offset = broker.ask(b"egg", now(broker) + 5_000)
    broker.service.settle()
    assert broker.copies() == {}
    pass_time(broker, 4_999)
    assert broker.copies() == {}
    pass_time(broker, 1)
    (copy,) = broker.copies()[offset]
    assert (copy.topic, copy.body, copy.properties["KEYS"]) == ("eggs", b"egg", "k")
    source = MessageSource(broker.store.log.generation, offset)
    assert source_of(copy.properties_raw) == source
    (record,) = broker.records()[offset]
    assert record.body == b"delivered at %d" % copy.physical_offset
    pass_time(broker, 10 * HOUR_MS)
    broker.check()


def test_copies_keep_the_order_of_their_times_and_come_in_batches(broker):
    start = now(broker)
    for number in range(100):
        broker.ask(b"%d" % number, start + 1_000 - number % 7)
    pass_time(broker, 2_000)
    broker.check()
    times = [
        int(broker.requests()[source_of(one.properties_raw).offset].properties["RING_AT"])
        for one in broker.store.frames()
        if one.topic == "eggs"
    ]
    assert len(times) == 100 and times == sorted(times)
    passes = broker.store.log.appender.counters.passes
    assert passes < 100 + 30  # one for each request, and few for all copies


def test_a_restart_knows_by_the_copy_alone_that_it_was_delivered(broker):
    """Killed exactly between the copy and the record about it."""
    offset = copy_alone(broker)
    broker.kill_service()
    broker.service.settle()
    assert len(broker.copies()[offset]) == 1
    broker.check()


def test_a_promoted_slave_knows_it_too():
    master, slave = Broker(1), Broker(2, role="SLAVE")
    master.service.follow()
    offset = copy_alone(master)
    slave.take_from(master)
    slave.service.follow()
    slave.set_role(MASTER)
    slave.service.settle()
    assert slave.requests().keys() == {offset}
    slave.check()


def test_what_a_demoted_masters_service_sends_late_is_refused():
    """Also by a log that was promoted again meanwhile: the connection has seen nothing of it."""
    master = Broker()
    offset = master.ask(b"egg", now(master))
    service = master.service
    service.follow()
    service.open()
    assert service.send() is not None  # on the wire, not read yet
    master.set_role(TO_SLAVE)
    master.set_role(MASTER)
    end = master.store.end()
    service.wire.read()
    master.store.settle()
    service.receive()
    assert master.store.end() == end and service.wire is None
    service.settle()
    assert len(master.copies()[offset]) == 1
    master.check()


def test_a_service_whose_log_is_a_slaves_now_decides_nothing(broker):
    """The generation is the same, and the stream learns of it with the next batch only."""
    broker.service.settle()
    assert broker.service.appends.is_active
    broker.set_role(TO_SLAVE)
    broker.service.follow()
    broker.service.follow()
    assert not broker.service.appends.is_active
    with pytest.raises(NotWritableError):
        broker.service.appends.require_active("egg timer")


def test_a_stream_is_over_once_the_state_is_in_another_generation(broker):
    offset = broker.ask(b"egg", now(broker))
    service = broker.service
    service.follow()
    service.open()
    broker.set_role(TO_SLAVE)
    broker.set_role(MASTER)
    service.follow()
    assert service.appends.is_over
    assert service.send() is None
    service.receive()
    service.settle()
    assert len(broker.copies()[offset]) == 1
    broker.check()


def test_what_an_earlier_start_has_sent_and_the_log_has_not_read_is_refused(broker):
    offset = broker.ask(b"egg", now(broker))
    broker.service.follow()
    broker.service.open()
    broker.service.send()
    broker.kill_service()
    broker.service.settle()
    (late,) = broker.late
    late.read()
    broker.store.settle()
    assert isinstance(late.answers[0].error, NotWritableError)
    broker.service.settle()
    assert len(broker.copies()[offset]) == 1


def test_nothing_is_decided_before_the_state_has_what_earlier_streams_stored(broker):
    """The log reads the old stream's batch just before the new one opens."""
    offset = broker.ask(b"egg", now(broker))
    broker.service.follow()
    broker.service.open()
    broker.service.send()
    broker.kill_service()
    broker.service.follow()
    broker.late[0].read()
    broker.store.settle()
    broker.service.open()
    assert broker.service.send() is None
    assert not broker.service.appends.is_active
    broker.service.settle()
    assert len(broker.copies()[offset]) == 1
    broker.check()


def test_a_copy_that_a_power_loss_took_away_is_made_again():
    broker = Broker(flush_disk_type="ASYNC_FLUSH", flush_interval_ms=HOUR_MS)
    broker.service.follow()
    offset = broker.ask(b"egg", now(broker) + 10_000)
    broker.store.pass_time(HOUR_MS)
    broker.service.settle()
    assert len(broker.copies()[offset]) == 1
    broker.service.save()
    broker.restart_log(random.Random(5))
    broker.store.power_loss(keep_nothing)
    broker.restart_log()
    broker.service.settle()
    assert offset in broker.requests()
    broker.check()


def test_a_copy_that_was_cut_from_a_slaves_log_is_made_again():
    """The service's snapshot has the copy; the new master's log does not."""
    master, slave = Broker(1), Broker(2, role="SLAVE")
    master.service.follow()
    offset = master.ask(b"egg", now(master))
    slave.take_from(master)
    master.service.settle()
    master.service.save()
    slave.set_role(MASTER)
    slave.service.settle()
    master.set_role(TO_SLAVE)
    master.take_from(slave)
    master.service.follow()
    slave.set_role(TO_SLAVE)
    master.set_role(RoleChange(Role.ASYNC_MASTER, term=5))
    master.service.settle()
    assert len(master.copies()[offset]) == 1
    master.check()


def test_a_copy_of_another_history_proves_nothing(broker):
    """Example: a consumer read it before the log lost it, and a service sends it on."""
    offset = broker.ask(b"egg", now(broker) + 1_000)
    other = OwnRecord("eggs", b"old", source=MessageSource(99, offset))
    broker.service.follow()
    broker.service.open()
    broker.service.appends._waiting.append(other)
    broker.service.settle()
    pass_time(broker, 1_000)
    assert [copy.body for copy in broker.copies()[offset]] == [b"old", b"egg"]


# --- clocks ---


def test_a_clock_that_jumps_ahead_delivers_nothing_early(broker):
    offset = broker.ask(b"egg", now(broker) + 2 * HOUR_MS)
    broker.service.settle()
    jump(broker.store, 10 * HOUR_MS)
    broker.service.settle()
    assert broker.copies() == {}
    pass_time(broker, 2 * HOUR_MS)
    assert len(broker.copies()[offset]) == 1


def test_a_jump_that_an_operator_confirms_counts(broker):
    offset = broker.ask(b"egg", now(broker) + 2 * HOUR_MS)
    broker.service.settle()
    jump(broker.store, 10 * HOUR_MS)
    broker.store.log.store_clock.confirm()
    broker.service.settle()
    assert len(broker.copies()[offset]) == 1


def test_a_clock_that_is_put_back_delivers_late_and_once(broker):
    first = broker.ask(b"first", now(broker))
    second = broker.ask(b"second", now(broker) + 1_000)
    broker.service.settle()
    jump(broker.store, -HOUR_MS)
    broker.service.settle()
    assert (len(broker.copies()[first]), second in broker.copies()) == (1, False)
    pass_time(broker, HOUR_MS + 1_000)
    broker.check()


# --- a log that takes nothing ---


@pytest.mark.parametrize("what", ["full", "held", "changing"])
def test_a_log_that_takes_nothing_for_a_while_loses_nothing(broker, what):
    gate, states = broker.store.log.gate, broker.store.log.states
    offsets = [broker.ask(b"egg", now(broker)) for _ in range(3)]
    if what == "full":
        gate.disk_full = True
    else:
        states.swap(**{what: "for a while"})
    for _ in range(3):
        broker.service.settle()
        broker.service.hang_up()
    assert broker.copies() == {}
    gate.disk_full = False
    states.swap(held="", changing="")
    pass_time(broker, 1)
    assert broker.copies().keys() == {*offsets}
    broker.check()


def test_only_what_the_log_refuses_whatever_comes_is_given_up():
    assert is_final(InvalidRequestError("bad")) and is_final(NotFoundError("no topic"))
    assert is_final(NotWritableError("read only", "permission"))
    for reason in ("role", "held", "lease", "fenced", "flush_failed", "write_failed"):
        assert not is_final(NotWritableError("for now", reason))
    assert not is_final(BusyError("full"))


def test_a_target_that_cannot_be_written_is_recorded_and_holds_up_nothing(broker):
    """One of 40 in a batch: it is found by halves."""
    bad = {broker.ask(b"x", now(broker), target): target for target in ("no/topic", RECORDS, "")}
    good = [broker.ask(b"egg", now(broker)) for _ in range(40)]
    for _ in range(40):
        broker.service.settle()
    assert broker.copies().keys() == {*good}
    assert broker.records().keys() == {*good, *bad}
    for offset in bad:
        (record,) = broker.records()[offset]
        assert record.body.startswith(b"refused: ")
    broker.kill_service()
    broker.service.settle()
    assert broker.copies().keys() == {*good}


@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_topic_that_takes_nothing_ends_few_streams_however_much_is_due_for_it(broker, is_mixed):
    """All that the service appends waits when a stream ends."""
    broker.store.log.topics.put(TopicConfig("closed", permission=4))
    bad, good = [], []
    for _ in range(200):
        bad.append(broker.ask(b"x", now(broker), "closed"))
        good += [broker.ask(b"egg", now(broker))] if is_mixed else []
    opening, streams = broker.service.appends.opening, []
    broker.service.appends.opening = lambda: streams.append(1) or opening()
    for _ in range(10):
        broker.service.settle()
    assert broker.copies().keys() == {*good}
    assert broker.records().keys() == {*good, *bad}
    assert len(streams) < 40
    broker.store.log.topics.put(TopicConfig("closed", permission=6))
    later = broker.ask(b"x", now(broker), "closed")
    broker.service.settle()
    assert later in broker.copies()


def test_a_refusal_is_heard_behind_an_earlier_batch_that_failed_with_it():
    """The log ends the stream at once, also for what still waits in it."""
    author = Author()
    appends = OwnAppends(
        "egg_timer", author, FoldPlace(serving=True, generation=1), SimulatedClock()
    )
    appends.opening()
    appends.opened(AppendLimits(SHAPE), 0, 0)
    author.records = [OwnRecord("eggs"), OwnRecord("gone")]
    for _ in range(2):
        assert appends.next() is not None
    appends.answered(SendStatus.SERVICE_NOT_AVAILABLE, NotWritableError("over", "fenced"))
    appends.answered(SendStatus.MESSAGE_ILLEGAL, NotFoundError("no topic gone"))
    assert [one.topic for one in author.refusals] == ["gone"]
    assert isinstance(appends.refusal, NotFoundError), "it is no reason to wait"


def test_topics_that_go_in_batches_of_their_own_keep_the_authors_order():
    """A transaction's decision is in the log before the messages that it lets through."""
    author, place = Author(at_a_time=3), FoldPlace(serving=True, generation=1)
    appends = OwnAppends("egg_timer", author, place, SimulatedClock())
    sent = []
    for _ in range(2):
        appends.opening()
        appends.opened(AppendLimits(SHAPE), 0, 0)
        author.records = [OwnRecord("records"), OwnRecord("closed"), OwnRecord("eggs")]
        while batch := appends.next():
            sent.append([record.topic for record in batch.records])
        appends.answered(SendStatus.SERVICE_NOT_AVAILABLE, NotWritableError("no", "permission"))
        appends.ended()
    assert sent == [["records", "closed", "eggs"], ["records"], ["closed"], ["eggs"]]


class Author:
    def __init__(self, at_a_time: int = 1) -> None:
        self._at_a_time = at_a_time
        self.records: list[OwnRecord] = []
        self.refusals: list[OwnRecord] = []

    def begin(self) -> None:
        pass

    def due_ms(self) -> None:
        return None

    def take(self, now_ms: int, most: int) -> list[OwnRecord]:
        taken = self.records[: self._at_a_time]
        del self.records[: self._at_a_time]
        return taken

    def acknowledged(self, records, *, is_flushed) -> None:
        raise AssertionError

    def refused(self, record: OwnRecord, error: StrataError) -> None:
        self.refusals.append(record)


def test_what_is_in_flight_is_bounded(broker):
    for _ in range(300):
        broker.ask(b"egg", now(broker))
    broker.service.follow()
    broker.service.open()
    sent = 0
    while broker.service.send() is not None:
        sent += 1
    assert sent == MAX_BATCHES


def test_a_message_without_a_time_is_due_at_once(broker):
    result = broker.store.put_all(message(b"egg", REQUESTS, properties={TO: "eggs"}))[0]
    broker.service.settle()
    assert len(broker.copies()[result.physical_offset]) == 1


# --- chance ---


@pytest.mark.parametrize("seed", few(range(400), 40))
def test_each_message_is_delivered_once_whatever_happens(seed):
    world = World(seed)
    for _ in range(120):
        world.act()
    world.rest()
    world.master.check()
