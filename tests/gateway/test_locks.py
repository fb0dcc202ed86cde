"""Queue locks of consumers in order, of which a fail-over loses none, and pulls by a subscription
that is newer than its heartbeat."""

import asyncio
import json
import time
from unittest.mock import AsyncMock, Mock

import pytest
from stratamq_gateway import locks as of_locks
from stratamq_gateway import members as of_members
from stratamq_gateway.commits import Commits
from stratamq_gateway.consuming import PullMessages
from stratamq_gateway.frames import Command
from stratamq_gateway.group_rules import GroupRules
from stratamq_gateway.grouping import LockQueues
from stratamq_gateway.locks import STOPS_S, BrokerLocks, locked_queues
from stratamq_gateway.members import ConnectedClients, Heartbeat, subscription

from stratamq.client import connect
from stratamq.errors import InvalidRequestError, NotWritableError, UnavailableError
from stratamq.files.simulated_time import SimulatedClock
from stratamq.formats.javahash import tags_code
from stratamq.formats.log_state import LogState, Role
from stratamq.formats.message_status import PullStatus
from stratamq.service.front import Frames
from stratamq.service.queue_locks import Locked, QueueName
from tests.gateway.remoting import Remoting, send
from tests.gateway.test_gateway import SETTINGS, address
from tests.support.brokers import COMMITLOG, DELIVERY, DISPATCHER, GATEWAY, Broker

LOCK, UNLOCK, RUNNING_INFO = 41, 42, 307
MASTER, SLAVE = LogState(role=Role.ASYNC_MASTER, term=3), LogState(role=Role.SLAVE, term=3)
FIRST, SECOND = QueueName("a", "steps", 0), QueueName("a", "steps", 1)


@pytest.fixture
def clock():
    return SimulatedClock()


