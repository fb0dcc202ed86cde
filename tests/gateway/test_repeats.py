"""Sends that a client repeats are stored once, where the setting says so."""

import asyncio
import os
import signal

import pytest
from stratamq_gateway import repeats
from stratamq_gateway.codes import ResponseCode
from stratamq_gateway.frames import Answer
from stratamq_gateway.repeats import RepeatedSends

from stratamq.errors import UnavailableError
from stratamq.files.simulated_time import SimulatedClock
from tests.gateway.remoting import Remoting, request
from tests.gateway.test_gateway import NOT_SUPPORTED, OK, ROOMS, SETTINGS, address
from tests.gateway.test_rows import FULL, KEY, OUTER, entry, fields_of, packed
from tests.support.brokers import COMMITLOG, Broker

WINDOW_MS = 60_000


class Store:
    """What is stored one after the other, each with the next offset."""

    def __init__(self) -> None:
        self.stored = 0
        self.code = ResponseCode.SUCCESS
        self.lost = False
        self.held = asyncio.Event()
        self.held.set()

    async def __call__(self) -> Answer:
        await self.held.wait()
        if self.lost:
            raise UnavailableError("no answer")
        self.stored += 1
        return Answer(self.code, {"queueOffset": self.stored - 1})


async def test_a_repeated_send_is_answered_as_the_first_within_the_window_alone():
    clock, store = SimulatedClock(), Store()
    sends = RepeatedSends(WINDOW_MS, clock)
    first = await sends.once(b"a", 1, store)
    clock.advance_ms(WINDOW_MS - 1)
    assert await sends.once(b"a", 1, store) == first
    assert (await sends.once(b"b", 1, store)).fields == {"queueOffset": 1}
    clock.advance_ms(1)
    assert (await sends.once(b"a", 1, store)).fields == {"queueOffset": 2}
    assert len(sends) == 2


async def test_a_repeated_send_waits_for_the_first_and_is_stored_if_that_was_not():
    store = Store()
    sends = RepeatedSends(WINDOW_MS, SimulatedClock())
    store.held.clear()
    both = [asyncio.create_task(sends.once(b"a", 1, store)) for _ in range(2)]
    await asyncio.sleep(0)
    store.held.set()
    assert [one.fields for one in await asyncio.gather(*both)] == [{"queueOffset": 0}] * 2
    store.held.clear()
    store.lost = True
    lost = [asyncio.create_task(sends.once(b"b", 1, store)) for _ in range(2)]
    await asyncio.sleep(0)
    store.held.set()
    assert [type(one) for one in await asyncio.gather(*lost, return_exceptions=True)] == (
        [UnavailableError] * 2
    ), "the second has stored itself"
    store.lost, store.code = False, ResponseCode.MESSAGE_ILLEGAL
    assert (await sends.once(b"b", 1, store)).code == ResponseCode.MESSAGE_ILLEGAL
    store.code = ResponseCode.FLUSH_DISK_TIMEOUT
    stored = await sends.once(b"b", 1, store)
    assert await sends.once(b"b", 1, store) == stored, "it is stored, if not on the disk yet"
    assert store.stored == 3


async def test_no_more_than_so_many_messages_are_remembered(monkeypatch):
    monkeypatch.setattr(repeats, "MAX_REMEMBERED", 10)
    store, sends = Store(), RepeatedSends(WINDOW_MS, SimulatedClock())
    for number in range(50):
        await sends.once(b"%d" % number, 4, store)
        assert len(sends) <= 10 + 4
    assert (await sends.once(b"49", 4, store)).fields == {"queueOffset": 49}
    assert (await sends.once(b"40", 4, store)).fields == {"queueOffset": 50}


# --- at a gateway ---


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    place = tmp_path_factory.mktemp("repeats")
    settings = (*SETTINGS, f"gateway.repeated_send_window_ms={WINDOW_MS}")
    with Broker(place / "store", place / "logs", settings) as broker:
        yield broker.start(ROOMS)


@pytest.fixture
def client(broker):
    with Remoting(address(broker)) as client:
        yield client


def test_a_send_that_comes_again_is_stored_once(broker, client):
    batch = entry(b"a", packed(UNIQ_KEY=KEY)) + entry(b"b", packed(UNIQ_KEY=KEY[::-1]))
    other = entry(b"a", packed(UNIQ_KEY=KEY)) + entry(b"c", packed(UNIQ_KEY=KEY[::-1]))
    for code, properties, body, changed in (
        (310, FULL, b"body", b"Body"),
        (320, OUTER, batch, other),
    ):
        fields = fields_of(f"once-{code}", properties)
        first = client.ask(code, body, **fields)
        with Remoting(address(broker)) as second:
            again = second.ask(code, body, **fields | {"e": 0, "g": 5})
        assert (first.code, again) == (OK, first), "to another queue, at another time"
        others = [
            client.ask(code, changed, **fields),
            client.ask(code, body, **fields | {"j": 1}),
            client.ask(code, body, **fields | {"b": f"other-{code}"}),
            client.ask(code, body, **fields | {"i": properties + "n\x011\x02"}),
        ]
        assert len({one.fields["msgId"] for one in others} | {first.fields["msgId"]}) == 5


def test_messages_without_a_key_are_each_stored(client):
    fields = fields_of("keyless", packed(TAGS="a"))
    sent = [client.ask(310, b"x", **fields).fields["queueOffset"] for _ in range(2)]
    assert sent == ["0", "1"]


def test_a_send_whose_connection_was_lost_is_not_stored_again(broker):
    """As Java's clients do: they close the connection of a send that takes too long."""
    fields = fields_of("lost", FULL)
    with Remoting(address(broker)) as other:
        try:
            with Remoting(address(broker)) as client:
                assert client.ask(310, b"first", **fields).code == OK, "what it sends next leaves"
                os.kill(broker.pid(COMMITLOG), signal.SIGSTOP)
                client.socket.sendall(request(310, fields, b"second", 7))
                assert client.ask(9_999).code == NOT_SUPPORTED, "the one before is on its way"
            other.socket.sendall(request(310, fields, b"second", 8))
            assert other.ask(9_999).code == NOT_SUPPORTED
        finally:
            os.kill(broker.pid(COMMITLOG), signal.SIGCONT)
        _, answer = other.receive()
        assert (answer.code, answer.fields["queueOffset"]) == (OK, "1")
        assert other.ask(310, b"third", **fields).fields["queueOffset"] == "2"
