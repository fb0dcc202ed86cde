"""Refuses appends while the volume is too full, with hysteresis."""

import logging

from stratamq.errors import StrataError
from stratamq.files.port import Clock, Files, Space
from stratamq_commitlog.upkeep.disk_forecast import DiskForecast
from stratamq_commitlog.upkeep.jobs import Jobs
from stratamq_commitlog.upkeep.reserve import Reserve
from stratamq_commitlog.write.write_gate import WriteGate

log = logging.getLogger(__name__)


class DiskLevel:
    """Full above `refuse_ratio` of the volume, until it is at or below `resume_ratio` again."""

    def __init__(
        self,
        files: Files,
        reserve: Reserve,
        gate: WriteGate,
        jobs: Jobs,
        forecast: DiskForecast,
        clock: Clock,
        *,
        refuse_ratio: float,
        resume_ratio: float,
    ) -> None:
        self._files = files
        self._reserve = reserve
        self._gate = gate
        self._jobs = jobs
        self._forecast = forecast
        self._clock = clock
        self._refuse_ratio = refuse_ratio
        self._resume_ratio = resume_ratio

    def start(self) -> None:
        """Blocking. OSError."""
        self._take(self._files.space(), None)

    def every_second(self) -> None:
        self._jobs.submit("space", self._look, self._take)

    def _look(self) -> Space:
        self._reserve.keep()
        return self._files.space()

    def _take(self, space: Space | None, error: StrataError | None) -> None:
        if space is None:
            return
        gate, limit = self._gate, self._refuse_ratio
        if gate.disk_full:
            limit = min(limit, self._resume_ratio)
        full = space.used_ratio > limit
        if full is not gate.disk_full:
            log.warning("disk level changed", extra={"full": full, "used": space.used_ratio})
        gate.disk_used_ratio, gate.disk_full = space.used_ratio, full
        self._forecast.see(space.used_ratio, self._clock.monotonic_ns())
        gate.disk_full_in_s = self._forecast.full_in_s
