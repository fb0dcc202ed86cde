"""Transactions by the client, with the real services as processes."""

import threading

import pytest

from stratamq.client import connect
from stratamq.errors import (
    DecidedTransactionError,
    InvalidRequestError,
    NotFoundError,
    NotWritableError,
    StrataError,
)
from tests.support.brokers import COMMITLOG, DISPATCHER, Broker
from tests.support.waiting import until

DELIVERY = "delivery"
SETTINGS = (
    "commitlog.segment_bytes=1048576",
    "commitlog.followers=dispatcher,delivery",
    "commitlog.follower_stop_timeout_ms=120000",
    "delivery.save_interval_ms=10",
    "delivery.transaction_timeout_ms=0",
    "delivery.transaction_check_interval_ms=1000",
)


@pytest.fixture
def broker(tmp_path):
    with Broker(tmp_path / "store", tmp_path / "logs", SETTINGS) as broker:
        yield broker.start([COMMITLOG, DISPATCHER, DELIVERY])


@pytest.fixture
def client(broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        yield client


def bodies(client, topic: str) -> list[bytes]:
    return sorted(message.body for message in messages(client, topic))


def messages(client, topic: str) -> list:
    return [
        message
        for known in client.topics(topic)
        for queue in range(known.read_queue_count)
        for message in client.pull(topic, queue, 0, max_messages=1_000, max_bytes=1 << 20).messages
    ]


def test_consumers_see_what_was_committed_and_nothing_else(client):
    with client.transaction("payers") as transaction:
        transaction.send("orders", b"order", keys=["42"], tag="paid")
        transaction.send("audit", b"entry")
        assert bodies(client, "orders") == []
    until(lambda: bodies(client, "orders") == [b"order"], "the order is there")
    until(lambda: bodies(client, "audit") == [b"entry"], "the entry is there")
    (order,) = messages(client, "orders")
    assert (order.keys, order.tag, order.properties["PGROUP"]) == (["42"], "paid", "payers")
    with pytest.raises(ZeroDivisionError), client.transaction("payers") as transaction:
        transaction.send("orders", b"never")
        raise ZeroDivisionError
    with client.transaction("payers") as transaction:
        transaction.send("orders", b"later")
    until(lambda: len(bodies(client, "orders")) == 2, "the later one is there")
    assert bodies(client, "orders") == [b"later", b"order"]


def test_a_transaction_ends_once(client):
    with client.transaction("payers") as transaction:
        transaction.send("orders", b"order")
        transaction.commit()
        transaction.commit()
        with pytest.raises(InvalidRequestError, match="was committed: begin another one"):
            transaction.rollback()
        with pytest.raises(InvalidRequestError, match="was committed"):
            transaction.send("orders", b"late")
    until(lambda: bodies(client, "orders") == [b"order"], "the order is there")


def test_producers_are_asked_what_became_of_the_others(broker, client):
    """Of a producer that ended before it decided."""
    kept, dropped = client.transaction("payers"), client.transaction("payers")
    kept.send("orders", b"kept", keys=["1"])
    dropped.send("orders", b"dropped", keys=["2"])
    seen = threading.Event()

    def decide() -> None:
        with connect(broker.root, retry_timeout_s=60) as other:
            left = {"1", "2"}
            for check in other.transaction_checks("payers", ["orders"]):
                assert check.topic == "orders"
                (key,) = check.message.keys
                check.commit() if key == "1" else check.rollback()
                left.discard(key)
                if not left:
                    seen.set()
                    return

    worker = threading.Thread(target=decide)
    worker.start()
    assert seen.wait(120)
    worker.join()
    until(lambda: bodies(client, "orders") == [b"kept"], "the kept one is there")
    with pytest.raises(DecidedTransactionError, match="rolled back before"):
        dropped.commit()
    kept.commit()
    assert bodies(client, "orders") == [b"kept"]


def test_what_was_answered_holds_when_everything_is_killed(broker, client):
    committed, rolled_back = client.transaction("payers"), client.transaction("payers")
    for number in range(20):
        committed.send("orders", b"%02d" % number)
        rolled_back.send("orders", b"never")
    rolled_back.rollback()
    committed.commit()
    broker.kill(DELIVERY, COMMITLOG, DISPATCHER)
    broker.start([COMMITLOG, DISPATCHER, DELIVERY])
    until(lambda: len(bodies(client, "orders")) >= 20, "all are there")
    committed.commit()
    assert bodies(client, "orders") == [b"%02d" % number for number in range(20)]


def test_a_half_message_alone_names_its_group(client):
    with pytest.raises(InvalidRequestError, match="producer group"):
        client.send("orders", b"half", half=True)
    with pytest.raises(NotFoundError, match="no half message at offset"):
        transaction = client.transaction("payers")
        transaction.send("orders", b"order")
        (half,) = transaction._halves
        transaction._halves = [type(half)(half.topic, half.physical_offset + 1, half.unique_key)]
        transaction.commit()


def test_a_stream_of_checks_ends_when_its_broker_is_the_master_no_more(broker, client):
    """Its producer would wait for checks that another broker makes."""
    broker.start(["ha"])
    client.send("orders", b"plain")
    ended: list[StrataError] = []

    def listen() -> None:
        with connect(broker.root) as other:
            try:
                for check in other.transaction_checks("payers", ["orders"]):
                    check.commit()
            except StrataError as error:
                ended.append(error)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    with client.transaction("payers") as transaction:
        transaction.send("orders", b"first")
    client.transaction("payers").send("orders", b"left")
    until(lambda: b"left" in bodies(client, "orders"), "the producer was asked")
    client.admin.demote("127.0.0.1:9", force=True)
    thread.join(60)
    assert [type(error) for error in ended] == [NotWritableError]
