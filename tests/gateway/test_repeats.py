"""Sends that a client repeats are stored once, where the setting says so."""

import asyncio
import os
import signal
import zlib

import pytest
from stratamq_gateway import repeats
from stratamq_gateway.codes import ResponseCode
from stratamq_gateway.frames import Answer
from stratamq_gateway.repeats import LARGE_BYTES, RepeatedSends, name_of

from stratamq.client import Message, Topic, connect
from stratamq.errors import UnavailableError
from stratamq.files.simulated_time import SimulatedClock
from tests.gateway.remoting import Remoting, Reply, request
from tests.gateway.test_gateway import (
    NOT_SUPPORTED,
    OK,
    ROOMS,
    SETTINGS,
    TOPIC_NOT_EXIST,
    address,
)
from tests.gateway.test_rows import FULL, KEY, OUTER, entry, fields_of, packed
from tests.support.brokers import COMMITLOG, Broker
from tests.support.waiting import until

WINDOW_MS = 60_000
ALIKE = (b"pay 100 EUR to A", b"pay 999 EUR \xda`R ")
"""They have the same length and CRC-32."""
ONE = [Message("orders", b"")]


class Store:
    """What is stored one after the other, each with the next offset."""

    def __init__(self) -> None:
        self.stored = 0
        self.code = ResponseCode.SUCCESS
        self.lost = False
        self.kept_from = 0
        self.held = asyncio.Event()
        self.held.set()

    async def __call__(self) -> Answer:
        await self.held.wait()
        if self.lost:
            raise UnavailableError("no answer")
        self.stored += 1
        return Answer(self.code, {"queueOffset": self.stored - 1})

    async def keeps(self, message: Message, answer: Answer) -> bool:
        return answer.fields["queueOffset"] >= self.kept_from


async def test_a_repeated_send_is_answered_as_the_first_within_the_window_alone():
    clock, store = SimulatedClock(), Store()
    sends = RepeatedSends(WINDOW_MS, clock, store.keeps)
    first = await sends.once(b"a", ONE, store)
    clock.advance_ms(WINDOW_MS - 1)
    assert await sends.once(b"a", ONE, store) == first
    assert (await sends.once(b"b", ONE, store)).fields == {"queueOffset": 1}
    clock.advance_ms(1)
    assert (await sends.once(b"a", ONE, store)).fields == {"queueOffset": 2}
    assert len(sends) == 2


async def test_a_repeated_send_waits_for_the_first_and_is_stored_if_that_was_not():
    store = Store()
    sends = RepeatedSends(WINDOW_MS, SimulatedClock(), store.keeps)
    store.held.clear()
    both = [asyncio.create_task(sends.once(b"a", ONE, store)) for _ in range(2)]
    await asyncio.sleep(0)
    store.held.set()
    assert [one.fields for one in await asyncio.gather(*both)] == [{"queueOffset": 0}] * 2
    store.held.clear()
    store.lost = True
    lost = [asyncio.create_task(sends.once(b"b", ONE, store)) for _ in range(2)]
    await asyncio.sleep(0)
    store.held.set()
    assert [type(one) for one in await asyncio.gather(*lost, return_exceptions=True)] == (
        [UnavailableError] * 2
    ), "the second has stored itself"
    store.lost, store.code = False, ResponseCode.MESSAGE_ILLEGAL
    assert (await sends.once(b"b", ONE, store)).code == ResponseCode.MESSAGE_ILLEGAL
    store.code = ResponseCode.FLUSH_DISK_TIMEOUT
    stored = await sends.once(b"b", ONE, store)
    assert await sends.once(b"b", ONE, store) == stored, "it is stored, if not on the disk yet"
    assert store.stored == 3


