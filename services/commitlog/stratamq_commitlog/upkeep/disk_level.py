"""Refuses appends while a volume of the store is too full, with hysteresis."""

import logging
import math
from collections import deque
from statistics import linear_regression

from stratamq.errors import StrataError
from stratamq.files.port import Clock, Files, Space
from stratamq.formats.store_paths import COMMIT_LOG, PARTS
from stratamq_commitlog.recovery.reserve import Reserve
from stratamq_commitlog.upkeep.jobs import Jobs
from stratamq_commitlog.write.write_gate import WriteGate

SAMPLE_NS = 60 * 1_000_000_000
WINDOW_SAMPLES = 120
LEAST_SAMPLES = 10
"""So many minutes are needed before anything is said."""
LEAST_GROWTH_PER_S = 1e-9
"""The least growth that is noticed, as a share of the volume: 0.0001 in a day."""


class DiskForecast:
    """When the volume will be full: the line through what it was in the last two hours, drawn on.

    What the janitor deletes is part of the line. It knows nothing of tomorrow: a load that
    comes by day alone, or segments that expire at four in the morning, are not foreseen.

    Not thread-safe. `full_ratio`: used part of the volume from which on messages are refused.
    """

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


def whole_seconds(full_in_s: float | None) -> int | None:
    """A forecast as it is shown: None also for what does not fill."""
    return None if full_in_s is None or math.isinf(full_in_s) else round(full_in_s)


log = logging.getLogger(__name__)

ROOT = "."
"""The part that is neither log, queues nor index: the directory of the store itself."""


class DiskLevel:
    """Full above `refuse_ratio` of a volume, until it is at or below `resume_ratio` again.

    Log, queues and index may each be a mount. One volume that is full stops the log, whichever it
    is: the others would fall behind it, and the log could not record what it does.
    """

    def __init__(
        self,
        files: Files,
        reserve: Reserve,
        gate: WriteGate,
        jobs: Jobs,
        clock: Clock,
        *,
        refuse_ratio: float,
        resume_ratio: float,
    ) -> None:
        self._files = files
        self._reserve = reserve
        self._gate = gate
        self._jobs = jobs
        self._clock = clock
        self._refuse_ratio = refuse_ratio
        self._resume_ratio = resume_ratio
        self._full: set[str] = set()
        self._forecasts: dict[str, DiskForecast] = {}

    def start(self) -> None:
        """Blocking. OSError."""
        self._take(self._volumes(), None)

    def every_second(self) -> None:
        self._jobs.submit("space", self._look, self._take)

    def _look(self) -> dict[str, Space]:
        self._reserve.keep()
        return self._volumes()

    def _volumes(self) -> dict[str, Space]:
        """Each volume once, by the first part that lies on it; the log's first."""
        found: dict[int, tuple[str, Space]] = {}
        for part in (COMMIT_LOG, ROOT, *PARTS[1:]):
            space = self._files.space("" if part == ROOT else part)
            found.setdefault(space.volume_id, (part, space))
        return dict(found.values())

    def _take(self, volumes: dict[str, Space] | None, error: StrataError | None) -> None:
        if volumes is None:
            return
        now_ns = self._clock.monotonic_ns()
        for part, space in volumes.items():
            self._judge(part, space.used_ratio)
            forecast = self._forecasts.setdefault(part, DiskForecast(self._refuse_ratio))
            forecast.see(space.used_ratio, now_ns)
        gate = self._gate
        gate.volumes = {part: space.used_ratio for part, space in volumes.items()}
        # What refuses comes before what is merely fuller.
        fullest = max(gate.volumes, key=lambda part: (part in self._full, gate.volumes[part]))
        gate.disk_full = bool(self._full.intersection(volumes))
        gate.disk_used_ratio = gate.volumes[fullest]
        gate.disk_part = fullest if len(volumes) > 1 else ""
        known = [self._forecasts[part].full_in_s for part in volumes]
        gate.disk_full_in_s = min((s for s in known if s is not None), default=None)

    def _judge(self, part: str, used_ratio: float) -> None:
        limit = self._refuse_ratio
        if part in self._full:
            limit = min(limit, self._resume_ratio)
        full = used_ratio > limit
        if full is not (part in self._full):
            log.warning(
                "disk level changed", extra={"full": full, "used": used_ratio, "part": part}
            )
            (self._full.add if full else self._full.remove)(part)
