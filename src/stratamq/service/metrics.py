"""Prometheus metrics: one registry per process, its HTTP endpoint, and constructors for rooms.

A room declares its metrics at module level in `metrics.py`, and `docs/metrics.md` is generated from
that module. Names begin with the room and end with their unit; labels are bounded. Each says which
question of an operator it answers (`asks`).
"""

import collections
import contextlib
import logging
import socket
import ssl
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from socketserver import ThreadingMixIn
from threading import Lock, Thread
from typing import Any, TypeVar
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    make_wsgi_app,
)
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from stratamq.rpc.address import join_address, split_address
from stratamq.rpc.rooms import REGISTER
from stratamq.service.caller import Caller, common_name
from stratamq.service.ports import cannot_listen

log = logging.getLogger(__name__)

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)

# From 50 µs (an fdatasync on a fast disk takes 100) to 10 s (no call waits longer).
SECONDS_BUCKETS = (
    50e-6, 100e-6, 200e-6, 500e-6,
    1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3, 200e-3, 500e-3,
    1.0, 2.0, 5.0, 10.0,
)  # fmt: skip


QUESTIONS: dict[object, str] = {}
"""What an operator asks, by the metric that answers."""

Made = TypeVar("Made")


def counter(name: str, doc: str, labels: Sequence[str] = (), *, asks: str) -> Counter:
    """A number that only grows; Prometheus shows it as `<name>_total`."""
    return _answering(asks, Counter(name, doc, labels, registry=REGISTRY))


class Totals:
    """Brings counters up to totals that parts keep by themselves, each of them from 0 on."""

    def __init__(self) -> None:
        self._seen: dict[Counter, float] = {}

    def set(self, counter: Counter, total: float) -> None:
        counter.inc(total - self._seen.get(counter, 0))
        self._seen[counter] = total


def gauge(name: str, doc: str, labels: Sequence[str] = (), *, asks: str) -> Gauge:
    """A number that goes up and down. `set_function` makes it a question asked at each scrape."""
    return _answering(asks, Gauge(name, doc, labels, registry=REGISTRY))


def histogram(
    name: str,
    doc: str,
    labels: Sequence[str] = (),
    buckets: Sequence[float] = SECONDS_BUCKETS,
    *,
    asks: str,
) -> Histogram:
    """A distribution, by default of seconds."""
    return _answering(asks, Histogram(name, doc, labels, buckets=buckets, registry=REGISTRY))


class Times:
    """A histogram of seconds by one label that costs an observation 0.3 µs: no lock, so that one
    thread alone observes. Each value of the label is there from the start."""

    def __init__(self, name: str, doc: str, label: str, values: Sequence[str]) -> None:
        self._name = name
        self._doc = doc
        self._labelnames = (label,)
        self._counts = {value: [0] * (len(SECONDS_BUCKETS) + 1) for value in values}
        self._sums = dict.fromkeys(values, 0.0)

    def observe(self, value: str, seconds: float) -> None:
        self._counts[value][bisect_left(SECONDS_BUCKETS, seconds)] += 1
        self._sums[value] += seconds

    def describe(self) -> list[HistogramMetricFamily]:
        return [HistogramMetricFamily(self._name, self._doc, labels=self._labelnames)]

    def collect(self) -> list[HistogramMetricFamily]:
        [family] = self.describe()
        for value, counts in self._counts.items():
            totals = list(accumulate(counts))
            bounds = [*map(str, SECONDS_BUCKETS), "+Inf"]
            family.add_metric([value], list(zip(bounds, totals, strict=True)), self._sums[value])
        return [family]


def times(name: str, doc: str, label: str, values: Sequence[str], *, asks: str) -> Times:
    """For what is observed thousands of times a second."""
    metric = Times(name, doc, label, values)
    REGISTRY.register(metric)
    return _answering(asks, metric)


def _answering(question: str, metric: Made) -> Made:
    QUESTIONS[metric] = question
    return metric


class OfService:
    """The registry as one service of several in a process shows it: without the metrics of those
    `beside` it and the calls of their methods, and with its `own` value of what each service
    has."""

    def __init__(
        self,
        beside: Collection[str],
        own: Mapping[str, Callable[[], float]],
        registry: Collector = REGISTRY,
    ) -> None:
        self._beside = beside
        self._protos = {REGISTER[name].proto for name in beside if name in REGISTER}
        self._own = own
        self._registry = registry

    def restricted_registry(self, names: Iterable[str]) -> "OfService":
        """The families of these names alone: what a query with `name[]` asks for."""
        return OfService(self._beside, self._own, REGISTRY.restricted_registry(names))

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            if family.name.partition("_")[0] in self._beside:
                continue
            shown = Metric(family.name, family.documentation, family.type, family.unit)
            own = self._own.get(family.name)
            if own is None:
                shown.samples = [one for one in family.samples if self._shows(one.labels)]
            else:
                shown.add_sample(family.name, {}, float(own()))
            yield shown

    def _shows(self, labels: Mapping[str, str]) -> bool:
        """Not a call of another service: a full method is `/package.Service/Method`."""
        service = labels.get("method", "").rpartition("/")[0]
        return service.rpartition(".")[2] not in self._protos


