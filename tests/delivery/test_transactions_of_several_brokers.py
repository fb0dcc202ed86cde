"""Transactions of a client of two brokers, which are processes."""

import threading

import pytest

from stratamq.client import Topic, connect, connect_async
from stratamq.errors import DecidedTransactionError, InvalidRequestError
from tests.support.brokers import COMMITLOG, DELIVERY, DISPATCHER
from tests.support.shards import NAMES, Shards
from tests.support.waiting import until

SETTINGS = ("delivery.transaction_timeout_ms=0", "delivery.transaction_check_interval_ms=1000")
ROOMS = (COMMITLOG, DISPATCHER, DELIVERY)


@pytest.fixture
def shards(tmp_path):
    with Shards(tmp_path, ROOMS, SETTINGS) as shards:
        yield shards


@pytest.fixture
def client(shards):
    with connect(shards.address, retry_timeout_s=60) as client:
        client.admin.create_topic(Topic("orders", 1, 1))
        client.admin.create_topic(Topic("audit", 1, 1))
        yield client


def bodies(client, topic: str) -> list[tuple[bytes, str]]:
    return sorted((one.body, one.broker) for one in client.consume(topic))


def test_a_whole_transaction_is_at_one_broker_and_each_broker_has_some(client):
    at: list[str] = []
    for number in range(4):
        with client.transaction("payers") as transaction:
            results = [transaction.send(topic, b"%d" % number) for topic in ("orders", "audit")]
            results.append(transaction.send("orders", b"%d" % number))
        assert len({one.broker for one in results}) == 1
        at.append(results[0].broker)
    assert {*at} == {*NAMES}
    orders = sorted((b"%d" % number, broker) for number, broker in enumerate(at) for _ in range(2))
    until(lambda: bodies(client, "orders") == orders, "both orders of each are where it is")
    audit = [(b"%d" % number, broker) for number, broker in enumerate(at)]
    until(lambda: bodies(client, "audit") == audit, "the entries are beside them")


def test_a_topic_that_is_elsewhere_alone_is_refused_and_the_rest_is_rolled_back(shards, client):
    with connect(shards["a"].root) as a:
        a.admin.create_topic(Topic("of-a", 1, 1))
    with connect(shards["b"].root) as b:
        b.admin.create_topic(Topic("of-b", 1, 1))
    words = "the transaction is of broker a, .* messages of of-b are taken by b: create the topic"
    with (
        pytest.raises(InvalidRequestError, match=words),
        client.transaction("payers") as transaction,
    ):
        assert transaction.send("of-a", b"never").broker == "a"
        transaction.send("of-b", b"never")
    with pytest.raises(InvalidRequestError, match="was rolled back"):
        transaction.send("of-a", b"late")
    with client.transaction("payers") as transaction:
        transaction.send("of-b", b"first")
        transaction.send("orders", b"second")
    until(lambda: bodies(client, "orders") == [(b"second", "b")], "it is shown")
    assert (bodies(client, "of-a"), bodies(client, "of-b")) == ([], [(b"first", "b")])


def test_a_broker_that_is_away_begins_no_transaction(shards, client):
    client.send("orders", b"plain")
    shards.kill("a")
    for number in range(3):
        with client.transaction("payers") as transaction:
            assert transaction.send("orders", b"%d" % number).broker == "b"


def test_all_brokers_ask_what_became_of_the_others(shards, client):
    left = {}
    for _ in range(4):
        transaction = client.transaction("payers")
        broker = transaction.send("orders", b"open").broker
        left.setdefault(broker, transaction)
    assert {*left} == {*NAMES}
    decided: set[tuple[str, int]] = set()
    all_four, over = threading.Event(), threading.Event()

    def decide() -> None:
        with connect(shards.address, retry_timeout_s=60) as other:
            checks = other.transaction_checks("payers", ["orders", "audit"])
            for check in checks:
                check.rollback()
                if check.topic == "audit":
                    break
                decided.add((check.broker, check.message.physical_offset))
                if len(decided) == 4:
                    all_four.set()
            checks.close()
        over.set()

    worker = threading.Thread(target=decide, daemon=True)
    worker.start()
    assert all_four.wait(60)
    shards.kill("a")
    with connect(shards["b"].root) as b:
        b.transaction("payers").send("audit", b"while a is away")
    assert over.wait(60), "a broker that is away holds up no other"
    worker.join()
    with pytest.raises(DecidedTransactionError, match=r"broker b: .* rolled back before"):
        left["b"].commit()


async def test_the_same_with_asyncio(shards, client):
    async with connect_async(shards.address, retry_timeout_s=60) as payer:
        left = {}
        while {*left} != {*NAMES}:
            transaction = payer.transaction("payers")
            left[(await transaction.send("orders", b"open")).broker] = transaction
        checks, asked = payer.transaction_checks("payers", ["orders"]), set()
        async for check in checks:
            asked.add(check.broker)
            await check.commit()
            if asked == {*NAMES}:
                break
        await checks.aclose()
    until(lambda: {broker for _, broker in bodies(client, "orders")} == {*NAMES}, "both are shown")
