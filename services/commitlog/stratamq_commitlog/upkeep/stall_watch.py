"""A disk that stalls is detected while it does: by how long a worker's task has been running.

A flush that does not come back holds up every acknowledgement, and a segment that is not allocated
every append that waits for it: then no more are taken until it does. What else waits for the disk
(reads, the scrubber, saved state) is logged and measured, and blocks no append.
"""

import logging
from collections.abc import Callable, Mapping

from stratamq.formats.broker_role import Role
from stratamq.service.worker import ThreadWorker
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.metrics import DISK_WAIT

log = logging.getLogger(__name__)


class StallWatch:
    """`lanes`: the workers by what they do, `flush` and `allocate` among them."""

    def __init__(self, engine: CommitLog, lanes: Mapping[str, ThreadWorker], stall_ms: int) -> None:
        self._engine = engine
        self._lanes = lanes
        self._stall_ms = stall_ms
        self._logged: dict[str, bool] = dict.fromkeys(lanes, False)

    def look(self) -> str:
        """Why appends are not taken, "" if they are. Called about once a second."""
        engine = self._engine
        waiting = {lane: worker.waiting_ms for lane, worker in self._lanes.items()}
        for lane, milliseconds in waiting.items():
            DISK_WAIT.labels(lane).set(milliseconds / 1000)
            stalled = milliseconds >= self._stall_ms
            if stalled is not self._logged[lane]:
                write: Callable[..., None] = log.error if stalled else log.warning
                write(
                    "disk stalled" if stalled else "disk stall ended",
                    extra={"lane": lane, "waiting_ms": milliseconds},
                )
            self._logged[lane] = stalled
        reason = ""
        if self._logged["flush"]:
            reason = f"the disk is stalled: a flush has not ended for {waiting['flush']} ms"
        elif self._logged["allocate"] and engine.appender.blocked:
            reason = f"the disk is stalled: no segment was allocated for {waiting['allocate']} ms"
        if reason or engine.gate.stalled:
            engine.write_path.stand_still(reason, refuse=engine.role is not Role.SLAVE)
        return reason
