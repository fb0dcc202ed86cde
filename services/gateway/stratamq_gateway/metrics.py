"""What Prometheus sees of the gateway. Gauges are brought up to date by `observe`."""

from functools import cache
from typing import TYPE_CHECKING

from stratamq.service.metrics import counter, gauge

if TYPE_CHECKING:
    from prometheus_client import Counter

_CLIENTS = "Who is connected with RocketMQ's own clients?"
_ANSWERS = "Are requests of RocketMQ's clients answered?"

CONNECTIONS = gauge("gateway_connections", "Open connections of clients.", asks=_CLIENTS)
GROUPS = gauge("gateway_consumer_groups", "Groups with a connected consumer.", asks=_CLIENTS)
REQUESTS = counter("gateway_requests", "Requests, by code.", ["code"], asks=_ANSWERS)
FAILED = counter(
    "gateway_failed_requests",
    "Requests that the broker could not do, by code: a service is down, read-only or busy.",
    ["code"],
    asks=_ANSWERS,
)
REPEATED = counter(
    "gateway_repeated_sends",
    "Sends that were stored before, and were answered as the first ones were.",
    asks=_ANSWERS,
)


@cache
def requests_of(code: str) -> "Counter":
    """To look one up for each request would cost more than to count it."""
    return REQUESTS.labels(code)


def observe(connections: int, consumer_groups: int) -> None:
    CONNECTIONS.set(connections)
    GROUPS.set(consumer_groups)
