"""What another program left pending: held until it is enabled, on every member, and then delivered
once, from where that program had come to."""

import json
import shutil

import pytest
from stratamq_delivery.delivery import Delivery
from stratamq_delivery.taken_over import HALVES, TakenOver
from stratamq_delivery.transactions import Transactions

from stratamq.client import connect
from stratamq.errors import CorruptRecordError, NotFoundError
from stratamq.files.metadata import MetadataFile
from stratamq.follow.fold import FoldPlace
from stratamq.formats.store_paths import GENERATIONS_PATH
from stratamq.formats.topics import OP_HALF_TOPIC
from tests.cli.processes import stratamq
from tests.delivery.scene import Broker
from tests.delivery.test_levels import adopted, pass_time
from tests.delivery.test_service import ROOMS, SETTINGS, arrived
from tests.delivery.transaction_scene import RULES, TransactionBroker, TransactionService
from tests.follow.chance import HOUR_MS
from tests.support import brokers
from tests.support.waiting import until

DAY_MS = 86_400_000


class HalvesService(TransactionService):
    """With what another program left pending."""

    def state(self, followed: FoldPlace) -> Delivery:
        self.taken_over = TakenOver(followed)
        producers = self.broker.producers
        self.transactions = Transactions(followed, RULES, producers, self.taken_over)
        self.halves = self.transactions.halves
        return Delivery([self.taken_over, self.transactions], followed)


class HalvesBroker(TransactionBroker):
    service_type = HalvesService

    @property
    def transactions(self) -> Transactions:
        return self.service.transactions


def three_old(broker: Broker) -> list[int]:
    return [broker.delay(b"%d" % number, 1) for number in range(3)]


def enable(broker: Broker, positions: dict[int, int]) -> list:
    """Ask for it; what the caller is told is added to the list that is returned."""
    answers: list = []
    service = broker.service
    service.taken_over.enable(positions, answers.append)
    held = service.taken_over.held_below
    service.settle()
    if service.taken_over.held_below < held:
        service.appends.begin_again()  # as `Schedule.moved` does
        service.settle()
    return answers


def test_what_is_held_is_delivered_once_from_where_the_other_program_had_come_to():
    broker, old = adopted(three_old)
    new = broker.delay(b"new", 1)
    pass_time(broker, HOUR_MS)
    assert broker.copies().keys() == {new}
    assert broker.service.levels.held == 3
    assert enable(broker, {1: 1}) == [None]
    pass_time(broker, HOUR_MS)
    assert broker.copies().keys() == {new, *old[1:]}
    assert (len(broker.service.levels), broker.service.levels.held) == (0, 0)
    for _ in range(2):
        broker.kill_service()
        pass_time(broker, HOUR_MS)
    assert all(len(copies) == 1 for copies in broker.copies().values())
    assert broker.service.levels.positions() == {1: 4}
    assert enable(broker, {}) == [None], "again: nothing happens"


def test_a_member_whose_own_generations_begin_at_0_holds_it_too():
    """One that began empty beside the master, and is promoted."""
    broker, old = adopted(three_old)
    pass_time(broker, HOUR_MS)
    broker.store.kill()
    files = broker.store.disk.files()
    file = MetadataFile(files, GENERATIONS_PATH)
    document = file.load()
    document["generations"][0][1] = 0
    file.store(document)
    broker.restart_log()
    broker.service.settle()
    assert broker.service.followed.begins == 0
    pass_time(broker, HOUR_MS)
    assert broker.copies() == {} and broker.service.levels.held == 3
    enable(broker, {})
    pass_time(broker, HOUR_MS)
    assert broker.copies().keys() == {*old}


def test_a_cut_takes_the_permission_back():
    broker, _ = adopted(three_old)
    pass_time(broker, 1)
    before = broker.service.followed.applied
    taken_over = broker.service.taken_over
    held = taken_over.held_below
    assert held > 0
    taken_over.enable({1: 1}, lambda _: None)
    broker.service.settle()
    assert taken_over.held_below == 0
    assert taken_over.cut(before) == before and taken_over.held_below == held


