"""OpenTelemetry: the trace context travels with a message, as `traceparent` among its properties.

    client = connect("data", interceptors=[TraceContext()])

    with tracer.start_as_current_span("order"):          # a producer: nothing more to do
        client.send("orders", b"…")

    for message in client.consume("orders"):             # a consumer: continue the trace
        with tracer.start_as_current_span("bill", context=context_of(message), kind=CONSUMER):
            …

Needs `pip install 'stratamq[tracing]'`. The format is the W3C's Trace Context, or whatever
propagator is configured.
"""

from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator

from stratamq.client.hooks import Interceptor
from stratamq.client.received import ReceivedMessage


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