MAX_CONNECTIONS = 16
SILENCE_S = 10.0
"""A connection that sends nothing for so long is closed."""

Allows = Callable[[Caller, str, str], bool]
"""The signature of `AccessControl.observer`."""
"""By the Authorization header, the client's verified certificate (`ssl.SSLSocket.getpeercert`), its
host, and whether the connection is encrypted."""


class MetricsEndpoint:
    """Serves the registry over HTTP from a daemon thread until `close`."""

    def __init__(self, server: WSGIServer, thread: Thread, host: str) -> None:
        self._server = server
        self._thread = thread
        self.address = join_address(host, server.server_port)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve(
    address: str,
    registry: CollectorRegistry | OfService = REGISTRY,
    tls: Callable[[], ssl.SSLContext] | None = None,
    allows: Allows | None = None,
) -> MetricsEndpoint:
    """Start the endpoint on `host:port`; port 0 takes a free one, in `.address`. `tls` is asked for
    its context at each connection; `allows` at each request, which is answered 403 without it.

    Raises ConfigurationError when the address cannot be listened on.
    """
    host, port = split_address(address)
    try:
        app = _guarded(make_wsgi_app(registry), allows)
        server = make_server(host, port, app, _bound_server(host, tls), _Handler)
    except OSError as error:
        fault = f"metrics cannot be served on {address}: {error.strerror or error}"
        raise cannot_listen(fault, error) from error
    thread = Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    return MetricsEndpoint(server, thread, host)


def _guarded(app: Any, allows: Allows | None) -> Any:
    if allows is None:
        return app

    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        authorization = environ.get("HTTP_AUTHORIZATION", "")
        if allows(environ["stratamq.caller"], environ["stratamq.certificate"], authorization):
            return app(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain")])
        return [b"the permission to observe is needed\n"]

    return answer


def _bound_server(host: str, tls: Callable[[], ssl.SSLContext] | None) -> type[WSGIServer]:
    """Serve each connection in a thread, at most `MAX_CONNECTIONS`. For a further connection the
    oldest one of the host with the most is closed, so that idle connections cannot block scrapers.
    """
    lock = Lock()
    served: dict[socket.socket, str] = {}
    """Connections and their hosts, the oldest first."""

    class Server(ThreadingMixIn, WSGIServer):
        daemon_threads = True
        request_queue_size = 128
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def get_request(self) -> tuple[Any, Any]:
            connection, name = super().get_request()
            connection.settimeout(SILENCE_S)
            if tls is not None:
                # The handshake is the connection's thread's: this one accepts the others.
                connection = tls().wrap_socket(
                    connection, server_side=True, do_handshake_on_connect=False
                )
            return connection, name

        def process_request(self, request: Any, client_address: Any) -> None:
            with lock:
                if len(served) >= MAX_CONNECTIONS:
                    [(host, _)] = collections.Counter(served.values()).most_common(1)
                    oldest = next(one for one, of in served.items() if of == host)
                    del served[oldest]
                    with contextlib.suppress(OSError):  # its thread notices
                        socket.socket.shutdown(oldest, socket.SHUT_RDWR)
                served[request] = client_address[0]
            super().process_request(request, client_address)

        def process_request_thread(self, request: Any, client_address: Any) -> None:
            try:
                super().process_request_thread(request, client_address)
            finally:
                with lock:
                    served.pop(request, None)

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Ignore errors of one connection: it sent a malformed request, or was closed."""
            log.debug("metrics connection failed", exc_info=True)

    return Server


class _Handler(WSGIRequestHandler):
    def get_environ(self) -> dict[str, Any]:
        environ = super().get_environ()
        connection = self.connection
        encrypted = isinstance(connection, ssl.SSLSocket)
        shown = connection.getpeercert() if encrypted else None
        environ["stratamq.certificate"] = common_name(shown)
        environ["stratamq.caller"] = Caller(self.client_address[0], encrypted=encrypted)
        return environ

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing for each scrape."""
