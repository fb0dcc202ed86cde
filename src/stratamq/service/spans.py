"""Spans of a service by OpenTelemetry's SDK: of calls, and of their parts."""

import time
from collections.abc import Generator
from contextlib import contextmanager

import grpc
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

from stratamq.rpc.request_ids import (
    Attributes,
    Request,
    current,
    fields_of,
    is_recorded,
    traceparent_of,
    valid,
    within,
)
from stratamq.rpc.status import code_of

OURS = "/stratamq."
"""Methods of other services (health, reflection) are not recorded."""
_ID_BITS = 64
_FAULTS = (
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DATA_LOSS,
)
"""Faults of the service, not of its caller."""


class RecordedSpan:
    """`service.recorder.Recorded`."""

    __slots__ = ("_span", "_tracer", "traceparent")

    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer = tracer
        self._span = span
        context = span.get_span_context()
        self.traceparent = traceparent_of(context.trace_id, context.span_id, recorded=True)

    @contextmanager
    def part(self, name: str, attributes: Attributes) -> Generator[None, None, None]:
        recorded = RecordedSpan(self._tracer, self._child(name, dict(attributes)))
        inner = Request()
        inner.span = recorded
        try:
            with within(inner):
                yield
        except BaseException as error:
            recorded.end(error)
            raise
        recorded.end()

    def past_part(self, name: str, begin_ns: int, end_ns: int) -> None:
        offset_ns = time.time_ns() - time.monotonic_ns()
        self._child(name, {}, begin_ns + offset_ns).end(end_ns + offset_ns)

    def end(self, error: BaseException | None = None) -> None:
        code = grpc.StatusCode.OK if error is None else code_of(error)
        self._span.set_attribute("rpc.response.status_code", code.name)
        if code in _FAULTS:
            self._span.set_attribute("error.type", code.name)
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()

    def _child(
        self, name: str, attributes: dict[str, str | int | bool], begin_ns: int | None = None
    ) -> Span:
        context = set_span_in_context(self._span, Context())
        return self._tracer.start_span(name, context, attributes=attributes, start_time=begin_ns)


class SpanRecorder:
    """`service.recorder.Recorder`. Thread-safe."""

    def __init__(
        self, room: str, version: str, processor: SpanProcessor, sample_ratio: float
    ) -> None:
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,  # `serve` samples
            resource=Resource.create(
                {"service.name": f"stratamq-{room}", "service.version": version}
            ),
            shutdown_on_exit=False,
            id_generator=_RequestIds(),
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("stratamq", version)
        self._below = round(sample_ratio * (1 << _ID_BITS))

    def serve(self, method: str, request: Request) -> RecordedSpan | None:
        if not method.startswith(OURS):
            return None
        if request.recorded_by_caller():
            parent = _remote(request.traceparent)
        elif int(request.id[-_ID_BITS // 4 :], 16) < self._below:
            parent = Context()
        else:
            return None
        name = method.removeprefix("/")
        span = self._tracer.start_span(
            name,
            parent,
            SpanKind.SERVER,
            attributes={"rpc.system.name": "grpc", "rpc.method": name},
        )
        recorded = request.span = RecordedSpan(self._tracer, span)
        return recorded

    def continued(self, traceparent: str, name: str) -> RecordedSpan | None:
        if not valid(traceparent) or not is_recorded(traceparent):
            return None
        span = self._tracer.start_span(name, _remote(traceparent), SpanKind.SERVER)
        return RecordedSpan(self._tracer, span)

    def close(self) -> None:
        self._provider.shutdown()


class _RequestIds(RandomIdGenerator):
    """A trace that begins in this process has the request's ID."""

    def generate_trace_id(self) -> int:
        request = current()
        return super().generate_trace_id() if request is None else int(request.id, 16)


def _remote(traceparent: str) -> Context:
    trace_id, span_id, recorded = fields_of(traceparent)
    context = SpanContext(trace_id, span_id, True, TraceFlags(recorded))
    return set_span_in_context(NonRecordingSpan(context), Context())
