"""OpenTelemetry: spans of a client's calls, and the trace context in messages.

    client = connect("data", tracing=Tracing(), interceptors=[TraceContext()])

    with tracer.start_as_current_span("order"):          # a producer: nothing more to do
        client.send("orders", b"…")

    for message in client.consume("orders"):             # a consumer: continue the trace
        with tracer.start_as_current_span("bill", context=context_of(message), kind=CONSUMER):
            …

`Tracing` records what the client does, and services whose `tracing.endpoint` is set continue it.
`TraceContext` has the context travel with a message, as `traceparent` among its properties, to
its readers: in the W3C's format, or whatever propagator is configured. Needs
`pip install 'stratamq[tracing]'`, and an SDK that the program configures.
"""

from collections.abc import Iterable
from importlib.metadata import version

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from stratamq.client.client_settings import Interceptor
from stratamq.client.received import ReceivedMessage
from stratamq.client.spans import Called
from stratamq.rpc.request_ids import Request, fields_of, traceparent_of


class TraceContext(Interceptor):
    """Writes the current context into the properties of every message that is sent."""

    def __init__(self, propagator: TextMapPropagator | None = None) -> None:
        """`propagator` None: the one that is configured for the process."""
        self._propagator = propagator

    def sending(self, topic: str, properties: dict[str, str]) -> None:
        (self._propagator or propagate.get_global_textmap()).inject(properties)


def context_of(message: ReceivedMessage, propagator: TextMapPropagator | None = None) -> Context:
    """The context in which a message was sent, to continue or to link; the current one when it
    carries none."""
    return (propagator or propagate.get_global_textmap()).extract(message.properties)


class Tracing:
    """Spans of one client, or of several: `send TOPIC` for each call that stores messages, and for
    each batch of a producer, linked to the contexts that `TraceContext` gave its messages;
    `receive TOPIC` for each pull, and for each stream of a reader; and one for every other call.
    Their parent is the current span; a batch's has none."""

    def __init__(self, tracer_provider: trace.TracerProvider | None = None) -> None:
        """`tracer_provider` None: the one that is configured for the process."""
        self._tracer = trace.get_tracer("stratamq", version("stratamq"), tracer_provider)

    def begin(self, called: Called, links: Iterable[str] = ()) -> "ClientSpan":
        span = self._tracer.start_span(
            called.name,
            Context() if called.alone else None,
            kind=SpanKind.PRODUCER if called.produces else SpanKind.CLIENT,
            attributes=called.attributes,
            links=[Link(_context(one)) for one in links],
        )
        return ClientSpan(span)


class ClientSpan:
    """The span of a call or a batch, until `end`."""

    def __init__(self, span: Span) -> None:
        self._span: Span | None = span
        context = span.get_span_context()
        known = traceparent_of(context.trace_id, context.span_id, bool(context.trace_flags & 1))
        self.request = Request(traceparent=known if context.is_valid else "")

    def end(self, error: BaseException | None = None) -> None:
        """Has no effect once it has ended."""
        span, self._span = self._span, None
        if span is None:
            return
        if error is not None:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(Status(StatusCode.ERROR, str(error)))
        span.end()


def _context(traceparent: str) -> SpanContext:
    trace_id, span_id, recorded = fields_of(traceparent)
    return SpanContext(trace_id, span_id, True, TraceFlags(recorded))
