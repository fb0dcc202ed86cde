"""Prometheus metrics: one registry per process, its HTTP endpoint, and constructors for rooms.

A room declares its metrics at module level in `metrics.py`, and `docs/metrics.md` is generated from
that module. Names begin with the room and end with their unit; labels are bounded.
"""

from collections.abc import Sequence
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    start_http_server,
)

from stratamq.errors import ConfigurationError
from stratamq.rpc.address import join_address, split_address

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


def counter(name: str, doc: str, labels: Sequence[str] = ()) -> Counter:
    """A number that only grows; Prometheus shows it as `<name>_total`."""
    return Counter(name, doc, labels, registry=REGISTRY)


def gauge(name: str, doc: str, labels: Sequence[str] = ()) -> Gauge:
    """A number that goes up and down. `set_function` makes it a question asked at each scrape."""
    return Gauge(name, doc, labels, registry=REGISTRY)


def histogram(
    name: str, doc: str, labels: Sequence[str] = (), buckets: Sequence[float] = SECONDS_BUCKETS
) -> Histogram:
    """A distribution, by default of seconds."""
    return Histogram(name, doc, labels, buckets=buckets, registry=REGISTRY)


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


def serve(address: str, registry: CollectorRegistry = REGISTRY) -> MetricsEndpoint:
    """Start the endpoint on `host:port`; port 0 takes a free one, in `.address`.

    Raises ConfigurationError when the address cannot be listened on.
    """
    host, port = split_address(address)
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigurationError([f"metrics cannot be served on {address}: {reason}"]) from error
    return MetricsEndpoint(server, thread, host)
