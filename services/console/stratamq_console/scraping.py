"""Reads the metrics that the services of one broker serve, as Prometheus would: blocking."""

import urllib.request
from collections.abc import Iterable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from stratamq.errors import UnavailableError
from stratamq.rpc import discovery
from stratamq.rpc.permission_file import BEARER
from stratamq.rpc.rooms import COMMITLOG, DISPATCHER
from stratamq.service.tls import Contexts
from stratamq_console.alarms import watched_metrics
from stratamq_console.history import (
    BYTES_IN,
    BYTES_OUT,
    GROUPS_BEHIND,
    LAG_MESSAGES,
    LAG_SECONDS,
    MESSAGES_IN,
    MESSAGES_OUT,
)

ANSWER_S = 2.0
LARGEST_PAGE_BYTES = 1 << 20


def wanted_metrics() -> dict[str, tuple[str, ...]]:
    """Names by service: what rates are made of, groups that are behind, and signs of alerts."""
    found = watched_metrics()
    for room, names in (
        (COMMITLOG, (MESSAGES_IN, BYTES_IN)),
        (DISPATCHER, (MESSAGES_OUT, BYTES_OUT, GROUPS_BEHIND, LAG_MESSAGES, LAG_SECONDS)),
    ):
        found[room] = (*found.get(room, ()), *names)
    return found


class MetricsReader:
    """Called in a worker's thread."""

    def __init__(
        self,
        root: Path,
        token_file: Path | None,
        contexts: Contexts | None,
    ) -> None:
        """`token_file`: with the token to show, if any;
        `contexts`: with the broker's certificate where its services have TLS."""
        self._root = root
        self._token_file = token_file
        self._contexts = contexts
        self._wanted = wanted_metrics()

    def read(self) -> dict[str, float]:
        """The metrics by name, with the labels where there are any: `name{a="b"}`. A service that
        does not respond is left out. UnavailableError, with the last reason: none did."""
        found: dict[str, float] = {}
        problem = "no service is running"
        for room, names in self._wanted.items():
            endpoint = discovery.read(self._root, room)
            if endpoint is None or not endpoint.metrics:
                continue
            try:
                found |= parsed(self._page(endpoint.metrics, names))
            except (OSError, ValueError) as error:
                problem = f"metrics of {room} at {endpoint.metrics}: {error}"
        if not found:
            raise UnavailableError(problem)
        return found

    def _page(self, address: str, names: Iterable[str]) -> str:
        query = "&".join(f"name[]={one}" for one in names)
        tls = None if self._contexts is None else self._contexts()
        scheme = "http" if tls is None else "https"
        request = urllib.request.Request(f"{scheme}://{address}/metrics?{query}")
        if self._token_file is not None:
            token = self._token_file.read_text(encoding="utf-8").strip()
            request.add_header("Authorization", BEARER + token)
        with urllib.request.urlopen(request, timeout=ANSWER_S, context=tls) as answer:
            return str(answer.read(LARGEST_PAGE_BYTES).decode())


def parsed(page: str) -> dict[str, float]:
    """ValueError: it is no page of metrics."""
    found = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found
