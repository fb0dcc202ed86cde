"""When the volume will be full: the line through what it was in the last two hours, drawn on.

What the janitor deletes is part of the line. It knows nothing of tomorrow: a load that comes by day
alone, or segments that expire at four in the morning, are not foreseen.
"""

import math
from collections import deque
from statistics import linear_regression

SAMPLE_NS = 60 * 1_000_000_000
WINDOW_SAMPLES = 120
LEAST_SAMPLES = 10
"""So many minutes are needed before anything is said."""
LEAST_GROWTH_PER_S = 1e-9
"""Of the volume: 0.0001 in a day. Less is taken for none."""


class DiskForecast:
    """Not thread-safe. `full_ratio`: used part of the volume from which on messages are refused."""

    def __init__(self, full_ratio: float) -> None:
        self.full_in_s: float | None = None
        """Seconds until the volume is full; 0.0: it is; inf: it does not grow; None: not known
        yet."""
        self._full_ratio = full_ratio
        self._samples: deque[tuple[float, float]] = deque(maxlen=WINDOW_SAMPLES)

    def see(self, used_ratio: float, now_ns: int) -> None:
        """Add a sample. May be called at any rate: one sample a minute is kept."""
        now_s = now_ns / 1e9
        if used_ratio > self._full_ratio:
            self.full_in_s = 0.0
        elif self.full_in_s == 0.0:
            self.full_in_s = None
        if self._samples and now_s - self._samples[-1][0] < SAMPLE_NS / 1e9:
            return
        self._samples.append((now_s, used_ratio))
        if len(self._samples) >= LEAST_SAMPLES and self.full_in_s != 0.0:
            self.full_in_s = self._forecast(used_ratio)

    def _forecast(self, used_ratio: float) -> float:
        times, ratios = zip(*self._samples, strict=True)
        growth = linear_regression(times, ratios).slope
        if growth < LEAST_GROWTH_PER_S:
            return math.inf
        return (self._full_ratio - used_ratio) / growth
