"""An hour of rates, made from the services' own metrics and kept in memory.

Every `INTERVAL_S` metrics are read where each service serves its metrics. A rate
is the difference of two readings by the time between them; a counter that went back was begun again
by a restart, and counts from zero.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from itertools import pairwise
from typing import NamedTuple

from stratamq.errors import UnavailableError
from stratamq.files.port import Clock

log = logging.getLogger(__name__)

INTERVAL_S = 10.0
KEPT_S = 3600
LIMIT = int(KEPT_S / INTERVAL_S) + 1
"""Readings."""
SPANS_S = (240, 900, KEPT_S)
"""What a chart shows: the shortest that all readings fit into."""

MESSAGES_IN, BYTES_IN = "commitlog_appended_messages_total", "commitlog_appended_bytes_total"
MESSAGES_OUT, BYTES_OUT = "dispatcher_pulled_messages_total", "dispatcher_pulled_bytes_total"
GROUPS_BEHIND = "dispatcher_groups_behind"
LAG_MESSAGES, LAG_SECONDS = "dispatcher_group_lag_messages", "dispatcher_group_lag_seconds"
"""With the label `group`: of the 20 groups with the most to read."""

Read = Callable[[], Awaitable[Mapping[str, float]]]
"""UnavailableError: no service's metrics can be read."""


class MetricsReading(NamedTuple):
    """The metrics of one moment; a service that did not respond is not in them."""

    at_ms: int
    read_ns: int
    values: Mapping[str, float]


class RatePoint(NamedTuple):
    """`per_second` None: not known, because a service did not respond."""

    at_ms: int
    per_second: float | None


class RateHistory:
    """Belongs to the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._readings: deque[MetricsReading] = deque(maxlen=LIMIT)
        self.problem = ""
        """Why the last reading failed; empty: it did not."""

    def add(self, values: Mapping[str, float]) -> None:
        now = MetricsReading(self._clock.wall_ms(), self._clock.monotonic_ns(), values)
        self._readings.append(now)

    def latest(self) -> Mapping[str, float]:
        """The newest reading; empty before the first one."""
        return self._readings[-1].values if self._readings else {}

    def span_s(self) -> int:
        """How far back a chart goes: a console that has just begun shows minutes."""
        begun = self._readings[0].at_ms if self._readings else self._clock.wall_ms()
        age_s = (self._clock.wall_ms() - begun) / 1000
        return next((one for one in SPANS_S if age_s <= one), KEPT_S)

    def rates(self, name: str) -> list[RatePoint]:
        """A counter's rates, the oldest first."""
        readings = list(self._readings)
        return [
            RatePoint(now.at_ms, _per_second(before, now, name))
            for before, now in pairwise(readings)
        ]

    def values(self, name: str) -> list[RatePoint]:
        """The readings of a gauge, the oldest first; where it is NaN it is not known."""
        found = []
        for one in self._readings:
            value = one.values.get(name)
            known = value is not None and not math.isnan(value)
            found.append(RatePoint(one.at_ms, value if known else None))
        return found

    def rate(self, name: str) -> float | None:
        """The newest one."""
        if len(self._readings) < 2:
            return None
        return _per_second(self._readings[-2], self._readings[-1], name)

    async def run(self, read: Read) -> None:
        """Read until cancelled."""
        while True:
            try:
                self.add(await read())
                self.problem = ""
            except UnavailableError as error:
                if str(error) != self.problem:  # once, and not at each reading
                    log.warning("metrics cannot be read", extra={"why": str(error)})
                self.problem = str(error)
            await asyncio.sleep(INTERVAL_S)


def _per_second(before: MetricsReading, now: MetricsReading, name: str) -> float | None:
    first, last = before.values.get(name), now.values.get(name)
    passed_s = (now.read_ns - before.read_ns) / 1e9
    if first is None or last is None or passed_s <= 0:
        return None
    return (last - first if last >= first else last) / passed_s
