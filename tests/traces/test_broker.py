"""One trace from a client through the services of a real broker, as a collector gets it."""

from collections import Counter

import pytest
from opentelemetry import trace as trace_api
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stratamq.client import Message, connect, connect_async, one_request
from stratamq.client.tracing import TraceContext, Tracing
from stratamq.errors import InvalidRequestError
from tests.ha.pairs import Pair
from tests.support.brokers import Broker
from tests.support.collector import Collector, Received
from tests.support.waiting import until
from tests.tier_service.test_uploading import Tier, settings

CLIENT, PRODUCER, SERVER = 3, 4, 2
LOG, DISPATCHER = "stratamq.api.v1.CommitLogService", "stratamq.api.v1.DispatcherService"
SEGMENT = 1 << 20


@pytest.fixture(scope="module")
def collector():
    collector = Collector()
    yield collector
    collector.close()


@pytest.fixture(scope="module")
def broker(collector, tmp_path_factory):
    root = tmp_path_factory.mktemp("broker")
    given = settings(
        root,
        "commitlog.release_timeout_ms=0",
        f"tracing.endpoint={collector.endpoint}",
        "tracing.sample_ratio=0",
    )
    with Broker(root / "store", root / "logs", given) as broker:
        yield broker.start(("commitlog", "dispatcher", "index", "tier"))


@pytest.fixture(scope="module")
def provider(collector):
    """The program's own SDK, which sends to the same collector."""
    found = TracerProvider(resource=Resource.create({"service.name": "program"}))
    found.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(collector.endpoint)))
    yield found
    found.shutdown()


@pytest.fixture
def client(broker, provider):
    with connect(
        broker.root, retry_timeout_s=60, tracing=Tracing(provider), interceptors=[TraceContext()]
    ) as client:
        yield client


@pytest.fixture
def begin(provider):
    """A span of the program's: the context manager."""
    return provider.get_tracer("program").start_as_current_span


def trace_of(span: trace_api.Span) -> str:
    return f"{span.get_span_context().trace_id:032x}"


class Trace:
    """The spans of one trace, once those of these names are there, each as often as it is named."""

    def __init__(self, collector: Collector, trace_id: str, *names: str) -> None:
        def found() -> list[Received]:
            return [one for one in list(collector.spans) if one.trace == trace_id]

        collector.wait(lambda _: Counter(names) <= Counter(one.name for one in found()))
        self.spans = found()

    def __getitem__(self, name: str) -> Received:
        """A service's, where a call is a span of both its ends."""
        mine = [one for one in self.spans if one.name == name]
        return next((one for one in mine if one.service != "program"), mine[0])

    def path(self, name: str) -> list[str]:
        """From the program's span down to this one."""
        by_id = {one.span: one for one in self.spans}
        span, names = self[name], [name]
        while (above := by_id.get(span.parent)) is not None:
            span = above
            names.insert(0, span.name)
        return names


def test_a_send_is_one_trace_down_to_the_flush(client, begin, collector):
    client.send("sent", b"first")
    with begin("order") as span:
        client.send("sent", b"x", queue_id=0)
    append = f"{LOG}/Append"
    parts = ("append wait", "pass write", "flush wait")
    spans = Trace(collector, trace_of(span), "order", "send sent", append, *parts)
    for part in parts:
        assert spans.path(part) == ["order", "send sent", append, part]
        assert spans[part].service == "stratamq-commitlog"
    assert (spans["send sent"].service, spans["send sent"].kind) == ("program", PRODUCER)
    assert spans["send sent"].attributes == {
        "messaging.system": "stratamq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "sent",
    }
    assert spans[append].kind == SERVER
    wait, write, flush = (spans[one] for one in parts)
    assert wait.end_ns <= write.begin_ns + 1_000 and write.end_ns <= flush.begin_ns + 1_000
    assert "replica wait" not in {one.name for one in spans.spans}


def test_a_batch_of_a_producer_is_one_span_linked_to_its_messages(client, begin, collector):
    client.send("batched", b"first")
    with client.producer() as producer:
        producer.send("batched", b"makes the stream", queue_id=0).result()
        with begin("order") as span:
            for _ in range(10):
                producer.send("batched", b"x", queue_id=0)
            producer.flush()
    tagged = [one for one in client.consume("batched") if "traceparent" in one.properties]
    assert {one.properties["traceparent"][3:35] for one in tagged} == {trace_of(span)}
    batch = collector.wait(
        lambda one: [each for each in one.spans if each.links and trace_of(span) in each.links]
    )
    # The first message may be sent before the others are there.
    for sent in {one.trace for one in batch if trace_of(span) in one.links}:
        spans = Trace(collector, sent, "send batched", "append batch", "pass write", "flush wait")
        assert spans.path("flush wait") == ["send batched", "append batch", "flush wait"]
        assert spans["append batch"].service == "stratamq-commitlog"
        assert spans["send batched"].parent == ""


