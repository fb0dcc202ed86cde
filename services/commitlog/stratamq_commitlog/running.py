"""The engine in its process: opened, driven, opened again after a cut, drained and closed."""

import asyncio
import gc
import logging
from collections.abc import Callable, Mapping
from functools import partial

from stratamq.errors import UnavailableError
from stratamq.files.interruptible import InterruptibleFiles
from stratamq.files.port import Clock
from stratamq.formats.log_state import Role
from stratamq.service.server import Server
from stratamq.service.worker import ThreadWorker
from stratamq_commitlog import metrics
from stratamq_commitlog.driver import Driver, quiet
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.metrics import DISK_WAIT
from stratamq_commitlog.servicer import CommitLogServicer
from stratamq_commitlog.use_cases.together import LogUseCases


class StallWatch:
    """A disk that stalls is detected while it does: by how long a worker's task has been running.

    A flush that does not come back holds up every acknowledgement, and a segment that is not
    allocated every append that waits for it: then no more are taken until it does. What else
    waits for the disk (reads, the scrubber, saved state) is logged and measured, and blocks no
    append.

    `lanes`: the workers by what they do, `flush` and `allocate` among them.
    """

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


LOG_EVERY_NS = 5_000_000_000
_MIB = 1 << 20


class RecoveryProgress:
    """How far recovery is, how fast it goes and when it will be done: for health, log and people.

    Called from the thread that recovers; `text` may be read from any.
    """

    def __init__(self, clock: Clock) -> None:
        self.text = "starting"
        """One sentence for people."""
        self._clock = clock
        self._began_ns = clock.monotonic_ns()
        self._first_bytes: int | None = None
        self._logged_ns = self._began_ns

    def update(self, done_bytes: int, total_bytes: int) -> None:
        """Recovery has come to `done_bytes` of `total_bytes`, counted from the log's minimum."""
        now = self._clock.monotonic_ns()
        if self._first_bytes is None:
            # What is below is known to be good and was not read.
            self._first_bytes, self._began_ns = done_bytes, now
        self.text = f"recovered {done_bytes // _MIB} of {total_bytes // _MIB} MiB"
        seconds = (now - self._began_ns) / 1e9
        rate = (done_bytes - self._first_bytes) / seconds if seconds else 0.0
        if rate > 0:
            left = max(0, total_bytes - done_bytes) / rate
            self.text += f", {rate / _MIB:.0f} MiB/s, {left:.0f} s left"
        if now - self._logged_ns >= LOG_EVERY_NS:
            self._logged_ns = now
            log.info(
                "recovering",
                extra={"done": done_bytes, "total": total_bytes, "bytes_per_s": round(rate)},
            )


log = logging.getLogger(__name__)


class RunningLog:
    """`interrupt` ends an opening in progress at its next step, and has no effect on one that has
    ended; `workers` are the engine's, by what they do."""

    def __init__(
        self,
        engine: CommitLog,
        driver: Driver,
        use_cases: LogUseCases,
        servicer: CommitLogServicer,
        server: Server,
        files: InterruptibleFiles,
        interrupt: Callable[[], None],
        workers: Mapping[str, ThreadWorker],
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._served = use_cases.log
        self._appending = use_cases.appending
        self._replicating = use_cases.replicating
        self._servicer = servicer
        self._server = server
        self._files = files
        self._interrupt = interrupt
        self._workers = workers
        self._clock = clock
        self._progress = RecoveryProgress(clock)
        self._driver = driver
        self._opening = asyncio.create_task(self._open_and_drive())
        server.supervise(self._opening)

    async def reopen(self) -> None:
        """Close and open: what a cut of the log has written down is done by the opening."""
        self._served.opening = "its end is being cut off"
        self._server.set_ready(False, self._served.opening)
        self._servicer.end_follows()
        try:
            await self._driver.stop()
            await quiet(self._engine, *self._workers.values())
            await asyncio.to_thread(self._engine.close)
            await self._open()
        except UnavailableError:
            log.info("opening interrupted")
            raise
        except BaseException as error:
            self._server.fail(error)
            raise
        self._drive()

    async def drain(self) -> None:
        self._interrupt()
        await self._replicating.cut_ended()
        if self._driver.engine is not None:
            self._appending.stop()
            await self._driver.closed(self._engine.config.follower_stop_timeout_ms)
            self._servicer.end_follows()

    async def close(self) -> None:
        """The store's own lock goes with the engine: after the last thread that writes."""
        self._interrupt()
        await asyncio.wait([self._opening])
        await self._driver.stop()
        for worker in self._workers.values():
            await worker.close()
        self._engine.close()

    async def _open_and_drive(self) -> None:
        try:
            await self._open()
        except UnavailableError:
            log.info("opening interrupted")
        else:
            self._drive()

    async def _open(self) -> None:
        began_ns = self._clock.monotonic_ns()
        await asyncio.to_thread(self._files.run, partial(self._engine.open, self._recovered))
        metrics.RECOVERY_SECONDS.set((self._clock.monotonic_ns() - began_ns) / 1e9)

    def _recovered(self, done: int, total: int) -> None:
        self._progress.update(done, total)
        self._served.opening = self._progress.text
        metrics.RECOVERED.set(done)
        metrics.RECOVERY_TOTAL.set(total)

    def _drive(self) -> None:
        engine, server = self._engine, self._server
        observer = metrics.Observer(engine, self._clock)
        stalls = StallWatch(engine, self._workers, self._engine.config.disk_stall_ms)

        def every_second() -> None:
            observer.observe()
            reason = "a flush failed" if engine.commit.failure is not None else stalls.look()
            server.set_ready(not reason, reason)

        # What the opening made stays: a collection need not look at a million queues each time.
        gc.freeze()
        server.supervise(self._driver.start(engine, every_second))
        self._served.opening = ""
        server.set_ready(True)
