"""What operators decide about a message that waits: it is cancelled, or delivered now and once,
whatever is killed or cut afterwards, and they are told what became of it."""

import json
from datetime import timedelta

import numpy as np
import pytest
from stratamq_delivery.audit import Audit, audit
from stratamq_delivery.delayed_copies import WaitEnd, encode_wish
from stratamq_delivery.past import state_at
from stratamq_delivery.schedule import Schedule

from stratamq.client import connect
from stratamq.errors import InvalidRequestError, NotFoundError, NotWritableError
from stratamq.formats.dispatch import dispatch_columns
from stratamq.formats.properties import DELIVERED_NOW, UNIQ_KEY
from stratamq.store.log_pieces import LogPiece
from tests.cli.processes import stratamq
from tests.delivery.scene import Broker
from tests.delivery.test_levels import MASTER, TO_SLAVE, DelayedWorld, adopted, pass_time
from tests.delivery.test_service import ROOMS, SETTINGS, arrived
from tests.follow.chance import HOUR_MS
from tests.support import brokers
from tests.support.logs import raw_frame
from tests.support.sampling import few
from tests.support.waiting import until


@pytest.fixture
def broker():
    broker = Broker()
    broker.service.settle()
    return broker


def wait(broker: Broker, kind: str, body: bytes = b"egg") -> int:
    """A message that waits for an hour, of a level or for a time of its own. Its offset."""
    if kind == "level":
        offset = broker.delay(body, 17)
    else:
        offset = broker.deliver(body, broker.store.log.store_clock.wall_ms() + HOUR_MS)
    broker.service.settle()
    return offset


KINDS = pytest.mark.parametrize("kind", ["level", "timed"])


def ask(broker: Broker, offset: int, wanted: WaitEnd) -> list:
    """What the operator is told is added to the list that is returned."""
    answers: list = []
    machines = broker.service.levels, broker.service.timed
    assert any(machine.ask(offset, wanted, answers.append) for machine in machines)
    return answers


def answer(broker: Broker) -> None:
    broker.service.settle()
    for machine in (broker.service.levels, broker.service.timed):
        machine.copies.asked.answer()


def schedule(broker: Broker) -> Schedule:
    service = broker.service
    return Schedule(
        service.taken_over,
        service.levels,
        service.timed,
        None,
        None,
        service.appends,
        None,
        lambda: answer(broker),
    )


def place(broker: Broker, offset: int):
    return broker.service.levels.copies.source(offset)


