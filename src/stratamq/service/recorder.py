"""What the spans of a service's calls are made by, as the service sees it."""

from typing import Protocol

from stratamq.rpc.request_ids import Request, Span
from stratamq.service import metrics

SPANS_ENDED = metrics.counter(
    "trace_spans_ended", "Recorded spans.", asks="How many spans are recorded?"
)
SPANS_SENT = metrics.counter(
    "trace_spans_sent",
    "Spans that the collector has accepted. Recorded spans that are never sent are lost.",
    asks="Does the collector take the spans?",
)


class Recorded(Span, Protocol):
    """A span of a service, until `end`."""

    def end(self, error: BaseException | None = None) -> None: ...


class Recorder(Protocol):
    """Records the spans of one process. Never waits for the collector."""

    def serve(self, method: str, request: Request) -> Recorded | None:
        """The span of a call, which becomes the request's; None: it is not recorded."""

    def continued(self, traceparent: str, name: str) -> Recorded | None:
        """A span within one that another process records; None where that is not so."""

    def close(self) -> None:
        """Send what is left, if the collector takes it. Blocking, a few seconds at most."""
