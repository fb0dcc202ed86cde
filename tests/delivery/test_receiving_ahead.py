"""What a client receives ahead of workers that take messages fast."""

import asyncio
from dataclasses import replace

import pytest

from stratamq.client import connect_async
from stratamq.client._async import together
from stratamq.client.group_receipts import GroupWorker, HandOut
from stratamq.client.hand_outs import AHEAD_NS, LARGEST_HAND_OUT, LEAST_AHEAD, HandOuts
from stratamq.files.simulated_time import SimulatedClock
from tests.support.brokers import COMMITLOG, DELIVERY, DISPATCHER, Broker

GIVEN = HandOut(b"", 1, 0)
ONE = GroupWorker("client", 32, 30, "", False)
AHEAD_MS = AHEAD_NS // 1_000_000
DEADLINE_S = 60


class Client:
    """Workers of a broker that always has messages."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.hand_outs = HandOuts(self.clock)
        self.asked: list[int] = []
        """For how many messages each call has asked."""
        self._next = 0

    def call(self, *workers: GroupWorker) -> list[list[int]]:
        found, wishes = self.hand_outs.plan(workers)
        for wish in wishes:
            most = wish.as_worker().max_messages
            self.asked.append(most)
            frames = [(b"", (number,), GIVEN) for number in range(self._next, self._next + most)]
            self._next += most
            self.hand_outs.answered(wish, frames, found)
        return [[head for _, (head,), _ in one.frames] for one in found]

    def take(self, worker: GroupWorker = ONE) -> list[int]:
        ready = self.hand_outs.ready(worker)
        return self.call(worker)[0] if ready is None else [head for _, (head,), _ in ready.frames]

    def hurry(self, messages: int, worker: GroupWorker = ONE) -> None:
        """Take so many within `AHEAD_NS`."""
        for _ in range(messages // worker.max_messages):
            self.take(worker)
        self.clock.advance_ms(AHEAD_MS)
        self.take(worker)


@pytest.fixture
def client():
    return Client()


def test_fast_workers_get_all_messages_in_order_with_few_calls(client):
    client.hurry(4_096)
    calls = len(client.asked)
    taken = [number for _ in range(256) for number in client.take()]
    assert taken == [*range(taken[0], taken[0] + len(taken))] and len(taken) == 8_192
    assert len(client.asked) - calls <= 9
    assert max(client.asked) == LARGEST_HAND_OUT


@pytest.mark.parametrize(
    ("messages", "worker"),
    [(LEAST_AHEAD - 32, ONE), (4_096, replace(ONE, leased=True))],
    ids=["slow", "leased"],
)
def test_nothing_is_received_ahead_of_slow_workers_and_of_leases(client, messages, worker):
    client.hurry(messages, worker)
    for _ in range(8):
        client.take(worker)
    assert {*client.asked} == {32}


def test_workers_that_become_slow_get_no_more_ahead(client):
    client.hurry(4_096)
    while client.hand_outs.ready(ONE) is not None:
        client.clock.advance_ms(AHEAD_MS)
    calls = len(client.asked)
    for _ in range(128):
        client.clock.advance_ms(AHEAD_MS)
        client.take()
    assert len(client.asked) > calls and {*client.asked[calls:]} <= {32}


def test_one_worker_calls_for_more_while_others_take_what_is_here(client):
    client.hurry(4_096)
    client.call(ONE)
    while client.hand_outs.ready(ONE) is not None:
        pass
    others = [client.hand_outs.ready(ONE) for _ in range(8)]
    assert all(one is not None and len(one.frames) == 32 for one in others)
    (found,) = client.call(ONE)
    assert len(found) == 32


def test_a_worker_gets_what_is_here_and_the_rest_by_a_call(client):
    client.hurry(4_096)
    there = client.hand_outs._count(replace(ONE, max_messages=0))
    (found,) = client.call(replace(ONE, max_messages=there + 8))
    assert found == [*range(found[0], found[0] + there + 8)]


def test_what_waits_for_half_of_its_time_is_not_given_out(client):
    client.hurry(4_096)
    client.clock.advance_ms(15_000)
    assert client.hand_outs.ready(ONE) is None
    assert client.hand_outs.take_out(late_only=True)


async def test_all_that_was_received_ahead_goes_to_others_when_the_last_worker_ends(
    tmp_path, monkeypatch
):
    """Also when it is more than one call may return. They are handed out for the first time then:
    of a group that tries once, none is a dead letter that no worker has seen."""
    monkeypatch.setattr(together, "CALL_MESSAGES", 16)
    with Broker(tmp_path / "store", tmp_path / "logs") as broker:
        broker.start((COMMITLOG, DISPATCHER, DELIVERY))
        async with connect_async(broker.root) as client:
            async with client.producer() as producer:
                for number in range(64):
                    await producer.send("orders", b"%d" % number, queue_id=0)
            await client.admin.create_group("billing", retries=0)
            async with client.subscribe("orders", "billing", batch=8) as reader:
                monkeypatch.setattr(HandOuts, "_ahead_of", lambda *_: 40)
                assert len(await reader.receive()) == 8
                held = await client.held_messages("billing")
                assert sum(one.count for one in held) == 48
            held = await client.held_messages("billing")
            waiting = [one for one in held if one.seconds_left < 1]
            assert sum(one.count for one in waiting) == 40
            monkeypatch.setattr(HandOuts, "_ahead_of", lambda *_: 0)
            found = []
            async with (
                asyncio.timeout(DEADLINE_S),
                client.subscribe("orders", "billing", batch=64) as reader,
            ):
                while len(found) < 56:
                    found += await reader.receive()
            assert {one.attempt for one in found} == {1}
            assert sorted(one.queue_offset for one in found) == [*range(8, 64)]
