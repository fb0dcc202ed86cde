"""What a program puts between its messages and the wire, and what a body may be."""

import itertools
import json

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stratamq.client import Interceptor, Message
from stratamq.client.tracing import TraceContext, context_of
from stratamq.errors import InvalidRequestError
from tests.client.conftest import SEGMENT_BYTES
from tests.support.brokers import COMMITLOG, DISPATCHER, broker_fixture

BODIES = {
    "None": (None, 'pass b"" for an empty one'),
    "a text": ("text", "text.encode()"),
    "a dict": ({"order": 1}, "json.dumps"),
    "a number": (5, "json.dumps"),
    "an object": (object(), "serializer"),
}


SETTINGS = (f"commitlog.segment_bytes={SEGMENT_BYTES}", "commitlog.followers=dispatcher")
broker = broker_fixture(*SETTINGS, rooms=[COMMITLOG, DISPATCHER], of_each_kind=True)


@pytest.fixture(scope="module")
def plain(broker, opened):
    with opened(broker.root, retry_timeout_s=60) as client:
        yield client


@pytest.mark.parametrize("body, advice", BODIES.values(), ids=BODIES)
def test_a_body_that_is_no_bytes_is_refused_with_what_to_pass(plain, body, advice):
    with pytest.raises(InvalidRequestError, match="a body is bytes") as refused:
        plain.send("bodies", body)
    assert advice in str(refused.value)
    with plain.producer() as producer:
        with pytest.raises(InvalidRequestError, match="a body is bytes"):
            producer.send("bodies", body)
        with pytest.raises(InvalidRequestError, match="a body is bytes"):
            producer.send_message(Message("bodies", body, wait_store_ok=False))


def test_a_body_may_be_any_kind_of_bytes(plain):
    for body in (b"one", bytearray(b"two"), memoryview(b"three")):
        plain.send("kinds", body, queue_id=0)
    with plain.producer() as producer:
        producer.send("kinds", bytearray(b"four"), queue_id=0)
    assert [m.body for m in plain.consume("kinds")] == [b"one", b"two", b"three", b"four"]


@pytest.mark.parametrize(
    "properties, reason",
    [
        ({"TAGS": "t"}, "TAGS: give the field instead"),
        ({"UNIQ_KEY": "t"}, "UNIQ_KEY: give the field instead"),
        ({"number": 1}, "property 'number' is 1"),
        ({1: "one"}, "property 1 is 'one'"),
        ({"none": None}, "property 'none' is None"),
    ],
)
def test_properties_that_are_fields_or_no_texts_are_refused(plain, properties, reason):
    with pytest.raises(InvalidRequestError, match=reason):
        plain.send("properties", b"", properties=properties)
    with plain.producer() as producer, pytest.raises(InvalidRequestError, match=reason):
        producer.send("properties", b"", properties=properties)


def as_json(value) -> bytes:
    return json.dumps(value).encode()


def test_a_serializer_makes_the_body_and_a_deserializer_the_value(broker, opened, plain):
    with opened(broker.root, serializer=as_json, deserializer=json.loads) as client:
        client.send("json", {"number": 0}, queue_id=0)
        with client.producer() as producer:
            producer.send("json", {"number": 1}, queue_id=0)
            producer.send_message(Message("json", {"number": 2}, queue_id=0))
        values = [message.value for message in client.consume("json")]
        with client.consume("json") as reader:
            assert [one.value for one in reader.getmany(10, 60)] == values
    assert values == [{"number": number} for number in range(3)]
    assert [m.value for m in plain.consume("json")] == [as_json(value) for value in values]


def test_a_serializer_that_gives_no_bytes_is_refused(broker, opened):
    with (
        opened(broker.root, serializer=json.dumps) as client,
        pytest.raises(InvalidRequestError, match="the serializer gave of type str"),
    ):
        client.send("json-text", {"number": 0})


