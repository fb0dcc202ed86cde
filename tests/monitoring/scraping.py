"""What brokers' services answer to Prometheus, as series of promtool."""

import math
import urllib.request
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.parser import text_string_to_metric_families

from stratamq.rpc import discovery
from tests.support.brokers import Broker

OURS = (
    "service_", "commitlog_", "dispatcher_", "index_", "ha_", "janitor_", "delivery_", "tier_",
    "agent_",
)  # fmt: skip


class Scraped:
    """The metrics of brokers' services, before and after a fault: as series of promtool."""

    def __init__(self) -> None:
        self._before: dict[str, float] = {}
        self._after: dict[str, float] = {}

    def before(self, brokers: Mapping[str, Broker], rooms: Sequence[str]) -> None:
        self._before = scrape(brokers, rooms)

    def after(self, brokers: Mapping[str, Broker], rooms: Sequence[str]) -> None:
        self._after = scrape(brokers, rooms)

    def series(self) -> dict[str, str]:
        """The value before for 200 minutes, the one after from then on; what counts continues."""
        found = {}
        for name, first in self._before.items():
            gone = "_" if name not in self._after else ""
            last = gone or f"{self._after[name]:f}"
            found[name] = f"{first:f}x200 {last}x40"
            if name.startswith("janitor_looks_total") and not gone:
                found[name] = f"{first:f}+1x240"
        return found


def scrape(brokers: Mapping[str, Broker], rooms: Sequence[str]) -> dict[str, float]:
    """Of each member's services: `up`, and what those that run answer."""
    found: dict[str, float] = {}
    for member, broker in brokers.items():
        for room in rooms:
            where = f'job="stratamq",broker="b",member="{member}",service="{room}"'
            page = metrics_page(broker, room)
            found[f"up{{{where}}}"] = float(page is not None)
            found.update(_samples(page or "", where))
    return found


def metric(broker: Broker, room: str, name: str) -> float | None:
    """The first sample of this name; None while there is none, or the service has ended."""
    samples = dict(_samples(metrics_page(broker, room) or "", ""))
    return next((value for key, value in samples.items() if key.startswith(name + "{")), None)


def metrics_page(broker: Broker, room: str) -> str | None:
    """None when the service has ended. The port of one that has may be another process's by now:
    the page of one that runs before and after it was read is its own."""
    if not broker.running(room):
        return None
    endpoint = discovery.read(broker.root, room)
    assert endpoint is not None and endpoint.pid == broker.pid(room), f"{room} is not announced"
    try:
        with urllib.request.urlopen(f"http://{endpoint.metrics}/metrics", timeout=60) as page:
            text: str = page.read().decode()
    except OSError:
        assert not broker.running(room), f"{room} runs, and its metrics cannot be read"
        return None
    return text if broker.running(room) else None


def _samples(page: str, where: str) -> Iterator[tuple[str, float]]:
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            own = "".join(f',{key}="{value}"' for key, value in sample.labels.items())
            # promtool takes no NaN, which marks what is not known.
            if sample.name.startswith(OURS) and math.isfinite(sample.value):
                yield f"{sample.name}{{{where}{own}}}", sample.value
