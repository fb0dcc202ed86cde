"""A collector of traces: OTLP over HTTP on loopback, what OpenTelemetry's exporter sends to."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

DEADLINE_S = 120.0


@dataclass(frozen=True)
class Received:
    service: str
    name: str
    trace: str
    span: str
    parent: str
    kind: int
    failed: bool
    attributes: dict[str, object]
    begin_ns: int
    end_ns: int
    links: frozenset[str]
    """Traces."""


class Collector:
    """`status`: what it answers; 200 takes the spans."""

    def __init__(self, port: int = 0) -> None:
        self.status = 200
        self.spans: list[Received] = []
        self.requests = 0
        self.changed = Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["content-length"]))
                with collector.changed:
                    collector.requests += 1
                    status = collector.status
                    if status == 200:
                        collector.spans += spans_of(ExportTraceServiceRequest.FromString(data))
                    collector.changed.notify_all()
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(status)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def wait(self, until: Callable[["Collector"], object]) -> list[Received]:
        """All spans, once `until` holds."""
        with self.changed:
            assert self.changed.wait_for(lambda: until(self), DEADLINE_S), sorted(
                {(one.service, one.name) for one in self.spans}
            )
            return list(self.spans)

    def wait_for(self, *names: str) -> dict[str, Received]:
        """The last span of each of these names."""
        found = self.wait(lambda _: set(names) <= {one.name for one in self.spans})
        return {one.name: one for one in found}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def spans_of(request: ExportTraceServiceRequest) -> Iterator[Received]:
    for resource in request.resource_spans:
        of_process = {one.key: one.value.string_value for one in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Received(
                    of_process["service.name"],
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.kind,
                    span.status.code == span.status.STATUS_CODE_ERROR,
                    {one.key: _value(one.value) for one in span.attributes},
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    frozenset(link.trace_id.hex() for link in span.links),
                )


def _value(value) -> object:
    return getattr(value, value.WhichOneof("value"))
