"""Spans of a service, as the SDK's exporter gets them, and what a collector that is away costs."""

import asyncio
import logging
import socket
import sys

import grpc
import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from stratamq_bench.ports import free_port

from stratamq.errors import ConfigurationError, NotFoundError
from stratamq.rpc.request_ids import KEY, Request, current, part
from stratamq.service.config import load
from stratamq.service.otlp import MAX_WAITING, SPANS_A_REQUEST, otlp_recorder
from stratamq.service.server import Server
from stratamq.service.spans import SpanRecorder
from stratamq.service.tracing import SECTION, TracingConfig, recorder_of
from tests.support.collector import Collector

TRACE, CALLERS_SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
RECORDED = f"00-{TRACE}-{CALLERS_SPAN}-01"
NOT_RECORDED = f"00-{TRACE}-{CALLERS_SPAN}-00"
SERVICE = "stratamq.test.Sample"


async def read(request: bytes, context) -> bytes:
    with part("file read", topic="t"):
        inner = current().traceparent
    return inner.encode()


async def fail(request: bytes, context) -> bytes:
    if request == b"bug":
        raise ValueError("swordfish")
    raise NotFoundError("there is none")


async def count(request: bytes, context):
    for number in range(3):
        yield str(number).encode()


def handlers() -> list[grpc.GenericRpcHandler]:
    methods = {
        "read": grpc.unary_unary_rpc_method_handler(read),
        "fail": grpc.unary_unary_rpc_method_handler(fail),
        "count": grpc.unary_stream_rpc_method_handler(count),
    }
    names = (SERVICE, "grpc.other.Sample")
    return [grpc.method_handlers_generic_handler(name, methods) for name in names]


@pytest.fixture
def serve(run):
    """Runs `scenario(call)` against a service, `call(method, request, traceparent)`."""

    def serve(recorder, scenario):
        async def whole():
            server = Server("test", stop_grace_ms=100, recorder=recorder)
            for one in handlers():
                server.add_generic(one)
            await server.start("127.0.0.1:0")

            async def call(method, request=b"", traceparent="", service=SERVICE):
                metadata = ((KEY, traceparent),) if traceparent else ()
                path = f"/{service}/{method}"
                if method == "count":
                    answers = channel.unary_stream(path)(request, metadata=metadata)
                    return [one async for one in answers]
                return await channel.unary_unary(path)(request, metadata=metadata)

            try:
                async with grpc.aio.insecure_channel(server.address) as channel:
                    return await scenario(call)
            finally:
                await server.stop()

        return run(whole())

    return serve