def test_timed_messages_are_judged_by_the_newest_that_the_other_program_stored():
    def store(broker: Broker) -> list[int]:
        now_ms = broker.store.log.store_clock.wall_ms()
        soon = broker.deliver(b"soon", now_ms + 1_000)
        later = broker.deliver(b"later", now_ms + 10 * DAY_MS)
        rolled = broker.deliver(b"rolled", now_ms + 300 * DAY_MS)
        broker.store.clock.advance_ms(3 * DAY_MS)
        pending = broker.deliver(b"pending", now_ms + 300 * DAY_MS)  # RocketMQ's copy of `rolled`
        broker.store.put(b"its newest", "eggs")
        return [soon, later, rolled, pending]

    broker, (_, _, _, pending) = adopted(store)
    pass_time(broker, HOUR_MS)
    assert broker.service.timed.held == 4
    enable(broker, {})
    for _ in range(320 * 4):
        pass_time(broker, DAY_MS // 4)
    delivered = {one.body for copies in broker.copies().values() for one in copies}
    assert b"pending" in delivered and not delivered & {b"soon", b"rolled", b"later"}
    assert pending in broker.timed()


def test_halves_that_rocketmq_appended_again_are_decided_there_alone():
    """It had looked at the first two: one it closed, one it put back behind the third."""
    broker = HalvesBroker()
    broker.service.follow()
    closed, replaced, third, again = (broker.half() for _ in range(4))
    broker.put_own(b"0", OP_HALF_TOPIC)
    broker.service.settle()
    halves, taken_over = broker.service.halves, broker.service.taken_over
    broker.service.followed.generations = [(1, broker.store.end())]
    assert halves.held == 3
    broker.service.settle()
    taken_over.enable({1: 7, HALVES: 2}, lambda _: None)
    broker.service.settle()
    for _ in range(2):
        assert (halves.held, len(broker.service.transactions)) == (0, 2)
        for offset in (closed, replaced):
            with pytest.raises(NotFoundError, match="it was decided long ago"):
                broker.decide(offset)
        broker.pass_time(100_000)
        assert {one.source.offset for _, one in broker.producers.checks} == {third, again}
        broker.service.save()
        broker.kill_service()
        broker.service.settle()
        halves, taken_over = broker.service.halves, broker.service.taken_over
    broker.commit(again)
    assert broker.shown().keys() == {again}


@pytest.mark.parametrize("body", [b"STO1", b"STO1" + bytes(17), b"STO1\x01" + bytes(18)])
def test_a_record_that_is_none_stops_the_fold(body):
    with pytest.raises(CorruptRecordError):
        TakenOver(FoldPlace())._record(body, 0)


def test_an_operator_enables_what_another_program_left_pending(tmp_path):
    with brokers.Broker(tmp_path / "store", tmp_path / "logs", SETTINGS) as first:
        first.start([brokers.COMMITLOG, brokers.DISPATCHER])
        with connect(first.root, timeout_s=60, retry_timeout_s=60) as client:
            for number in range(2):
                client.send("later", b"%d" % number, delay_level=1)
            client.transaction("producers").send("paid", b"half")
    shutil.rmtree(first.root / "stratamq")  # as if RocketMQ had written it
    with brokers.Broker(first.root, tmp_path / "logs", SETTINGS) as broker:
        broker.start(ROOMS)
        with connect(broker.root, timeout_s=60, retry_timeout_s=60) as client:
            until(lambda: client.admin.held_schedule().halves == 1, "the fold has read the log")
            shown = stratamq("schedule", data=broker.root)
            assert b"2 delayed, 1 half messages of another program are held" in shown.stdout
            asked = stratamq("schedule", "enable", data=broker.root, stdin=b"n\n")
            assert asked.returncode != 0 and client.admin.held_schedule().delayed == 2
            done = stratamq("schedule", "enable", "--yes", "-o", "json", data=broker.root)
            assert json.loads(done.stdout)["delayed"] == 2
            # Its first message makes the topic, whose settings were the broker's that is gone.
            until(lambda: client.topics("later"), "the topic is there")
            assert {one.body for one in arrived(client, "later", 2)} == {b"0", b"1"}
            assert not client.admin.held_schedule()
            again = stratamq("schedule", "enable", data=broker.root)
            assert b"no message of another program is held" in again.stdout
