"""Workers of a shared group in the client, with threads and with asyncio."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from stratamq.client import Topic, connect, connect_async
from stratamq.errors import (
    ExpiredReceiptError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from tests.support.brokers import COMMITLOG, DELIVERY, DISPATCHER, Broker
from tests.support.shards import Shards

ROOMS = (COMMITLOG, DISPATCHER, DELIVERY)
BODIES = [b"%d" % number for number in range(40)]


@pytest.fixture
def broker(tmp_path):
    with Broker(tmp_path / "store", tmp_path / "logs") as broker:
        broker.start(ROOMS)
        with connect(broker.root) as client, client.producer() as producer:
            for number, body in enumerate(BODIES):
                producer.send("orders", body, queue_id=number % 2)
        yield broker


def work(broker: Broker, count: int) -> list[bytes]:
    """One worker that handles so many messages."""
    done: list[bytes] = []
    with (
        connect(broker.root) as client,
        client.subscribe("orders", group="billing", batch=4, invisible_s=3_600) as messages,
    ):
        for message in messages:
            message.ack()
            done.append(message.body)
            if len(done) == count:
                return done
    return done


def test_workers_share_and_what_one_leaves_goes_to_the_next_at_once(broker):
    with ThreadPoolExecutor(3) as pool:
        done = [body for one in pool.map(lambda _: work(broker, 10), range(3)) for body in one]
    done += work(broker, 10)
    assert sorted(done) == sorted(BODIES)


def test_a_message_is_returned_hidden_longer_and_acknowledged_once(broker):
    with connect(broker.root) as client, client.subscribe("orders", "billing") as reader:
        first, second = reader.receive(2)
        first.nack(0.001)
        second.hide(3_600)
        again = [message for message in reader.receive(40) if message.body == first.body]
        while not again:
            again = [one for one in reader.receive(40) if one.body == first.body]
        assert again[0].attempt == 2
        second.ack()
        with pytest.raises(ExpiredReceiptError, match="1 of 2 messages are as they were"):
            reader.ack([first, again[0]])
        again[0].ack()  # its answer may have been lost
        with pytest.raises(InvalidRequestError, match="max_messages"):
            reader.receive(10_000)


def test_the_same_with_asyncio(broker):
    async def run() -> list[bytes]:
        done = []
        async with (
            connect_async(broker.root) as client,
            client.subscribe("orders", group="billing", batch=8) as messages,
        ):
            async for message in messages:
                await message.ack()
                done.append(message.body)
                if len(done) == len(BODIES):
                    break
        return done

    assert sorted(asyncio.run(run())) == sorted(BODIES)


def test_it_is_shown_who_holds_what_and_a_group_can_be_read_again(broker, stratamq):
    with connect(broker.root) as client:
        with client.subscribe("orders", "billing", client_id="w1", invisible_s=3_600) as reader:
            given = sorted(reader.receive(40), key=lambda one: (one.queue_id, one.queue_offset))
            while len(given) < len(BODIES):
                given += reader.receive(40)
            reader.ack([one for one in given if one.queue_id == 0 and one.queue_offset != 1])
            held = client.held_messages("billing")
            assert [(one.queue_id, one.offset, one.count, one.client_id, one.attempt)
                    for one in held] == [(0, 1, 1, "w1", 1), (1, 0, 20, "w1", 1)]  # fmt: skip
            assert all(3_000 < one.seconds_left <= 3_600 for one in held)
        shown = stratamq("groups", "describe", "billing", "-o", "json").out.splitlines()
        rows = [json.loads(line) for line in shown]
        assert [(row["clientId"], row["count"]) for row in rows if row["kind"] == "held"] == [
            ("w1", 1),
            ("w1", 20),
        ]
        with pytest.raises(InvalidRequestError, match="group billing is shared"):
            client.commit_offsets("billing", {("orders", 0): 0})
        assert stratamq("groups", "stop-sharing", "billing", "--yes").code == 0
        with pytest.raises(NotFoundError, match="group billing is not shared"):
            client.held_messages("billing")
        with client.consume("orders", group="billing") as consumer:
            assert sorted((m.queue_id, m.queue_offset) for m in consumer) == [
                *((0, number) for number in range(1, 20)),
                *((1, number) for number in range(20)),
            ]


def test_the_command_prints_and_acknowledges(broker, stratamq):
    arguments = ("consume", "orders", "--group", "billing", "--shared", "--raw")
    first, rest = stratamq(*arguments, "--count", "15"), stratamq(*arguments)
    assert sorted((first.out + rest.out).split()) == sorted(body.decode() for body in BODIES)
    assert len(first.out.split()) == 15
    none = stratamq(*arguments)
    assert (none.out, none.code) == ("", 0) and "no message of orders is ready" in none.err
    assert stratamq(*arguments, "--offset", "0").code == 2


def test_the_brokers_behind_several_addresses_are_read_as_one(tmp_path):
    with Shards(tmp_path, ROOMS) as shards:
        with connect(shards.address, retry_timeout_s=60) as client:
            client.admin.create_topic(Topic("orders", 1, 1))
            client.admin.create_group("billing", retries=3)
            assert [one.broker for one in client.group_settings("billing")] == ["a", "b"]
            with client.producer() as producer:
                for body in BODIES:
                    producer.send("orders", body)
            with client.subscribe("orders", "billing", batch=8, leased=True) as reader:
                found: list = []
                while len(found) < len(BODIES):
                    found += reader.receive()
                assert sorted(one.body for one in found) == sorted(BODIES)
                assert {one.broker for one in found} == {"a", "b"}
                reader.renew()
                reader.ack(found)
                with client.producer() as producer:
                    producer.send("orders", b"late")
                assert [one.body for one in reader.receive(wait_s=60)] == [b"late"]
                # The other broker is read on.
                shards.kill("a")
                with connect(shards["b"].root, retry_timeout_s=60) as other:
                    other.send("orders", b"from b", queue_id=0)
                got = reader.receive(wait_s=60)
                while not got:
                    got = reader.receive(wait_s=60)
                assert [(one.body, one.broker) for one in got] == [(b"from b", "b")]
        with connect(shards["b"].root) as client:
            assert client.stop_sharing("billing") == 1


def test_a_call_whose_answer_was_lost_gets_the_same_messages(broker, monkeypatch):
    """The client names its call, and names it again until there is an answer."""
    with connect(broker.root) as client, client.subscribe("orders", "billing") as reader:
        brokers = client._brokers.all()
        (one,) = brokers.values()
        given: list = []

        def lost(operation):
            given.append(run(operation))
            raise UnavailableError("the answer was lost")

        run = one.run
        monkeypatch.setattr(one, "run", lost)
        with pytest.raises(UnavailableError):
            reader.receive(5)
        monkeypatch.undo()
        again = reader.receive(5)
        (before,) = given[0]
        assert [(one.frame, one.ticket) for one in again] == [
            (frame, given.ticket) for frame, _, given in before
        ]
        assert len(again) == 5
        others = reader.receive(5)
        assert not {one.receipt for one in others} & {one.receipt for one in again}


async def test_workers_of_a_client_have_one_hand_out_and_what_a_lost_answer_gave_goes_to_all(
    broker, monkeypatch
):
    async with connect_async(broker.root) as client:
        readers = [client.subscribe("orders", "billing", batch=4) for _ in range(4)]
        (one,) = (await client._brokers.all()).values()
        run, given = one.run, list[object]()

        async def lost(operation):
            given.extend(await run(operation))
            raise UnavailableError("the answer was lost")

        monkeypatch.setattr(one, "run", lost)
        refused = await asyncio.gather(
            *(each.receive() for each in readers), return_exceptions=True
        )
        assert [type(each) for each in refused] == [UnavailableError] * 4
        monkeypatch.undo()
        frames = [frame for messages in given for frame, *_ in messages]
        tickets = {handed.ticket for messages in given for *_, handed in messages}
        assert (len(frames), len(tickets)) == (16, 1)
        again = await readers[0].receive()
        rest = await asyncio.gather(*(each.receive() for each in readers[1:]))
        assert [message.frame for each in (again, *rest) for message in each] == frames
        assert [(each.count, each.attempt) for each in await client.held_messages("billing")] == [
            (16, 1)
        ]
        # One of them has lost a message: the others' are acknowledged.
        (moved, *_), *_ = rest
        ticket = moved.ticket
        await moved.hide(3_600)
        moved.ticket = ticket
        all_given = zip(readers, (again, *rest), strict=True)
        done = await asyncio.gather(
            *(reader.ack(each) for reader, each in all_given), return_exceptions=True
        )
        assert [type(each) for each in done] == [type(None), ExpiredReceiptError, *2 * [type(None)]]
        (held,) = await client.held_messages("billing")
        assert (held.offset, held.count) == (moved.queue_offset, 1)


def test_what_was_received_ahead_from_one_broker_comes_though_the_other_has_nothing(tmp_path):
    """It would be kept from all workers for half of its time."""
    with Shards(tmp_path, ROOMS) as two, connect(two.address) as client:
        client.admin.create_topic(Topic("orders", 1))
        with connect(two["a"].root) as one, one.producer() as producer:
            for number in range(2_000):
                producer.send("orders", b"%d" % number)
        found = 0
        with client.subscribe("orders", "billing", invisible_s=3_600) as reader:
            while some := reader.receive(30, 2):
                reader.ack(some)
                found += len(some)
        assert found == 2_000
