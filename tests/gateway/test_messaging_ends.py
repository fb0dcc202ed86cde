"""How messages end early by RocketMQ 5's gRPC protocol: as dead letters, or taken back."""

import grpc
import pytest
from stratamq_gateway.messaging.recalling import RecallHandle, decode_handle
from stratamq_gateway.messaging.statuses import RefusedError

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client import Topic, connect
from stratamq.formats.topic_types import MessageType
from tests.gateway.messaging import Client, code, handle_of, message
from tests.gateway.test_messaging import served
from tests.support.brokers import DELIVERY

TYPES = {"steps": MessageType.FIFO, "later": MessageType.DELAY, "normal": MessageType.NORMAL}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with served(tmp_path_factory.mktemp("gateway")) as (broker, address):
        with connect(broker.root) as client:
            for name, kind in TYPES.items():
                client.admin.create_topic(Topic(name, 1, 1, message_type=kind))
            client.admin.create_group("in-order", ordered=True, retries=1)
        yield broker, address


@pytest.fixture
def client(broker):
    with grpc.insecure_channel(broker[1]) as channel:
        yield Client(channel)


def forward(client: Client, found: pb.Message, group: str = "in-order", **fields):
    request = pb.ForwardMessageToDeadLetterQueueRequest(
        group=pb.Resource(name=group),
        topic=pb.Resource(name="steps"),
        receipt_handle=handle_of(found),
        message_id=found.system_properties.message_id,
        **fields,
    )
    return client.call("ForwardMessageToDeadLetterQueue", request)


def test_a_message_that_a_group_in_order_gives_up_is_a_dead_letter_and_the_next_comes(client):
    for body in (b"poison", b"next"):
        client.send(message("steps", body, message_group="one"))
    (first,) = client.receive("steps", "in-order")
    assert client.receive("steps", "in-order", 0) == [], "the next one waits for it"
    assert code(forward(client, first, "others")) == "INVALID_RECEIPT_HANDLE"
    for _ in range(2):
        assert code(forward(client, first, delivery_attempt=2)) == "OK", (
            "again: its answer was lost"
        )
    (second,) = client.receive("steps", "in-order")
    assert (first.body, second.body) == (b"poison", b"next")
    client.ack("steps", "in-order", second)
    (letter,) = client.receive("%DLQ%in-order", "letters")
    given = letter.system_properties
    assert (letter.body, given.message_id) == (b"poison", first.system_properties.message_id)
    assert given.dead_letter_queue.topic == "steps"
    assert given.dead_letter_queue.message_id == first.system_properties.message_id


def later(client: Client, topic: str = "later", ahead_ms: int = 3_000, **fields):
    sent = message(topic, b"late", **fields)
    timestamp = sent.system_properties.delivery_timestamp
    timestamp.GetCurrentTime()
    timestamp.FromMilliseconds(timestamp.ToMilliseconds() + ahead_ms)
    (entry,) = client.send(sent).entries
    return entry


def recall(client: Client, handle: str, topic: str = "later"):
    request = pb.RecallMessageRequest(topic=pb.Resource(name=topic), recall_handle=handle)
    return client.call("RecallMessage", request)


def test_a_delayed_message_is_taken_back_once_and_never_delivered(broker, client):
    kept, taken_back = later(client), later(client)
    answer = recall(client, taken_back.recall_handle)
    assert (code(answer), answer.message_id) == ("OK", taken_back.message_id)
    broker[0].kill(DELIVERY)
    broker[0].start((DELIVERY,))
    again = recall(client, taken_back.recall_handle)
    assert code(again) == "NOT_FOUND" and "cancelled" in again.status.message
    (found,) = client.receive("later", "late")
    assert found.system_properties.message_id == kept.message_id
    late = recall(client, kept.recall_handle)
    assert code(late) == "NOT_FOUND" and "delivered" in late.status.message
    client.ack("later", "late", found)
    assert client.receive("later", "late", 3) == []


def test_what_is_no_delayed_message_of_the_topic_is_not_taken_back(client):
    entry = later(client, ahead_ms=60_000)
    assert code(recall(client, entry.recall_handle, "normal")) == "BAD_REQUEST"
    handle = decode_handle(entry.recall_handle)
    assert code(recall(client, handle._replace(topic="normal").encode(), "normal")) == (
        "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"
    )
    assert code(recall(client, handle._replace(message_id="01").encode())) == "NOT_FOUND"
    assert code(recall(client, entry.recall_handle)) == "OK", "the producer's own"
    (plain,) = client.send(message("normal", b"x")).entries
    assert plain.recall_handle == ""


@pytest.mark.parametrize("handle", ["", "x", "AAAA", "djIgdCAwIDAgMDE=", "djEgdCAtMSAwIDAx"])
def test_what_is_no_handle_is_refused(handle):
    with pytest.raises(RefusedError):
        decode_handle(handle)


def test_a_handle_says_what_its_message_is_as_rocketmqs_does():
    handle = RecallHandle("shop%later", 1 << 40, 1_795_000_000_000, "01AB")
    assert decode_handle(handle.encode()) == handle
