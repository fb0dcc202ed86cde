"""What Prometheus sees of the gateway. Gauges are brought up to date by `observe`."""

from stratamq.service.metrics import counter, gauge
from stratamq_gateway.listener import Listener

_CLIENTS = "Who is connected with RocketMQ's own clients?"
_ANSWERS = "Are requests of RocketMQ's clients answered?"

CONNECTIONS = gauge("gateway_connections", "Open connections of clients.", asks=_CLIENTS)
GROUPS = gauge("gateway_consumer_groups", "Groups with a connected consumer.", asks=_CLIENTS)
REQUESTS = counter("gateway_requests", "Requests, by code.", ["code"], asks=_ANSWERS)
REFUSED = counter(
    "gateway_refused_requests",
    "Requests that were answered with an error, by its code.",
    ["code"],
    asks=_ANSWERS,
)


def observe(listener: Listener) -> None:
    CONNECTIONS.set(len(listener.connections))
    GROUPS.set(len(listener.members.groups))
