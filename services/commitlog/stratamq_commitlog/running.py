"""The engine in its process: opened, driven, opened again after a cut, drained and closed."""

import asyncio
import gc
import logging
import threading
from collections.abc import Mapping
from functools import partial

from stratamq.errors import UnavailableError
from stratamq.files.interruptible import InterruptibleFiles
from stratamq.files.port import Clock
from stratamq.service.server import Server
from stratamq.service.worker import ThreadWorker
from stratamq_commitlog import metrics
from stratamq_commitlog.config import CommitLogConfig
from stratamq_commitlog.driver import Driver, quiet
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.recovery.progress import Progress
from stratamq_commitlog.recovery.walker_pool import WalkerPool
from stratamq_commitlog.servicer import CommitLogServicer
from stratamq_commitlog.upkeep.stall_watch import StallWatch

log = logging.getLogger(__name__)


class Running:
    """`files` end an opening at its next call once `interrupted` is set, and `walkers` theirs;
    `workers` are the engine's, by what they do."""

    def __init__(
        self,
        engine: CommitLog,
        servicer: CommitLogServicer,
        server: Server,
        config: CommitLogConfig,
        files: InterruptibleFiles,
        interrupted: threading.Event,
        walkers: WalkerPool,
        workers: Mapping[str, ThreadWorker],
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._servicer = servicer
        self._server = server
        self._config = config
        self._files = files
        self._interrupted = interrupted
        self._walkers = walkers
        self._workers = workers
        self._clock = clock
        self._progress = Progress(clock)
        self._driver: Driver | None = None
        servicer.reopen = self.reopen
        self._opening = asyncio.create_task(self._open_and_drive())
        server.supervise(self._opening)

    async def reopen(self) -> None:
        """Close and open: what a cut of the log has written down is done by the opening."""
        assert self._driver is not None
        self._servicer.opening = "its end is being cut off"
        self._server.set_ready(False, self._servicer.opening)
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
        await self._servicer.cut_ended()
        if self._driver is not None:
            self._servicer.stop_appends()
            await self._driver.closed(self._config.follower_stop_timeout_ms)
            self._servicer.end_follows()

    async def close(self) -> None:
        """The store's own lock goes with the engine: after the last thread that writes."""
        self._interrupt()
        await asyncio.wait([self._opening])
        if self._driver is not None:
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
        self._servicer.opening = self._progress.text
        metrics.RECOVERED.set(done)
        metrics.RECOVERY_TOTAL.set(total)

    def _drive(self) -> None:
        engine, server = self._engine, self._server
        observer = metrics.Observer(engine, self._clock)
        stalls = StallWatch(engine, self._workers, self._config.disk_stall_ms)

        def every_second() -> None:
            observer.observe()
            reason = "a flush failed" if engine.commit.failure is not None else stalls.look()
            server.set_ready(not reason, reason)

        # What the opening made stays: a collection need not look at a million queues each time.
        gc.freeze()
        self._driver = Driver(engine, every_second)
        server.supervise(self._driver.start())
        self._servicer.opening = ""
        server.set_ready(True)

    def _interrupt(self) -> None:
        """An opening in progress ends at its next step; one that has ended is not affected."""
        self._interrupted.set()
        self._walkers.interrupt()
