"""One named thread that does an engine's blocking work and reports back on the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TypeVar

from stratamq.files.clock import SystemClock
from stratamq.service.awaiting import OnDone, outcome

T = TypeVar("T")


class ThreadWorker:
    """Implements `stratamq.files.port.Worker`: tasks run one after another, in order.

    `on_done(result, error)` is called on `loop`, in the order of the tasks; exactly one of its two
    arguments is the outcome (`error` is None after success). `submit` may be called from any
    thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._clock = SystemClock()
        self._loop = loop
        self._name = name
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._closed = self._closing = False
        self._submitted = 0
        self._began_ns = 0

    @property
    def waiting_ms(self) -> int:
        """For how long the task that runs now has been running; 0: none runs."""
        began_ns = self._began_ns
        return (self._clock.monotonic_ns() - began_ns) // 1_000_000 if began_ns else 0

    def submit(self, task: Callable[[], T], on_done: OnDone[T]) -> None:
        """Queue `task`. Raises RuntimeError after `close`."""
        if self._closed:
            raise RuntimeError(f"worker {self._name} is closed")
        self._submitted += 1
        # Its log lines have the request's id, and are the service's.
        self._executor.submit(copy_context().run, self._run, task, on_done)

    async def run(self, task: Callable[[], T]) -> T:
        """`task`'s result, after those that were submitted before. It is carried out to its end
        even if who waits for it is cancelled. RuntimeError after `close`."""
        return await outcome(partial(self.submit, task))

    async def close(self) -> None:
        """Return when all tasks and all their `on_done` have run, those that an `on_done` submits
        included; then no more are taken."""
        if self._closing:
            return
        self._closing = True
        submitted = -1
        while submitted != self._submitted:
            submitted = self._submitted
            drained = self._loop.create_future()
            self._executor.submit(self._loop.call_soon_threadsafe, drained.set_result, None)
            await drained
        self._closed = True
        self._executor.shutdown(wait=True)

    def _run(self, task: Callable[[], T], on_done: OnDone[T]) -> None:
        result: T | None = None
        failure: BaseException | None = None
        self._began_ns = self._clock.monotonic_ns()
        try:
            result = task()
        except BaseException as error:  # noqa: BLE001 - the top of a thread: the owner decides
            failure = error
        self._began_ns = 0
        # A loop that is closed belongs to a process that has ended its service: no caller waits.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(on_done, result, failure)