def test_a_value_that_cannot_be_read_fails_where_it_is_asked_for(broker, opened, plain):
    plain.send("no-json", b"{", queue_id=0)
    plain.send("no-json", b"{}", queue_id=0)
    with opened(broker.root, deserializer=json.loads) as client:
        bad, good = client.consume("no-json")
    with pytest.raises(json.JSONDecodeError):
        _ = bad.value
    assert (bad.body, good.value) == (b"{", {})


class Seen(Interceptor):
    def __init__(self) -> None:
        self.sent: list[str] = []
        self.given: list[str] = []

    def sending(self, topic, properties):
        self.sent.append(topic)
        properties["number"] = str(len(self.sent))

    def received(self, message):
        self.given.append(message.properties["number"])


def test_an_interceptor_sees_every_message_once(broker, opened):
    seen = Seen()
    large = bytes(300_000)
    with opened(broker.root, interceptors=[seen]) as client:
        client.send("seen", b"a", queue_id=0)
        with client.producer(batch_bytes=100_000) as producer:
            producer.send("seen", b"b", queue_id=0, properties={"own": "kept"})
            producer.send("seen", large, queue_id=0).result()
            producer.send_message(Message("seen", b"c", queue_id=0, wait_store_ok=False)).result()
        # The last one was answered before it was on the disk: consumers see it a little later.
        with client.consume("seen", follow=True) as reader:
            first = next(reader)
            rest = reader.getmany(2, 60)
            rest += itertools.islice(reader, 3 - len(rest))
    assert seen.sent == ["seen"] * 4
    assert seen.given == ["1", "2", "3", "4"]
    assert [first.body, *[m.body for m in rest]] == [b"a", b"b", large, b"c"]
    assert rest[0].properties["own"] == "kept"


def test_nothing_is_sent_when_an_interceptor_raises(broker, opened, plain):
    class Refusing(Interceptor):
        def sending(self, topic, properties):
            raise ValueError("not today")

    with opened(broker.root, interceptors=[Refusing()]) as client:
        with pytest.raises(ValueError, match="not today"):
            client.send("refused", b"a")
        with client.producer() as producer, pytest.raises(ValueError, match="not today"):
            producer.send("refused", b"a")
    assert plain.topics("refused") == []


def test_a_trace_continues_from_the_producer_to_the_consumer(broker, opened):
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    tracer = provider.get_tracer("test")
    with opened(broker.root, interceptors=[TraceContext()]) as client:
        with tracer.start_as_current_span("order"):
            client.send("traced", b"one", queue_id=0)
            with client.producer() as producer:
                producer.send("traced", b"two", queue_id=0)
        client.send("traced", b"without", queue_id=0)
        *traced, without = client.consume("traced")
        for message in traced:
            with tracer.start_as_current_span("bill", context=context_of(message)):
                pass
    *bills, order = sorted(spans.get_finished_spans(), key=lambda span: span.name)
    assert {bill.parent.span_id for bill in bills} == {order.context.span_id}
    assert {bill.context.trace_id for bill in bills} == {order.context.trace_id}
    assert traced[0].properties["traceparent"].split("-")[1] == f"{order.context.trace_id:032x}"
    assert "traceparent" not in without.properties
    assert not trace.get_current_span(context_of(without)).get_span_context().is_valid


def test_a_client_that_was_closed_takes_no_more_calls(broker, opened):
    client = opened(broker.root)
    client.send("closed", b"1", queue_id=0)
    client.close()
    client.close()
    for call in (
        lambda: client.send("closed", b"2"),
        lambda: client.pull("closed", 0, 0),
        lambda: client.topics(),
        lambda: list(client.consume("closed")),
        lambda: client.admin.dispatch_state(),
    ):
        with pytest.raises(InvalidRequestError, match="closed"):
            call()
    with client.producer() as producer, pytest.raises(InvalidRequestError, match="closed"):
        producer.send("closed", b"3")