def running_info(age_ms: int, **said: object) -> bytes:
    """What Java's client answers to 307: its map's keys are objects."""
    queue = '{"brokerName":"a","queueId":0,"topic":"steps"}'
    other = '{"brokerName":"a","queueId":1,"topic":"steps"}'
    held = {"cachedMsgCount": 0, "droped": False, "locked": True}
    held |= {"lastLockTimestamp": time.time_ns() // 1_000_000 - age_ms, "tryUnlockTimes": 0} | said
    table = f"{queue}:{json.dumps(held)},{other}:" + json.dumps(held | {"locked": False})
    return ('{"jstack":"","mqTable":{' + table + '},"properties":{"a":"{}:{}"}}').encode()


def test_what_a_client_says_of_its_locks_is_read_whatever_stands_around():
    now_ms = time.time_ns() // 1_000_000
    assert [*locked_queues(running_info(0), now_ms)] == [FIRST]
    assert [*locked_queues(running_info(STOPS_S * 1_000 + 1_000), now_ms)] == [], "it has stopped"
    for odd in ("x", None, [], "9" * 5_000, float("inf")):
        assert [*locked_queues(running_info(0, lastLockTimestamp=odd), now_ms)] == []
    for body in (
        b"",
        b"\xff{}:{}",
        b"{}:{}" * 9,
        b"{" * 99_999,
        b'{"brokerName":1}:{"locked":true}',
    ):
        assert [*locked_queues(body, now_ms)] == []


def test_locks_that_were_lost_are_given_to_who_had_them_at_once_and_to_no_others(tmp_path):
    with Broker(tmp_path / "store", tmp_path / "logs", SETTINGS) as broker:
        broker.start((COMMITLOG, DISPATCHER, DELIVERY, GATEWAY))
        with Remoting(address(broker)) as one:
            assert send(one, "steps", b"x").code == 0
            assert locked(one, "one", 0) == [0], "nobody has read anything yet"
        with connect(broker.root) as own:
            own.commit_offsets("g", {("steps", 0): 1})
        broker.kill(GATEWAY, DELIVERY)
        broker.start([DELIVERY, GATEWAY])
        with Remoting(address(broker)) as one, Remoting(address(broker)) as two:
            two.answers[RUNNING_INFO] = running_info(0, locked=False)
            assert locked(two, "two", 0) == []
            assert locked(two, "two", 0, 1) == [1], "of which the group has read nothing"
            one.answers[RUNNING_INFO] = running_info(0)
            assert locked(one, "one", 0) == [0]
            assert RUNNING_INFO in one.told and RUNNING_INFO in two.told
            assert one.ask(UNLOCK, asked_for("one", 0)).code == 0
            assert locked(two, "two", 0) == [0]


def test_a_gateway_that_is_alone_gives_no_lock_that_another_one_may_have_given(clock, monkeypatch):
    """Its client goes on with what it has; a broker that is no master has none."""
    state, answers = AsyncMock(return_value=MASTER), AsyncMock()
    monkeypatch.setattr(of_locks, "lock_queues", answers)
    locks = BrokerLocks(AsyncMock(), clock, state, MASTER)
    clock.advance_ms(STOPS_S * 1_000 + 1)

    async def play() -> None:
        answers.return_value = Locked([FIRST], [])
        assert await locks.lock("g", "one", [FIRST, SECOND]) == ([FIRST], [])
        answers.side_effect = UnavailableError("gone")
        assert await locks.lock("g", "one", [FIRST, SECOND]) == ([FIRST], [SECOND])
        assert await locks.lock("g", "two", [FIRST, SECOND]) == ([], [SECOND])
        assert await locks.lock("g", "two", [SECOND], kept=True) == ([SECOND], [])
        state.return_value = SLAVE
        with pytest.raises(NotWritableError):
            await locks.lock("g", "one", [FIRST])
        state.return_value = MASTER
        clock.advance_ms(STOPS_S * 1_000 + 1)
        third = QueueName("a", "steps", 2)
        assert await locks.lock("g", "two", [FIRST, third]) == ([third], []), "as the only gateway"

    asyncio.run(play())


def test_queue_ids_that_are_none_are_refused():
    lock = LockQueues(AsyncMock(), SimulatedClock(), lock=True)
    for queue_id in (-1, 1 << 31, 1 << 99):
        with pytest.raises(InvalidRequestError):
            lock.decode(Command(LOCK, {}, asked_for("one", queue_id)))


def asked_for(client_id: str, *queue_ids: int) -> bytes:
    queues = [{"brokerName": "a", "topic": "steps", "queueId": one} for one in queue_ids]
    said = {"consumerGroup": "g", "clientId": client_id, "mqSet": queues}
    return json.dumps(said).encode()


def locked(client: Remoting, client_id: str, *queue_ids: int) -> list[int]:
    granted = client.ask(LOCK, asked_for(client_id, *queue_ids)).document["lockOKMQSet"]
    return sorted(one["queueId"] for one in granted)


# --- a subscription that is newer than its heartbeat ---


def heartbeat(version: int, expression: str) -> Heartbeat:
    subscriptions = (subscription("t", expression, version=version),)
    return Heartbeat("one", (), (("g", {}, subscriptions),))


def pull_of(version: int, flags: int = 0) -> Command:
    fields = {"consumerGroup": "g", "topic": "t", "queueId": "0", "queueOffset": "0"}
    fields |= {"sysFlag": str(flags), "subVersion": str(version), "subscription": "C"}
    return Command(11, fields)


def tags_of_pull(client: AsyncMock) -> tuple[int, ...]:
    return client.pull_frames.await_args.kwargs["tags_codes"]


def puller(members: ConnectedClients, clock: SimulatedClock) -> tuple[PullMessages, AsyncMock]:
    found = Frames(PullStatus.NO_MATCHED_MESSAGE, 1, 0, 1, memoryview(b""))
    client = AsyncMock()
    client.pull_frames.return_value = found
    rules = GroupRules(AsyncMock(), clock)
    return PullMessages(members, rules, clock, Commits(), AsyncMock()), client


def test_a_pull_by_a_newer_subscription_waits_for_the_heartbeat_that_says_it(monkeypatch, clock):
    """By the older one messages would be passed over that the member wants by now."""
    monkeypatch.setattr(of_members, "NEWER_S", 600.0)

    async def play() -> None:
        members = ConnectedClients(clock, 40)
        channel = Mock()
        pull, client = puller(members, clock)
        members.beat(channel, heartbeat(1, "A"))
        asked = pull.decode(pull_of(2))
        assert pull.here(asked) is None
        answering = asyncio.ensure_future(pull.answer(client, channel, asked))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not answering.done()
        members.beat(channel, heartbeat(2, "B"))
        await answering
        assert tags_of_pull(client) == (tags_code("B"),)
        await pull.answer(client, channel, pull.decode(pull_of(9, flags=4)))
        assert tags_of_pull(client) == (tags_code("C"),), "the pull itself says it"
        await pull.answer(client, channel, pull.decode(pull_of(0)))
        assert tags_of_pull(client) == (tags_code("B"),), "Go's client numbers none"

    asyncio.run(play())


def test_a_heartbeat_that_does_not_come_delays_one_pull_by_one_time(monkeypatch, clock):
    monkeypatch.setattr(of_members, "NEWER_S", 0.001)

    async def play() -> None:
        members = ConnectedClients(clock, 40)
        channel = Mock()
        pull, client = puller(members, clock)
        assert not members.lacks("g", "t", 2), "of a group that is not known"
        members.beat(channel, heartbeat(1, "A"))
        assert not members.lacks("g", "other", 2)
        await pull.answer(client, channel, pull.decode(pull_of(2)))
        assert tags_of_pull(client) == (tags_code("A"),)
        assert not members.lacks("g", "t", 2) and members.lacks("g", "t", 3)

    asyncio.run(play())
