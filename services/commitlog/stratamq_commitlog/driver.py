"""Drives the engine from the event loop: a pass after each wake, a tick ten times a second, twice
while there is nothing to do. A pass that `PassTiming` holds back waits no longer than a tick.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from functools import partial

from stratamq.files.port import Worker
from stratamq.service.awaiting import outcome
from stratamq.service.process import ticking
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.write.appender import Appender
from stratamq_commitlog.write.group_commit import GroupCommit

TICK_SECONDS, REST_SECONDS = 0.1, 0.5


class Driver:
    """Its `wake` and `resume` are for the engine's `LogListener`."""

    def __init__(self) -> None:
        self.engine: CommitLog | None = None
        """Once it is driven."""
        self._loop = asyncio.get_running_loop()
        self._scheduled = False
        self._of_no_request = Context()
        self._timing: PassTiming | None = None
        self._ticker: asyncio.Task[None] | None = None

    def start(self, engine: CommitLog, on_second: Callable[[], None]) -> asyncio.Task[None]:
        """The task that ticks, until `stop`: without it nothing is flushed, and nothing times out.
        Who starts it watches it. `engine` is open; `on_second` is called about once a second."""
        self.engine = engine
        self._timing = timing = PassTiming(
            engine.appender,
            engine.commit,
            sync_flush=engine.sync_flush,
            pass_bytes=engine.config.pass_bytes,
            schedule=self._schedule,
        )

        def tick() -> float:
            engine.tick()
            timing.resume()
            return REST_SECONDS if at_rest(engine) else TICK_SECONDS

        self._ticker = self._loop.create_task(ticking(tick, on_second))
        return self._ticker

    def wake(self) -> None:
        if self._timing is not None:
            self._timing.wake()

    def resume(self) -> None:
        if self._timing is not None:
            self._timing.resume()

    async def stop(self) -> None:
        """No more ticks; passes still run when something wakes them."""
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.wait([self._ticker])
        if self.engine is not None:
            self.engine.upkeep.stop()
            self.engine.scrubber.stop()

    async def closed(self, timeout_ms: int) -> None:
        """Begin the engine's end and wait until followers have what they need, or the time is up.

        Wakes are what moves this on: every report of a follower is looked at within a tick.
        """
        assert self.engine is not None
        self.engine.begin_close()
        deadline = self._loop.time() + timeout_ms / 1000
        while not self.engine.close_ready() and self._loop.time() < deadline:
            await asyncio.sleep(TICK_SECONDS / 10)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            # A pass works for all requests that wait, not for the one that woke it.
            self._loop.call_soon(self._run, context=self._of_no_request)

    def _run(self) -> None:
        self._scheduled = False
        assert self.engine is not None
        self.engine.run_pass()


def at_rest(engine: CommitLog) -> bool:
    """Nothing waits, for the disk, for a slave, or to be unlinked."""
    offsets = engine.offsets
    return (
        offsets.appended == offsets.flushed == offsets.confirmed
        and not engine.appender.waiting
        and not engine.deletion.unlinking
    )


async def quiet(engine: CommitLog, *workers: Worker) -> None:
    """Until no flush runs and no worker has anything to do; nothing new may be asked of them."""
    while True:
        for worker in workers:
            await outcome(partial(worker.submit, lambda: None))
        if engine.commit.idle:
            return


@dataclass(slots=True)
class PassTiming:
    """Decides when an open log's next pass runs: at once, or after the flush that is running.

    Under sync flush a pass waits for the running flush, which does not cover what the pass would
    append: no answer comes later, and one pass takes all that has come meanwhile. It does not wait
    once a whole pass is there. `schedule` runs a pass soon, without an event loop here; it may be
    called again before the pass has run.
    """

    appender: Appender
    commit: GroupCommit
    sync_flush: bool
    pass_bytes: int
    schedule: Callable[[], None]

    def wake(self) -> None:
        """Something waits to be appended."""
        small = self.appender.pending_bytes < self.pass_bytes
        if not (self.sync_flush and not self.commit.idle and small):
            self.schedule()

    def resume(self) -> None:
        """A flush has ended, or a tick has passed: what waited is appended."""
        if self.appender.waiting:
            self.schedule()