def test_a_refused_message_is_an_error_of_its_span(client, begin, collector):
    client.send("refused", b"first", queue_id=0)
    with begin("order") as span, pytest.raises(InvalidRequestError):
        client.send("refused", b"x", queue_id=999_999)
    spans = Trace(collector, trace_of(span), "order", "send refused")
    assert spans["send refused"].failed
    assert spans["send refused"].attributes["error.type"] == "InvalidRequestError"


def test_a_reader_is_one_trace_through_the_dispatcher_to_the_tier(client, begin, collector, broker):
    with client.producer() as producer:
        for number in range(2_000):
            producer.send_message(Message("t", bytes(1_000), queue_id=number % 4))
    tier = Tier(broker.root.parent)
    until(lambda: sum(end for _, end in tier.messages().values()) >= 2_000, "all is in the tier")
    end = client.log_state().appended_offset
    below = end - end % SEGMENT
    until(lambda: client.admin.delete_below(below)[0] == below, "segments go")
    until(lambda: {one.min_offset for one in client.queues("t")} == {0}, "the tier is known")
    with begin("bill") as span:
        assert len(list(client.consume("t"))) == 2_000
        assert client.pull("t", 0, 0).messages
    fetch = "stratamq.api.v1.TierService/FetchMessages"
    stream, pull = f"{DISPATCHER}/PullStream", f"{DISPATCHER}/Pull"
    awaited = ("bill", "receive t", stream, pull, "tier fetch", fetch)
    spans = Trace(collector, trace_of(span), *awaited)
    assert spans.path("tier fetch")[:2] == ["bill", "receive t"]
    assert spans.path(fetch)[-2:] == ["tier fetch", fetch]
    assert spans[fetch].service == "stratamq-tier" and spans["receive t"].kind == CLIENT
    assert spans.path(stream) == ["bill", "receive t", stream]
    assert spans.path(pull) == ["bill", "receive t", pull]


async def test_the_asyncio_client_records_the_same(broker):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with connect_async(broker.root, retry_timeout_s=60, tracing=Tracing(provider)) as client:
        await client.send("async", b"1", queue_id=0)
        async with client.producer() as producer:
            await producer.send("async", b"2", queue_id=0)
            alone = Message("async", b"3", queue_id=0)
            await (await producer.send_message(alone, alone=True))
        found = [message.body async for message in client.consume("async")]
    assert sorted(found) == [b"1", b"2", b"3"]
    named = [one.name for one in exporter.get_finished_spans()]
    assert named.count("send async") == 3 and "receive async" in named
    assert all(one.end_time for one in exporter.get_finished_spans())


def test_a_query_is_one_trace_through_the_index(client, begin, collector):
    client.send("asked", b"x", keys=["k1"])
    until(lambda: client.query_key("asked", "k1").messages, "it is indexed")
    with begin("look") as span:
        assert client.query_key("asked", "k1").messages
    query = "stratamq.api.v1.IndexService/QueryKey"
    spans = Trace(collector, trace_of(span), "look", query, query, "index read")
    assert spans.path("index read") == ["look", query, query, "index read"]
    assert spans["index read"].service == "stratamq-index"


def test_a_send_to_a_master_that_waits_for_its_slave_shows_that_wait(
    tmp_path, collector, provider, begin
):
    settings = (f"tracing.endpoint={collector.endpoint}", "tracing.sample_ratio=0")
    with Pair(tmp_path, role="SYNC_MASTER", both=settings) as pair:
        pair.start()
        pair.send(1)
        pair.caught_up()
        recorded = connect(pair.master.root, retry_timeout_s=60, tracing=Tracing(provider))
        with recorded as client, begin("order") as span:
            client.send("t", b"x")
        spans = Trace(collector, trace_of(span), "order", f"{LOG}/Append", "replica wait")
    assert spans.path("replica wait") == ["order", "send t", f"{LOG}/Append", "replica wait"]


def test_calls_of_a_program_without_tracing_are_not_recorded_but_have_its_id(broker, collector):
    with connect(broker.root, retry_timeout_s=60) as client, one_request() as request:
        client.send("plain", b"x", queue_id=0)
        with pytest.raises(InvalidRequestError) as refused:
            client.pull("", 0, 0)
    assert refused.value.request_id == request.id
    assert not [one for one in collector.spans if one.trace == request.id]
