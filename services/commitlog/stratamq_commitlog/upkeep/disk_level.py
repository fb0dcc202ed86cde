"""Refuses appends while a volume of the store is too full, with hysteresis."""

import logging

from stratamq.errors import StrataError
from stratamq.files.port import Clock, Files, Space
from stratamq.formats.store_paths import COMMIT_LOG, PARTS
from stratamq_commitlog.upkeep.disk_forecast import DiskForecast
from stratamq_commitlog.upkeep.jobs import Jobs
from stratamq_commitlog.upkeep.reserve import Reserve
from stratamq_commitlog.write.write_gate import WriteGate

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