async def test_no_more_than_so_many_messages_are_remembered(monkeypatch):
    monkeypatch.setattr(repeats, "MAX_REMEMBERED", 10)
    store = Store()
    sends = RepeatedSends(WINDOW_MS, SimulatedClock(), store.keeps)
    for number in range(50):
        await sends.once(b"%d" % number, ONE * 4, store)
        assert len(sends) <= 10 + 4
    assert (await sends.once(b"49", ONE * 4, store)).fields == {"queueOffset": 49}
    assert (await sends.once(b"40", ONE * 4, store)).fields == {"queueOffset": 50}


async def test_what_is_gone_is_stored_again_by_one_of_those_that_ask():
    store = Store()
    sends = RepeatedSends(WINDOW_MS, SimulatedClock(), store.keeps)
    await sends.once(b"a", ONE, store)
    store.kept_from = 1
    both = await asyncio.gather(*(sends.once(b"a", ONE, store) for _ in range(2)))
    assert [one.fields for one in both] == [{"queueOffset": 1}] * 2
    assert (store.stored, len(sends)) == (2, 1)


async def test_a_name_is_of_all_of_a_body_and_of_the_user():
    one = Message("orders", b"", unique_key=KEY)
    large = bytes(LARGE_BYTES + 1)
    said = [
        ("", ALIKE[0]), ("", ALIKE[1]), ("alice", ALIKE[0]), ("", large), ("", large[:-1] + b"1")
    ]  # fmt: skip
    assert len({await name_of(user, [one], "", body) for user, body in said}) == len(said)
    assert await name_of("", [one], "", large) == await name_of("", [one], "", large)


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


def test_a_body_with_the_check_sum_of_another_is_stored(client):
    assert zlib.crc32(ALIKE[0]) == zlib.crc32(ALIKE[1])
    fields = fields_of("alike", FULL)
    assert [client.ask(310, one, **fields).fields["queueOffset"] for one in ALIKE] == ["0", "1"]


def test_a_half_message_that_comes_again_after_its_rollback_can_be_committed(client):
    fields = fields_of("halves", packed(UNIQ_KEY=KEY, TRAN_MSG="true", PGROUP="producers"))

    def decided(sent: Reply, decision: int) -> int:
        place = {"commitLogOffset": int(sent.fields["msgId"][16:], 16)}
        place["tranStateTableOffset"] = sent.fields["queueOffset"]
        which = {"topic": "halves", "producerGroup": "producers", "msgId": KEY}
        return client.ask(37, **place, **which, commitOrRollback=decision).code

    assert decided(client.ask(310, b"x", **fields), 12) == OK
    assert decided(client.ask(310, b"x", **fields), 8) == OK


def delete(broker: Broker, topic: str, *, again: bool) -> None:
    with connect(broker.root) as direct:
        direct.admin.delete_topic(topic)
        if again:
            direct.admin.create_topic(Topic(topic, 4, 4))
            until(
                lambda: any(one.min_offset for one in direct.queues(topic)),
                "the dispatcher has learned it",
            )


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made again"])
def test_an_answer_does_not_outlive_its_topic(broker, client, again):
    topic = f"deleted-{again}"
    fields = fields_of(topic, FULL)
    assert client.ask(310, b"x", **fields).fields["queueOffset"] == "0"
    delete(broker, topic, again=again)
    sent = client.ask(310, b"x", **fields)
    if again:
        assert (sent.code, sent.fields["queueOffset"]) == (OK, "1")
        assert client.ask(310, b"x", **fields) == sent
    else:
        assert sent.code == TOPIC_NOT_EXIST


def test_a_delayed_message_that_comes_again_is_stored_once(broker, client):
    """Its answer has the offset of where it waits, which its own topic's do not bound."""
    with connect(broker.root) as direct:
        for _ in range(3):
            direct.send("later", b"x", queue_id=1)
    delete(broker, "later", again=True)
    fields = fields_of("later", packed(UNIQ_KEY=KEY, DELAY="2"))  # waits in queue 1, too
    first = client.ask(310, b"x", **fields)
    assert (first.code, client.ask(310, b"x", **fields)) == (OK, first)


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
