"""What ends early by RocketMQ 5's gRPC protocol: messages, as dead letters or taken back, and
streams of clients that have left."""

import grpc
import pytest
from stratamq_gateway.messaging.recalling import RecallHandle, decode_handle
from stratamq_gateway.messaging.statuses import RefusedError

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client import Topic, connect
from stratamq.formats.topic_types import MessageType
from tests.gateway.messaging import Client, code, handle_of, later, message
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


def test_a_delayed_message_is_taken_back_once_and_never_delivered(broker, client):
    kept, taken_back = later(client), later(client)
    answer = client.recall(taken_back.recall_handle)
    assert (code(answer), answer.message_id) == ("OK", taken_back.message_id)
    broker[0].kill(DELIVERY)
    broker[0].start((DELIVERY,))
    again = client.recall(taken_back.recall_handle)
    assert code(again) == "NOT_FOUND" and "cancelled" in again.status.message
    (found,) = client.receive("later", "late")
    assert found.system_properties.message_id == kept.message_id
    late = client.recall(kept.recall_handle)
    assert code(late) == "NOT_FOUND" and "delivered" in late.status.message
    client.ack("later", "late", found)
    assert client.receive("later", "late", 3) == []


def test_what_is_no_delayed_message_of_the_topic_is_not_taken_back(client):
    entry = later(client, ahead_ms=60_000)
    assert code(client.recall(entry.recall_handle, "normal")) == "BAD_REQUEST"
    handle = decode_handle(entry.recall_handle)
    assert code(client.recall(handle._replace(topic="normal").encode(), "normal")) == (
        "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"
    )
    assert code(client.recall(handle._replace(message_id="01").encode())) == "NOT_FOUND"
    assert code(client.recall(entry.recall_handle)) == "OK", "the producer's own"
    (plain,) = client.send(message("normal", b"x")).entries
    assert plain.recall_handle == ""


@pytest.mark.parametrize("handle", ["", "x", "AAAA", "djIgdCAwIDAgMDE=", "djEgdCAtMSAwIDAx"])
def test_what_is_no_handle_is_refused(handle):
    with pytest.raises(RefusedError):
        decode_handle(handle)


def test_a_handle_says_what_its_message_is_as_rocketmqs_does():
    handle = RecallHandle("shop%later", 1 << 40, "an east@1", 1_795_000_000_000, "01AB")
    assert decode_handle(handle.encode()) == handle


def test_a_stream_after_its_client_s_goodbye_ends_at_once(client):
    """Java's client opens one where its last one broke a moment before it is closed. It waits for
    that stream's end, and no transaction is asked about on it."""
    settings = pb.Settings(client_type=pb.PRODUCER)
    settings.publishing.topics.add(name="normal")
    stream, ended = client.telemetry(settings)
    assert code(next(stream)) == "OK"
    goodbye = pb.NotifyClientTerminationRequest()
    assert code(client.call("NotifyClientTermination", goodbye)) == "OK"
    ghost, ghost_ended = client.telemetry(settings)
    assert (list(stream), list(ghost)) == ([], [])
    assert code(client.send(message("normal"))) == "OK", "it has come back"
    back, back_ended = client.telemetry(settings)
    assert code(next(back)) == "OK"
    for one in (ended, ghost_ended, back_ended):
        one.set()


@pytest.mark.parametrize("kind", [pb.LITE_PUSH_CONSUMER, pb.LITE_SIMPLE_CONSUMER])
def test_lite_topics_are_refused_with_a_reason(client, kind):
    """The client does not start. What it says of its topics, and messages, are refused as well."""
    settings = pb.Settings(client_type=kind)
    settings.subscription.group.name = "lite"
    stream, ended = client.telemetry(settings)
    with pytest.raises(grpc.RpcError) as failure:
        next(stream)
    ended.set()
    assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "LITE topics are not served" in failure.value.details()
    asked = pb.SyncLiteSubscriptionRequest(
        group=pb.Resource(name="lite"), topic=pb.Resource(name="normal"), lite_topic_set=["a"]
    )
    answer = client.call("SyncLiteSubscription", asked)
    assert code(answer) == "NOT_IMPLEMENTED" and "not served" in answer.status.message
    sent = client.send(message("normal", lite_topic="a"))
    assert code(sent) == "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"
