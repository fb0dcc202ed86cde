"""Where a RocketMQ broker that takes the directory over begins with its checks of half messages."""

import pytest
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_delivery.check_floors import GROUP as CHECKS
from stratamq_delivery.check_floors import CheckFloors
from stratamq_delivery.transaction_records import Outcome

from stratamq.formats.log_state import Role
from stratamq.formats.topics import HALF_TOPIC, OP_HALF_TOPIC
from tests.delivery.transaction_scene import TransactionBroker

MASTER, TO_SLAVE = RoleChange(Role.ASYNC_MASTER), RoleChange(Role.SLAVE, master="m:1")
PLACES = ((HALF_TOPIC, 0), (OP_HALF_TOPIC, 0))


@pytest.fixture
def broker():
    broker = TransactionBroker()
    broker.service.follow()
    return broker


class Offsets:
    """A table of committed offsets, as the dispatcher has it."""

    def __init__(self, half: int = 0, op: int = 0) -> None:
        self.table = dict(zip(PLACES, (half, op), strict=True)) if half or op else {}

    async def committed(self, group: str, topic: str) -> dict[int, int]:
        assert group == CHECKS
        return {queue: offset for (one, queue), offset in self.table.items() if one == topic}

    async def commit(self, group: str, offsets) -> None:
        assert group == CHECKS
        self.table.update({(topic, queue): offset for topic, queue, offset in offsets})

    @property
    def floor(self) -> tuple[int | None, ...]:
        return tuple(self.table.get(place) for place in PLACES)


def floors_of(broker, offsets: Offsets) -> CheckFloors:
    service = broker.service
    return CheckFloors(broker.transactions.halves, service.followed, service.appends, offsets)


def floor_of(broker, passed: int = 0) -> tuple[int, int] | None:
    return broker.transactions.halves.check_floor(passed)


def test_it_is_the_first_open_half_and_the_op_messages_before_it(broker):
    assert floor_of(broker) is None
    first = [broker.half(b"%d" % number) for number in range(3)]
    broker.service.settle()
    assert floor_of(broker) == (0, 0)
    broker.commit(first[1], first[2])
    assert floor_of(broker) == (0, 0)
    broker.commit(first[0])
    assert floor_of(broker) == (3, 3)
    late = [broker.half(b"late"), broker.half(b"later")]
    broker.commit(late[1])
    assert floor_of(broker) == (3, 3)
    broker.decide(late[0], outcome=Outcome.ROLLED_BACK)
    broker.service.settle()
    assert floor_of(broker) == (5, 5)
    broker.check()


def test_a_start_without_a_saved_state_comes_to_the_same(broker):
    for number in range(6):
        offset = broker.half(b"%d" % number)
        if number != 4:
            broker.commit(offset)
    known = floor_of(broker)
    assert known == (4, 4)
    broker.service.save()
    broker.kill_service()
    broker.service.settle()
    assert floor_of(broker) == known
    broker.store.disk.files().unlink(broker.service.path)
    broker.kill_service()
    broker.service.settle()
    assert floor_of(broker) == known


def test_a_cut_takes_it_back(broker):
    broker.commit(broker.half())
    offset = broker.half()
    broker.service.settle()
    end, before = broker.store.end(), floor_of(broker)
    broker.commit(offset)
    assert floor_of(broker) == (2, 2)
    broker.set_role(TO_SLAVE)
    broker.cut(end, broker.store.log.state.generations[:1])
    broker.service.follow()
    assert floor_of(broker) == before == (1, 1)


def test_what_rocketmq_has_looked_at_is_passed_over(broker):
    """It appends a half again for each check, and closes the one before it with no op message."""
    for _ in range(4):
        broker.half()
    broker.service.settle()
    broker.service.followed.generations = [(1, broker.store.end())]
    assert floor_of(broker, passed=3) == (3, 0)
    assert floor_of(broker) == (0, 0)
    ours = broker.half()
    broker.commit(ours)
    assert floor_of(broker, passed=4) == (5, 1)


async def test_they_are_committed_when_the_log_has_flushed_them(broker):
    offsets, followed = Offsets(), broker.service.followed
    floors = floors_of(broker, offsets)
    await floors.publish()
    assert offsets.table == {}
    broker.commit(broker.half())
    flushed, followed.flushed = followed.flushed, followed.flushed - 1
    await floors.publish()
    assert offsets.table == {}
    followed.flushed = flushed
    await floors.publish()
    assert offsets.floor == (1, 1)
    offsets.table.clear()
    await floors.publish()
    assert offsets.table == {}, "there is no news"


async def test_what_was_computed_before_a_change_of_generation_is_not_committed(broker):
    offset = broker.half()
    broker.commit(offset)
    offsets, followed = Offsets(), broker.service.followed
    floors = floors_of(broker, offsets)
    flushed, followed.flushed = followed.flushed, 0
    await floors.publish()
    followed.flushed, followed.generation = flushed, followed.generation + 1
    await floors.publish()
    assert offsets.table == {}
    await floors.publish()
    assert offsets.floor == (1, 1)


async def test_rocketmqs_own_offsets_count_for_what_it_stored(broker):
    """And op messages that it has read are not read again."""
    for number in range(3):
        broker.half(b"%d" % number)
    broker.service.settle()
    broker.service.followed.generations = [(1, broker.store.end())]
    offsets = Offsets(half=2, op=1)
    floors = floors_of(broker, offsets)
    for _ in range(2):
        await floors.publish()
    assert offsets.floor == (2, 1)
    last = [*broker.halves()][-1]
    broker.decide(last)
    broker.service.settle()
    await floors.publish()
    assert offsets.floor == (3, 1)


async def test_they_go_back_when_the_log_was_cut(broker):
    """Otherwise RocketMQ would never ask about a half whose op message was lost."""
    for _ in range(2):
        broker.half()
    broker.service.settle()
    offsets = Offsets(half=2, op=2)
    floors = floors_of(broker, offsets)
    for _ in range(2):
        await floors.publish()
    assert offsets.floor == (0, 0)


async def test_a_dispatcher_that_lost_a_commit_hears_of_the_next(broker):
    offsets = Offsets()
    floors = floors_of(broker, offsets)
    broker.commit(broker.half())
    await floors.publish()
    offsets.table.clear()
    broker.commit(broker.half())
    await floors.publish()
    assert offsets.floor == (2, 2)


def test_op_messages_of_rocketmq_5_name_several_halves(broker):
    offsets = [broker.half(b"%d" % number) for number in range(3)]
    broker.service.settle()
    broker.put_own(b"0,1,", OP_HALF_TOPIC)
    broker.service.settle()
    assert floor_of(broker) == (2, 0)
    broker.decide(offsets[2])
    broker.service.settle()
    assert floor_of(broker) == (3, 2)