def in_memory(ratio: float) -> tuple[SpanRecorder, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    return SpanRecorder("test", "1", SimpleSpanProcessor(exporter), ratio), exporter


def test_a_call_that_its_caller_records_is_continued_with_its_parts(serve):
    recorder, exporter = in_memory(0.0)

    async def scenario(call):
        return await call("read", traceparent=RECORDED)

    passed_on = serve(recorder, scenario).decode()
    inner, outer = exporter.get_finished_spans()
    assert (outer.name, outer.kind) == (f"{SERVICE}/read", SpanKind.SERVER)
    assert dict(outer.attributes) == {
        "rpc.system.name": "grpc",
        "rpc.method": f"{SERVICE}/read",
        "rpc.response.status_code": "OK",
    }
    assert f"{outer.context.trace_id:032x}" == TRACE
    assert f"{outer.parent.span_id:016x}" == CALLERS_SPAN and outer.parent.is_remote
    assert (inner.name, inner.attributes["topic"]) == ("file read", "t")
    assert inner.parent.span_id == outer.context.span_id
    assert passed_on == f"00-{TRACE}-{inner.context.span_id:016x}-01"
    assert outer.resource.attributes["service.name"] == "stratamq-test"


def test_a_call_without_a_recorded_parent_is_sampled_by_its_id(serve):
    async def scenario(call):
        for low in ("0" * 16, "7" + "f" * 15, "8" + "0" * 15, "f" * 16):
            await call("read", traceparent=f"00-{'1' * 16}{low}-{CALLERS_SPAN}-00")

    recorded = {}
    for ratio in (0.0, 0.5, 1.0):
        recorder, exporter = in_memory(ratio)
        serve(recorder, scenario)
        calls = [one for one in exporter.get_finished_spans() if one.kind is SpanKind.SERVER]
        assert all(one.parent is None for one in calls)
        recorded[ratio] = [f"{one.context.trace_id:032x}"[16:] for one in calls]
    everything = ["0" * 16, "7" + "f" * 15, "8" + "0" * 15, "f" * 16]
    assert recorded == {0.0: [], 0.5: everything[:2], 1.0: everything}


def test_a_call_without_an_id_is_recorded_under_the_one_it_gets(serve):
    recorder, exporter = in_memory(1.0)

    async def scenario(call):
        return await call("read")

    passed_on = serve(recorder, scenario).decode()
    assert {f"{one.context.trace_id:032x}" for one in exporter.get_finished_spans()} == {
        passed_on[3:35]
    }


def test_faults_of_the_service_are_errors_and_the_callers_are_not(serve):
    recorder, exporter = in_memory(1.0)

    async def scenario(call):
        for request in (b"bug", b"none"):
            with pytest.raises(grpc.RpcError):
                await call("fail", request)

    serve(recorder, scenario)
    bug, missing = exporter.get_finished_spans()
    assert (bug.status.status_code, bug.attributes["error.type"]) == (StatusCode.ERROR, "INTERNAL")
    assert missing.status.status_code is StatusCode.UNSET
    assert missing.attributes["rpc.response.status_code"] == "NOT_FOUND"
    assert not bug.events and "swordfish" not in str(bug.to_json())


def test_a_stream_is_one_span(serve):
    recorder, exporter = in_memory(0.0)

    async def scenario(call):
        return await call("count", traceparent=RECORDED)

    assert len(serve(recorder, scenario)) == 3
    [span] = exporter.get_finished_spans()
    assert span.name == f"{SERVICE}/count"


def test_other_services_of_the_server_are_not_recorded(serve):
    recorder, exporter = in_memory(1.0)

    async def scenario(call):
        await call("count", traceparent=RECORDED, service="grpc.other.Sample")

    serve(recorder, scenario)
    assert exporter.get_finished_spans() == ()


def test_without_an_endpoint_nothing_is_imported_and_nothing_recorded(monkeypatch):
    monkeypatch.setitem(sys.modules, "stratamq.service.otlp", None)
    assert recorder_of(TracingConfig(), "test") is None


def test_an_endpoint_without_opentelemetry_is_refused_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "stratamq.service.otlp", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'stratamq\[otlp\]'"):
        recorder_of(TracingConfig(endpoint="http://127.0.0.1:4318/v1/traces"), "test")


@pytest.mark.parametrize(
    "wrong", ["collector:4318", "http://", "ftp://c/v1", "http://[::1/v1", "http://c"]
)
def test_an_endpoint_that_is_no_url_is_refused(wrong):
    with pytest.raises(ConfigurationError, match=r"tracing: endpoint .* is no URL"):
        load(TracingConfig, SECTION, environ={}, overrides=[f"tracing.endpoint={wrong}"])


# --- the collector ---


@pytest.fixture
def collector():
    collector = Collector()
    yield collector
    collector.close()


def test_spans_reach_a_collector_over_the_wire(serve, collector):
    recorder = otlp_recorder(collector.endpoint, 0.0, "test")

    async def scenario(call):
        await call("read", traceparent=RECORDED)

    try:
        serve(recorder, scenario)
        found = collector.wait_for("file read", f"{SERVICE}/read")
    finally:
        recorder.close()
    outer, inner = found[f"{SERVICE}/read"], found["file read"]
    assert (outer.service, outer.trace, outer.parent) == ("stratamq-test", TRACE, CALLERS_SPAN)
    assert inner.parent == outer.span
    assert outer.begin_ns <= inner.begin_ns <= inner.end_ns <= outer.end_ns


def test_a_stop_sends_what_is_left(serve, collector):
    recorder = otlp_recorder(collector.endpoint, 0.0, "test")

    async def scenario(call):
        await call("count", traceparent=RECORDED)

    serve(recorder, scenario)
    recorder.close()
    assert [one.name for one in collector.spans] == [f"{SERVICE}/count"]


def test_a_collector_that_refuses_is_logged_once_and_so_is_its_return(serve, collector, caplog):
    caplog.set_level(logging.INFO)
    collector.status = 400
    recorder = otlp_recorder(collector.endpoint, 0.0, "test")

    async def scenario(call):
        for requests in (1, 2, 3):
            await call("count", traceparent=RECORDED)
            await asyncio.to_thread(collector.wait, lambda one, n=requests: one.requests >= n)
        collector.status = 200
        await call("count", traceparent=RECORDED)
        await asyncio.to_thread(collector.wait, lambda one: one.spans)

    try:
        serve(recorder, scenario)
    finally:
        recorder.close()
    logged = [one.message for one in caplog.records if one.levelno >= logging.INFO]
    assert [one for one in logged if "traces" in one] == [
        "traces not accepted by the collector",
        "traces accepted by the collector again",
    ]
    assert not [one for one in caplog.records if one.name.startswith("opentelemetry")]


def test_a_collector_that_is_away_costs_the_oldest_spans_and_no_memory(caplog):
    port = free_port()
    recorder = otlp_recorder(f"http://127.0.0.1:{port}/v1/traces", 1.0, "test")
    for number in range(3 * MAX_WAITING):
        recorder.serve(f"/stratamq.Sample/{number}", Request()).end()
    collector = Collector(port)
    try:
        last = f"stratamq.Sample/{3 * MAX_WAITING - 1}"
        spans = collector.wait(lambda one: any(span.name == last for span in one.spans))
        recorder.close()
    finally:
        collector.close()
    assert len(spans) <= MAX_WAITING + SPANS_A_REQUEST  # those on their way
    ours = [one for one in caplog.records if one.name.startswith("stratamq")]
    lines = [one.message for one in ours if one.levelno >= logging.WARNING]
    assert lines in (
        [],
        ["traces not accepted by the collector"],
    )  # one, if the first attempts were over by then


def test_a_collector_that_never_answers_holds_up_no_call_and_no_stop(serve, caplog):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        recorder = otlp_recorder(f"http://127.0.0.1:{port}/v1/traces", 1.0, "test")

        async def scenario(call):
            for _ in range(SPANS_A_REQUEST):  # two spans each: the exporter waits for an answer
                await call("read")
            taken, _ = await asyncio.to_thread(silent.accept)
            with taken:
                for _ in range(100):
                    await call("read")

        serve(recorder, scenario)
        recorder.close()
    lines = [one.message for one in caplog.records if one.levelno >= logging.WARNING]
    assert lines == ["traces not accepted by the collector"]