@KINDS
@pytest.mark.anyio
async def test_a_cancelled_message_is_never_delivered_whatever_is_killed(broker, kind):
    offset, other = wait(broker, kind), wait(broker, kind, b"other")
    await schedule(broker).end(place(broker, offset), WaitEnd.CANCELLED)
    await schedule(broker).end(place(broker, offset), WaitEnd.CANCELLED)
    assert len(broker.records()[offset]) == 1, "again: nothing is written"
    broker.service.save()
    broker.kill_service()
    pass_time(broker, HOUR_MS // 2)
    broker.restart_log()
    broker.service.settle()
    broker.store.disk.files().unlink(broker.service.path)
    broker.kill_service()
    pass_time(broker, 3 * HOUR_MS)
    assert broker.copies().keys() == {other}
    assert broker.service.levels.positions().get(17, 2) == 2, "RocketMQ passes over both"


@KINDS
@pytest.mark.anyio
async def test_a_message_that_is_wanted_now_goes_out_early_and_once(broker, kind):
    offset, other = wait(broker, kind), wait(broker, kind, b"other")
    at_ms = broker.store.log.store_clock.wall_ms()
    await schedule(broker).end(place(broker, other), WaitEnd.DELIVERED)
    (copy,) = broker.copies()[other]
    assert (copy.topic, copy.body, offset in broker.copies()) == ("eggs", b"other", False)
    assert copy.properties[DELIVERED_NOW] == str(at_ms + HOUR_MS)
    wish, place_of_copy = encode_wish(place(broker, other)), copy.physical_offset
    wishes = [one.physical_offset for one in broker.store.frames() if one.body == wish]
    assert len(wishes) == 1 and wishes[0] < place_of_copy, "the record goes in front of the copy"
    with pytest.raises(NotFoundError, match="was delivered"):
        await schedule(broker).end(place(broker, other), WaitEnd.CANCELLED)
    broker.kill_service()
    pass_time(broker, 2 * HOUR_MS)
    assert {source: len(copies) for source, copies in broker.copies().items()} == {
        offset: 1,
        other: 1,
    }
    assert DELIVERED_NOW not in broker.copies()[offset][0].properties


@KINDS
@pytest.mark.anyio
async def test_a_producer_takes_back_its_own_message_and_no_other(broker, kind):
    named = {"properties": {UNIQ_KEY: "mine"}}
    due_ms = broker.store.log.store_clock.wall_ms() + HOUR_MS
    offset = (
        broker.delay(b"egg", 17, **named)
        if kind == "level"
        else broker.deliver(b"egg", due_ms, **named)
    )
    broker.service.settle()
    for topic, place, key in (
        ("eggs", offset, "another"),
        ("other", offset, "mine"),
        ("eggs", offset + 1, "mine"),
    ):
        with pytest.raises(NotFoundError):
            await schedule(broker).recall(topic, place, key)
    await schedule(broker).recall("eggs", offset, "mine")
    broker.service.save()
    broker.kill_service()
    broker.service.settle()
    with pytest.raises(NotFoundError, match="was cancelled"):
        await schedule(broker).recall("eggs", offset, "mine")
    late = wait(broker, kind)
    pass_time(broker, 2 * HOUR_MS)
    with pytest.raises(NotFoundError, match="was delivered"):
        await schedule(broker).recall("eggs", late, "")
    assert broker.copies().keys() == {late}


@pytest.mark.anyio
async def test_a_message_is_taken_back_wherever_it_waits_by_then():
    broker = Broker(roll_ms=HOUR_MS)
    due_ms = broker.store.log.store_clock.wall_ms() + 5 * HOUR_MS
    offset = broker.deliver(b"egg", due_ms, properties={UNIQ_KEY: "mine"})
    for _ in range(3):
        pass_time(broker, HOUR_MS)
    assert len(broker.rolled()) > 1, "it was appended again, and then again"
    await schedule(broker).recall("eggs", offset, "mine")
    pass_time(broker, 5 * HOUR_MS)
    assert broker.copies() == {}


@KINDS
def test_a_message_whose_copy_is_on_the_way_is_not_cancelled(broker, kind):
    offset = wait(broker, kind)
    broker.store.clock.advance_ms(HOUR_MS)
    assert broker.service.send() is not None
    answers = ask(broker, offset, WaitEnd.CANCELLED)
    broker.service.send()
    answer(broker)
    assert len(broker.copies()[offset]) == 1 and broker.records() == {}
    assert "was delivered" in str(answers[0]) and isinstance(answers[0], NotFoundError)


@KINDS
@pytest.mark.parametrize("wanted", [WaitEnd.CANCELLED, WaitEnd.DELIVERED])
def test_what_is_asked_when_a_stream_breaks_is_done_once_on_the_next(broker, kind, wanted):
    offset = wait(broker, kind)
    answers = ask(broker, offset, wanted)
    assert broker.service.send() is not None
    broker.service.hang_up()
    answer(broker)
    broker.service.settle()
    ends = {**broker.copies(), **broker.records()}
    assert answers == [None] and [len(frames) for frames in ends.values()] == [1]
    pass_time(broker, 2 * HOUR_MS)
    assert {**broker.copies(), **broker.records()} == ends


@KINDS
def test_nothing_is_answered_before_the_log_has_flushed_it(broker, kind):
    offset = wait(broker, kind)
    answers, followed = ask(broker, offset, WaitEnd.CANCELLED), broker.service.followed
    broker.service.settle()
    flushed, followed.flushed = followed.flushed, offset
    answer_now = [one.copies.asked.answer for one in (broker.service.levels, broker.service.timed)]
    for one in answer_now:
        one()
    assert answers == []
    followed.flushed = flushed
    for one in answer_now:
        one()
    assert answers == [None]


@KINDS
@pytest.mark.anyio
async def test_a_topic_that_refuses_a_message_now_leaves_it_waiting(broker, kind):
    """Example: the topic was deleted, and is made again before the message is due."""
    at_ms = broker.store.log.store_clock.wall_ms() + HOUR_MS
    topic, queue_id, time = {
        "level": ("SCHEDULE_TOPIC_XXXX", 16, "DELAY\x0117"),
        "timed": ("rmq_sys_wheel_timer", 0, f"TIMER_DELIVER_MS\x01{at_ms}"),
    }[kind]
    items = f"{time}\x02REAL_TOPIC\x01no/topic\x02REAL_QID\x010\x02".encode()
    raw = raw_frame(b"bad", topic, queue_id=queue_id, properties=items)
    offset = broker.store.put_raw(raw)[0].physical_offset
    broker.service.settle()
    with pytest.raises((NotFoundError, InvalidRequestError)):
        await schedule(broker).end(place(broker, offset), WaitEnd.DELIVERED)
    broker.service.settle()
    assert broker.copies() == broker.records() == {}
    pass_time(broker, 2 * HOUR_MS)
    assert broker.records().keys() == {offset}, "its time has come: it is given up"


@KINDS
@pytest.mark.anyio
async def test_a_slave_and_a_made_up_place_change_nothing(broker, kind):
    offset = wait(broker, kind)
    source = place(broker, offset)
    for wrong, sentence in (
        (source._replace(generation=source.generation + 1), "not of this log"),
        (source._replace(offset=offset + 1), "no message waits"),
    ):
        with pytest.raises(NotFoundError, match=sentence):
            await schedule(broker).end(wrong, WaitEnd.CANCELLED)
    broker.set_role(TO_SLAVE)
    for _ in range(2):  # the stream that ends, and the one to the slave
        broker.service.follow()
    broker.service.receive()
    with pytest.raises(NotWritableError):
        await schedule(broker).end(source, WaitEnd.CANCELLED)
    assert broker.records() == broker.copies() == {}


@pytest.mark.anyio
async def test_what_another_program_stored_is_cancelled_and_not_delivered_before_it_is_enabled():
    broker, offset = adopted()
    broker.service.settle()
    with pytest.raises(InvalidRequestError, match="enable"):
        await schedule(broker).end(place(broker, offset), WaitEnd.DELIVERED)
    await schedule(broker).end(place(broker, offset), WaitEnd.CANCELLED)
    assert broker.records().keys() == {offset}


@pytest.mark.anyio
async def test_a_page_has_what_is_soonest_of_levels_and_times(broker):
    now_ms = broker.store.log.store_clock.wall_ms()
    broker.delay(b"", 18)
    for minutes in (70, 3 * 24 * 60, 50, 5 * 24 * 60):
        broker.deliver(b"", now_ms + minutes * 60_000)
    broker.delay(b"", 17, topic="spoons")
    broker.service.settle()
    shown, may_be_more = await schedule(broker).waiting("", 3)
    minutes = [(one.due_ms - now_ms) // 60_000 for one in shown]
    assert (minutes, [one.level for one in shown], may_be_more) == ([50, 60, 70], [0, 17, 0], True)
    shown, may_be_more = await schedule(broker).waiting("spoons", 3)
    assert ([one.level for one in shown], may_be_more) == ([17], False)
    shown, may_be_more = await schedule(broker).waiting("", 6)
    assert ([one.due_ms for one in shown] == sorted(one.due_ms for one in shown)) and (
        len(shown),
        may_be_more,
    ) == (6, False)


@KINDS
def test_a_promoted_slave_knows_what_was_cancelled_and_delivered(kind):
    master, slave = Broker(1), Broker(2, role="SLAVE")
    master.service.settle()
    cancelled, early, other = (wait(master, kind, body) for body in (b"c", b"e", b"o"))
    asked = (cancelled, WaitEnd.CANCELLED), (early, WaitEnd.DELIVERED)
    answers = [ask(master, *one) for one in asked]
    answer(master)
    slave.take_from(master)
    slave.set_role(MASTER)
    pass_time(slave, 2 * HOUR_MS)
    copies = {source: len(copies) for source, copies in slave.copies().items()}
    assert (copies, slave.records().keys()) == ({early: 1, other: 1}, {cancelled})
    assert answers == [[None], [None]]


@KINDS
def test_what_a_clock_that_was_put_back_makes_early_again_is_delivered_later(broker, kind):
    """It was refused when it was due, and then it was not due for a while."""
    offset = wait(broker, kind)
    broker.store.clock.advance_ms(HOUR_MS)
    service = broker.service
    (record,) = service.send().records
    service.author.refused(record, InvalidRequestError("no such queue"))
    machine = service.levels if kind == "level" else service.timed
    now_ms = service.appends.time.now_ms()
    assert machine.take(now_ms - HOUR_MS // 2, 9) == []
    assert machine.due_ms() == now_ms
    assert [one.source.offset for one in machine.take(now_ms, 9)] == [offset]


@pytest.mark.anyio
async def test_what_is_rolled_sooner_is_not_listed_before_what_is_delivered_sooner():
    broker = Broker(roll_ms=HOUR_MS)
    now_ms = broker.store.log.store_clock.wall_ms()
    for _ in range(6):
        broker.deliver(b"far", now_ms + 100 * HOUR_MS)
        broker.deliver(b"near", now_ms + 2 * HOUR_MS)
    broker.service.settle()
    shown, may_be_more = await schedule(broker).waiting("", 6)
    assert ([one.frame.body for one in shown], may_be_more) == ([b"near"] * 6, True)


def test_operators_list_cancel_and_deliver_now(tmp_path):
    with brokers.Broker(tmp_path / "store", tmp_path / "logs", SETTINGS) as broker:
        broker.start(ROOMS)
        with connect(broker.root, timeout_s=60, retry_timeout_s=60) as client:
            for number in range(3):
                client.send("later", b"%d" % number, keys=[f"k{number}"], delay_level=18)
                client.send("later", b"t%d" % number, delay=timedelta(days=1))
            client.send("other", b"egg", delay_level=17)
            until(lambda: client.admin.delivery_state().parts == 7, "the fold has read the log")
            done = stratamq("schedule", "list", "--topic", "later", "-o", "json", data=broker.root)
            rows = [json.loads(line) for line in done.stdout.splitlines()]
            assert [row["level"] for row in rows] == [18, 18, 18, 0, 0, 0]
            assert rows[1]["keys"] == "k1"
            asked = stratamq("schedule", "cancel", rows[0]["place"], data=broker.root, stdin=b"n\n")
            assert asked.returncode != 0 and client.admin.delivery_state().parts == 7
            for row in (rows[0], rows[3]):
                done = stratamq("schedule", "cancel", "--yes", row["place"], data=broker.root)
                assert done.returncode == 0, done.stderr
            for row in (rows[1], rows[4]):
                done = stratamq("schedule", "deliver-now", row["place"], data=broker.root)
                assert done.returncode == 0, done.stderr
            again = stratamq("schedule", "deliver-now", rows[1]["place"], data=broker.root)
            assert again.returncode != 0 and b"was delivered" in again.stderr
            assert {one.body for one in arrived(client, "later", 2)} == {b"1", b"t1"}
            wrong = stratamq("schedule", "cancel", "--yes", "1-2", data=broker.root)
            assert b"GENERATION:OFFSET" in wrong.stderr
            left = client.admin.scheduled_messages(limit=2)
            assert (left.truncated, [one.topic for one in left.messages]) == (
                True,
                ["other", "later"],
            )
            end = client.log_state().appended_offset
        until(lambda: state_at(broker.root).offset >= end, "the files know it")
        assert len(list(state_at(broker.root).delayed())) == 3
        found = audit(broker.root)
        assert (
            found.faults == [] and found.counts["cancelled"] == found.counts["delivered now"] == 2
        )


# --- chance ---


class OperatedWorld(DelayedWorld):
    """Operators cancel messages and deliver them now. What the slave of a promotion lacks is never
    lost: what is answered holds on the slaves that were asked for."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.asked: list[tuple[object, int, WaitEnd, list]] = []
        """Of which start of the service, about which message, what, and what it answered."""

    def act(self) -> None:
        if self.chance.random() < 0.15:
            self.operate()
        super().act()
        self.tell()

    def operate(self) -> None:
        master = self.master
        waiting = [*master.delayed(), *master.timed()]
        if not waiting or not master.service.appends.is_active:
            return
        offset, wanted = self.chance.choice(waiting[-8:]), self.chance.choice(WANTED)
        answers: list = []
        machines = master.service.levels, master.service.timed
        if any(machine.ask(offset, wanted, answers.append) for machine in machines):
            self.asked.append((master.service, offset, wanted, answers))

    def tell(self) -> None:
        for broker in (self.master, self.slave):
            for machine in (broker.service.levels, broker.service.timed):
                machine.copies.asked.answer()

    def promote(self) -> None:
        self.slave.take_from(self.master)
        super().promote()

    def check(self) -> Audit:
        master = self.master
        ends = [master.copies(), master.records(), master.rolled()]
        now_ms = master.service.appends.time.now_ms()
        for offset, frame in {**master.delayed(), **master.timed()}.items():
            timed_ms = frame.properties.get("TIMER_DELIVER_MS")
            due_ms = int(timed_ms) if timed_ms else master.due_ms(frame)
            count = sum(len(end.get(offset, [])) for end in ends)
            assert count == 1 or (count == 0 and due_ms > now_ms), offset
        for service, offset, wanted, answers in self.asked:
            assert len(answers) == 1 or (not answers and service is not master.service)
            if answers == [None]:
                assert offset in ends[wanted is WaitEnd.CANCELLED], (offset, wanted)
        audit_ = Audit(0)
        for offset, raw, _ in master.store.members():
            columns = dispatch_columns(raw, offset, np.array([len(raw)], np.uint32))
            audit_.read(LogPiece(offset, offset + len(raw), columns, raw))
        early = " early" if self.put_back else "nothing else"
        assert [fault for fault in audit_.faults if not fault.endswith(early)] == []
        return audit_


WANTED = (WaitEnd.CANCELLED, WaitEnd.DELIVERED)


@pytest.mark.parametrize("seed", few(range(300), 20))
def test_what_operators_were_told_holds_whatever_happens(seed):
    world = OperatedWorld(seed)
    for _ in range(120):
        world.act()
    world.rest()
    world.tell()
    world.check()
