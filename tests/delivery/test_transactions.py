"""Half messages: invisible before the decision, visible once after it, never after a rollback."""

import asyncio
import random
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_delivery.checkers import Checkers
from stratamq_delivery.ending import Ending, HalfPlace
from stratamq_delivery.half_messages import LOOK_MS
from stratamq_delivery.records import RECORDS
from stratamq_delivery.transaction_records import MAGIC, Outcome, decode_entries, encode_entries

from stratamq.errors import (
    CorruptRecordError,
    DecidedTransactionError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from stratamq.files.simulated import keep_nothing
from stratamq.follow.demand import Demand
from stratamq.formats.frame import decode
from stratamq.formats.log_state import Role
from stratamq.formats.message_status import SendStatus
from stratamq.formats.source_item import MessageSource
from stratamq.formats.topics import OP_HALF_TOPIC
from tests.delivery.transaction_scene import GROUP, RULES, TransactionBroker
from tests.follow.egg_scene import SEGMENT_BYTES
from tests.support.sampling import few

MASTER, TO_SLAVE = RoleChange(Role.ASYNC_MASTER), RoleChange(Role.SLAVE, master="m:1")
COMMITTED, ROLLED_BACK = Outcome.COMMITTED, Outcome.ROLLED_BACK


@pytest.fixture
def broker():
    broker = TransactionBroker()
    broker.service.follow()
    return broker


# --- decisions ---


def test_a_half_message_is_shown_when_it_is_committed_and_once(broker):
    offset = broker.half()
    broker.service.settle()
    assert (broker.shown(), len(broker.transactions)) == ({}, 1)
    assert broker.transactions.needed() == offset
    broker.decide(offset)
    assert broker.answers == []
    broker.service.settle()
    assert broker.answers == [((offset,), COMMITTED, None)]
    assert len(broker.shown()[offset]) == 1
    assert broker.transactions.needed() is None
    broker.pass_time(100_000)
    broker.check()


def test_a_rolled_back_one_is_never_shown(broker):
    offset = broker.half()
    broker.service.settle()
    broker.decide(offset, outcome=ROLLED_BACK)
    broker.pass_time(100_000)
    assert (broker.shown(), broker.outcomes()) == ({}, {offset: ROLLED_BACK})
    broker.check()


def test_the_first_decision_stands(broker):
    """RocketMQ looks at the half alone: it delivers what was rolled back (remoting.md 9)."""
    offset = broker.half()
    broker.service.settle()
    broker.decide(offset, outcome=ROLLED_BACK)
    with pytest.raises(UnavailableError, match="another decision"):
        broker.decide(offset)
    broker.decide(offset, outcome=ROLLED_BACK)
    broker.service.settle()
    assert [error for *_, error in broker.answers] == [None, None]
    with pytest.raises(DecidedTransactionError, match="rolled back before"):
        broker.decide(offset)
    broker.decide(offset, outcome=ROLLED_BACK)
    assert len(broker.answers) == 3
    broker.check()


def test_messages_of_one_transaction_are_decided_together(broker):
    offsets = [broker.half(b"%d" % number, f"topic-{number}") for number in range(3)]
    broker.commit(*offsets)
    assert broker.answers == [(tuple(offsets), COMMITTED, None)]
    records = [one for one in broker.store.frames() if one.body.startswith(MAGIC)]
    assert len(records) == 1
    broker.check()


def test_decisions_that_wait_together_share_a_record(broker):
    offsets = [broker.half(b"%d" % number) for number in range(20)]
    broker.service.settle()
    for offset in offsets:
        broker.decide(offset)
    broker.service.settle()
    records = [one for one in broker.store.frames() if one.body.startswith(MAGIC)]
    assert (len(records), len(broker.answers)) == (1, 20)
    broker.check()


def test_what_cannot_be_decided_changes_nothing(broker):
    offset = broker.half()
    stored = broker.store.put(b"plain").physical_offset
    broker.service.settle()
    with pytest.raises(NotFoundError, match="no half message at offset"):
        broker.decide(offset + 1)
    with pytest.raises(NotFoundError):
        broker.decide(stored)
    with pytest.raises(NotFoundError):
        source = MessageSource(broker.source(offset).generation + 1, offset)
        broker.transactions.decide(GROUP, [source], COMMITTED, lambda error: None)
    with pytest.raises(InvalidRequestError, match=f"producer group '{GROUP}'"):
        broker.decide(offset, group="thieves")
    with pytest.raises(InvalidRequestError, match="different messages"):
        broker.decide(offset, offset)
    with pytest.raises(InvalidRequestError, match="1 to"):
        broker.decide()
    broker.service.settle()
    assert (broker.outcomes(), broker.answers) == ({}, [])
    broker.check()


def test_callers_of_a_log_that_is_no_master_any_more_are_sent_on(broker):
    offset = broker.half()
    broker.service.settle()
    broker.decide(offset)
    broker.transactions.give_way()
    ((_, _, error),) = broker.answers
    assert isinstance(error, UnavailableError)
    broker.service.settle()
    assert broker.outcomes() == {}
    broker.decide(offset)
    broker.service.settle()
    broker.check()


def test_a_topic_that_takes_nothing_holds_up_its_own_messages_alone(broker):
    """The commit stands; the copy follows when the topic takes messages again."""
    closed, other = broker.half(topic="closed"), broker.half(topic="other")
    broker.service.settle()
    topics = broker.store.log.topics
    topics.put(replace(topics.get("closed"), permission=4))
    broker.decide(closed)
    broker.decide(other)
    broker.service.settle()
    assert {*broker.shown()} == {other} and broker.transactions.held == 1
    topics.put(replace(topics.get("closed"), permission=6))
    broker.pass_time(60_000)
    assert {*broker.shown()} == {closed, other} and broker.transactions.held == 0
    broker.check()


def test_what_was_decided_before_is_not_decided_again_after_a_change_of_masters(broker):
    """The commit was on its way when the log got another master: its caller was told to ask there,
    and has rolled it back meanwhile."""
    offset = broker.half()
    broker.service.settle()
    broker.decide(offset)
    broker.service.open()
    assert broker.service.send() is not None
    broker.transactions.give_way()
    broker.decide(offset, outcome=ROLLED_BACK)
    broker.service.wire.sent.clear()
    broker.service.hang_up()
    broker.service.settle()
    assert (broker.outcomes(), broker.shown()) == ({offset: ROLLED_BACK}, {})
    broker.check()


def test_of_two_records_in_the_log_the_first_counts(broker):
    offset = broker.half()
    broker.commit(offset)
    broker.put_own(encode_entries([(ROLLED_BACK, broker.source(offset))]), RECORDS)
    broker.service.settle()
    broker.decide(offset)
    assert broker.answers[-1] == ((offset,), COMMITTED, None)
    broker.check()


def test_a_copy_that_does_not_fit_waits_and_its_half_is_not_closed(broker):
    """A copy has one property more than the half."""
    small = broker.half(b".")
    body = b"." * (SEGMENT_BYTES - 8 - broker.halves()[small].total_size)
    offset = broker.half(body)
    broker.commit(offset)
    assert (broker.shown(), broker.closed()) == ({}, [])
    assert broker.transactions.held == 1


def test_a_topic_with_fewer_queues_takes_the_message_in_another_one(broker):
    offset = broker.store.put(
        b"paid", "orders", queue_id=3, half=True,
        properties={"TRAN_MSG": "true", "PGROUP": GROUP, "KEYS": "k"},
    ).physical_offset  # fmt: skip
    topics = broker.store.log.topics
    topics.put(replace(topics.get("orders"), write_queues=2))
    broker.commit(offset)
    (copy,) = broker.shown()[offset]
    assert copy.queue_id < 2


class LogOf:
    """What `Ending` asks of the log's service."""

    def __init__(self, broker) -> None:
        self._broker = broker

    async def facts(self):
        return self._broker.store.log.status()


def ending_of(broker) -> Ending:
    service = broker.service
    return Ending(
        broker.transactions,
        Checkers(random.Random(1)),
        service.followed,
        service.appends,
        LogOf(broker),
        lambda: None,
        Demand(),
    )


async def test_a_decision_behind_the_logs_end_names_no_half_message(broker, monkeypatch):
    """One that the log has, and the state has not read yet, may be there a moment later."""
    monkeypatch.setattr("stratamq_delivery.ending.MAX_BEHIND_S", 0.01)
    broker.half()
    broker.service.settle()
    end = broker.store.end()
    with pytest.raises(NotFoundError, match=f"the log ends at {end}"):
        await ending_of(broker).end(GROUP, [HalfPlace("orders", end, "k")], COMMITTED)
    offset = broker.half(UNIQ_KEY="k2")
    with pytest.raises(UnavailableError, match="not read the log"):
        await ending_of(broker).end(GROUP, [HalfPlace("orders", offset, "k2")], COMMITTED)


async def test_a_decision_waits_for_a_half_message_that_was_answered_a_moment_ago(broker):
    broker.half()
    broker.service.settle()
    service, ending = broker.service, ending_of(broker)
    offset = broker.half(UNIQ_KEY="k2")
    halves = [HalfPlace("orders", offset, "k2")]
    call = asyncio.ensure_future(ending.end(GROUP, halves, COMMITTED))
    await asyncio.sleep(0)
    ending.moved()
    await asyncio.sleep(0)
    assert not call.done()
    service.follow()
    ending.moved()
    while not call.done():
        await asyncio.sleep(0)
        service.settle()
    await call
    assert len(broker.shown()[offset]) == 1
    with pytest.raises(NotFoundError, match="another transaction's message"):
        await ending.end(GROUP, [HalfPlace("orders", offset, "k1")], COMMITTED)


# --- checks ---


async def test_a_stream_of_checks_that_comes_while_the_service_stops_does_not_wait(broker):
    """Its producer was told that its stream is over, and asked again before the last call came."""
    broker.half()
    broker.service.settle()
    ending = ending_of(broker)
    ending.end_checks()
    call = SimpleNamespace(caller=SimpleNamespace(host="10.0.0.1"))
    asked = asyncio.ensure_future(anext(ending.checks(GROUP, ["orders"], call)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert asked.done()
    with pytest.raises(UnavailableError, match="the delivery service is stopping"):
        asked.result()


def test_halves_that_another_program_stored_are_not_checked(broker):
    """Their producers may decide them nevertheless."""
    one, _ = broker.half(), broker.half()
    broker.service.settle()
    end = broker.store.end()
    broker.service.followed.generations = [(1, end)]
    broker.pass_time(RULES.interval_ms)
    assert broker.producers.checks == []
    generation = broker.service.followed.generation_of(one)
    found = MessageSource(generation, one)
    broker.transactions.decide(GROUP, [found], COMMITTED, lambda error: None)
    broker.service.settle()
    assert {*broker.shown()} == {one}
    later = broker.half()
    broker.pass_time(RULES.interval_ms + LOOK_MS)
    assert {check.source.offset for _, check in broker.producers.checks} == {later}


def test_an_undecided_one_is_checked_after_its_time_and_given_up_after_the_last(broker):
    offset = broker.half()
    checks = broker.producers.checks
    broker.pass_time(RULES.timeout_ms - 1)
    assert checks == []
    broker.pass_time(LOOK_MS)
    ((group, check),) = checks
    assert (group, check.source.offset, check.number) == (GROUP, offset, 1)
    assert decode(check.frame).body == b"paid"
    for number in range(2, RULES.max_checks + 1):
        broker.pass_time(RULES.interval_ms + LOOK_MS)
        assert [one.number for _, one in checks] == [*range(1, number + 1)]
    broker.pass_time(RULES.interval_ms + LOOK_MS)
    assert broker.outcomes() == {offset: Outcome.GIVEN_UP}
    broker.check()
    with pytest.raises(DecidedTransactionError, match="given up"):
        broker.decide(offset)


def test_a_message_may_name_its_own_time(broker):
    broker.half(CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    broker.pass_time(59_999)
    assert broker.producers.checks == []
    broker.pass_time(LOOK_MS)
    assert len(broker.producers.checks) == 1


@pytest.mark.parametrize("text", ["²", "٣", "9" * 5_000, "-1", "1e3", " "])
def test_a_time_that_is_no_number_counts_as_none(broker, text):
    """Whatever a producer writes there, the fold goes on."""
    broker.half(CHECK_IMMUNITY_TIME_IN_SECONDS=text)
    broker.pass_time(RULES.timeout_ms + LOOK_MS)
    assert len(broker.producers.checks) == 1


def test_producers_are_asked_though_the_log_answered_the_record_with_a_timeout(broker):
    """Stored, not confirmed in time: the fold has the check, so a producer must hear of it."""
    appends = broker.service.appends
    in_time = appends.answered
    appends.answered = lambda _, error: in_time(SendStatus.FLUSH_SLAVE_TIMEOUT, error)
    broker.half()
    broker.pass_time(RULES.timeout_ms)
    appends.answered = in_time
    broker.half()
    broker.pass_time(RULES.interval_ms + LOOK_MS)
    assert sorted(check.number for _, check in broker.producers.checks) == [1, 1, 2]


def test_a_decision_that_is_not_folded_yet_is_not_followed_by_another(broker):
    offset = broker.half()
    broker.service.settle()
    broker.decide(offset)
    transactions, service = broker.transactions, broker.service
    service.send()
    service.wire.read()
    broker.store.settle()
    service.receive()
    with pytest.raises(UnavailableError, match="another decision"):
        broker.decide(offset, outcome=ROLLED_BACK)
    service.settle()
    with pytest.raises(DecidedTransactionError, match="committed before"):
        broker.decide(offset, outcome=ROLLED_BACK)
    assert transactions is broker.transactions
    broker.check()


def test_nothing_grows_with_what_was_decided(broker):
    transactions = broker.transactions
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("stratamq_delivery.transactions.MAX_OP_MARKS", 8)
        for _ in range(30):
            broker.commit(broker.half())
    assert (len(transactions._copied), len(transactions._sent)) == (0, 0)
    assert len(transactions._closing) <= 9
    broker.check()


def test_only_what_was_asked_counts(broker):
    """A group of which no member is connected is not given up: RocketMQ counts anyway."""
    offset = broker.half()
    broker.producers.connected = set()
    for _ in range(10):
        broker.pass_time(RULES.interval_ms + LOOK_MS)
    assert (broker.producers.checks, broker.outcomes()) == ([], {})
    broker.producers.connected = {GROUP}
    broker.pass_time(1_000)
    assert [check.number for _, check in broker.producers.checks] == [1]
    broker.commit(offset)
    broker.check()


def test_a_decided_one_is_not_checked(broker):
    one, other = broker.half(), broker.half()
    broker.commit(one)
    broker.pass_time(10 * RULES.interval_ms)
    assert {check.source.offset for _, check in broker.producers.checks} == {other}


def test_checks_are_counted_across_a_restart(broker):
    broker.half()
    broker.pass_time(RULES.timeout_ms + LOOK_MS)
    broker.kill_service()
    broker.service.settle()
    broker.pass_time(RULES.interval_ms + LOOK_MS)
    assert [check.number for _, check in broker.producers.checks] == [1, 2]


# --- what RocketMQ wrote ---


def test_op_messages_of_rocketmq_close_halves(broker):
    """Of 5.x with several in one message. Its own checks append the half again."""
    offsets = [broker.half(b"%d" % number) for number in range(4)]
    for body in (b"0", b"1,2,"):
        broker.put_own(body, OP_HALF_TOPIC)
    broker.pass_time(RULES.timeout_ms + LOOK_MS)
    assert len(broker.transactions) == 1
    assert [check.source.offset for _, check in broker.producers.checks] == [offsets[3]]


def test_a_damaged_record_is_not_passed_over():
    entry = (Outcome.COMMITTED, MessageSource(1, 5))
    assert [*decode_entries(encode_entries([entry]))] == [entry]
    with pytest.raises(CorruptRecordError):
        [*decode_entries(encode_entries([entry])[:-1])]
    with pytest.raises(CorruptRecordError):
        [*decode_entries(MAGIC + b"\x09" + bytes(16))]


# --- crashes, cuts, promotions ---


@pytest.mark.parametrize("step", range(6))
def test_a_kill_between_any_two_steps_shows_it_once(broker, step):
    """Between the record, the copy and the op message; what was sent may be stored or not."""
    offset = broker.half()
    broker.service.settle()
    broker.decide(offset)
    service = broker.service
    for _ in range(step):
        service.open()
        service.send()
        if service.wire is not None and service.wire.sent:
            service.wire.read()
        broker.store.settle()
        service.receive()
        service.follow()
    broker.kill_service()
    for wire in broker.late:
        while wire.sent:
            wire.read()
    broker.store.settle()
    broker.service.settle()
    if offset not in broker.outcomes():
        assert all(error is not None for *_, error in broker.answers)
        broker.decide(offset)
        broker.service.settle()
    assert len(broker.shown()[offset]) == 1
    broker.check()


def test_a_promoted_slave_goes_on_between_the_record_and_the_copy():
    master, slave = TransactionBroker(1), TransactionBroker(2, role="SLAVE")
    offset = master.half()
    master.service.settle()
    service = master.service
    master.decide(offset)
    service.open()
    batch = service.appends.next()
    record = encode_entries([(COMMITTED, master.source(offset))])
    assert batch.records[0].body == record
    master.put_own(record, RECORDS)
    slave.take_from(master)
    slave.service.follow()
    assert len(slave.transactions) == 1
    slave.set_role(MASTER)
    slave.service.settle()
    assert len(slave.shown()[offset]) == 1
    slave.check()


def test_a_cut_takes_a_decision_back_that_nobody_was_told_of(broker):
    offset = broker.half()
    broker.pass_time(RULES.timeout_ms + LOOK_MS)
    end = broker.store.end()
    broker.commit(offset)
    broker.answers.clear()
    broker.set_role(TO_SLAVE)
    broker.cut(end, broker.store.log.state.generations[:1])
    broker.service.follow()
    assert len(broker.transactions) == 1
    broker.set_role(MASTER)
    broker.service.settle()
    assert broker.outcomes() == {}
    broker.commit(offset)
    broker.check()


def test_any_order_of_everything():
    """Halves, decisions, checks, kills, restarts, changes of role: the module's promises hold."""
    for seed in few(range(40), 12):
        _play(seed, random.Random(seed))


def _play(seed: int, random_: random.Random) -> None:
    broker = TransactionBroker(seed)
    open_ones: list[int] = []
    for _ in range(60):
        match random_.randrange(12):
            case 0 | 1 | 2:
                open_ones.append(broker.half(b"%d" % len(open_ones), f"t{random_.randrange(3)}"))
            case 3 | 4 | 5 if open_ones:
                some = random_.sample(open_ones, min(len(open_ones), random_.randint(1, 3)))
                outcome = random_.choice((COMMITTED, ROLLED_BACK))
                broker.service.follow()
                with suppress(DecidedTransactionError, UnavailableError, NotFoundError):
                    broker.decide(*some, outcome=outcome)
            case 6:
                broker.pass_time(random_.choice((1, 7_000, 31_000)))
            case 7:
                broker.kill_service()
            case 8:
                broker.restart_log()
            case 9:
                broker.service.save()
            case 10:
                broker.set_role(TO_SLAVE)
                broker.transactions.give_way()
                broker.set_role(MASTER)
            case _:
                service = broker.service
                service.follow(random_.randrange(4))
                service.open()
                service.send()
                if service.wire is not None and service.wire.sent and random_.random() < 0.7:
                    service.wire.read()
                    broker.store.settle()
                    service.receive()
    for wire in broker.late:
        while wire.sent:
            wire.read()
    broker.store.settle()
    broker.service.settle()
    broker.check()


def test_brokers_that_take_turns_as_masters_show_it_once():
    """Two logs, each cut to the other's when the roles change, services killed in between."""
    for seed in few(range(40), 6):
        _take_turns(seed, random.Random(seed))


def _take_turns(seed: int, random_: random.Random) -> None:
    master, slave = TransactionBroker(seed), TransactionBroker(seed + 1, role="SLAVE")
    halves: list[int] = []
    for turn in range(6):
        for _ in range(random_.randrange(5)):
            halves.append(master.half(b"%d-%d" % (turn, len(halves))))
        master.service.settle()
        for offset in random_.sample(halves, min(3, len(halves))):
            with suppress(DecidedTransactionError, UnavailableError, NotFoundError):
                master.decide(offset, outcome=random_.choice((COMMITTED, ROLLED_BACK)))
        for _ in range(random_.randrange(4)):
            master.service.open()
            master.service.send()
            if master.service.wire is not None and master.service.wire.sent:
                master.service.wire.read()
            master.store.settle()
            master.service.follow()
        slave.take_from(master)
        if random_.random() < 0.5:
            slave.kill_service()
        slave.service.follow()
        told = [one for one in master.answers if one[2] is None]
        master.set_role(TO_SLAVE)
        master.transactions.give_way()
        slave.set_role(MASTER)
        slave.answers = told
        master, slave = slave, master
        master.service.settle()
        master.check()
        halves = [offset for offset in halves if offset in master.halves()]


def test_a_loss_of_power_keeps_what_was_answered():
    broker = TransactionBroker(3)
    offset = broker.half()
    broker.commit(offset)
    broker.restart_log(keep_nothing)
    broker.service.settle()
    broker.check()
