"""Waiting in two ways: each class for threads, its twin `Async…` for tasks of one event loop.

The twins have the same methods, so that the synchronous client can be generated from the asyncio
one (`scripts/gen_sync_client.py`) by taking `async`, `await` and `Async` away.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent import futures
from contextvars import copy_context
from typing import Any, TypeVar

from stratamq.errors import StrataError

T = TypeVar("T")

# --- threads ---

Guard = threading.Lock
"""Guards state that several callers share; released while a `Condition` of it waits."""
Lock = threading.Lock
Event = threading.Event


class Condition(threading.Condition):
    """A condition of a guard. Callers of `wait`, `wait_for` and `notify_all` hold the guard."""

    def yield_control(self) -> None:
        """Threads need none: the others run meanwhile."""


class Background:
    """A daemon thread, which works for the request that is current where it is made, as a task
    does."""

    def __init__(self, name: str, run: Callable[..., None], *arguments: Any) -> None:
        self._thread = threading.Thread(
            target=copy_context().run, args=(run, *arguments), name=name, daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for its end; False when it still runs after `timeout_s`."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @staticmethod
    def current() -> object:
        """What is running: equal within one thread."""
        return threading.get_ident()


class Once:
    """Runs a function when it is made."""

    def __init__(self, run: Callable[[], None]) -> None:
        run()

    def done(self) -> None:
        """It is."""


class Ongoing:
    """At most one run of a function at a time. A caller that gives up leaves it running, and the
    next caller gets its result."""

    def __init__(self) -> None:
        self._run: futures.Future[Any] | None = None

    def result(self, run: Callable[[], T], timeout_s: float | None = None) -> T:
        """TimeoutError when there is none within `timeout_s`. Without that it runs in the caller's
        thread, if it does not run yet."""
        ongoing = self._run
        if ongoing is None:
            if timeout_s is None:
                return run()
            ongoing = self.begin(run)
        futures.wait([ongoing], timeout_s)
        if not ongoing.done():
            raise TimeoutError
        self._run = None
        return ongoing.result()

    def begin(self, run: Callable[[], Any]) -> "futures.Future[Any]":
        """Have it run, if it does not yet."""
        ongoing = self._run
        if ongoing is None:
            ongoing = self._run = futures.Future()
            Background("stratamq-read", _complete, ongoing, run).start()
        return ongoing  # `ended`, of another thread, may have dropped it

    @staticmethod
    def first(several: "Sequence[Ongoing]", timeout_s: float | None) -> int | None:
        """The number of the first one whose run, which has begun, has ended: its `result` is there.
        None after `timeout_s`."""
        runs = [one._run for one in several if one._run is not None]
        futures.wait(runs, timeout_s, futures.FIRST_COMPLETED)
        return next((number for number, one in enumerate(runs) if one.done()), None)

    def ended(self) -> None:
        """Wait for the end of a run that no caller waits for; its result is dropped."""
        run = self._run
        if run is not None:
            futures.wait([run])
            if self._run is run:
                self._run = None


class AtOnce:
    """Calls that are made at the same time, each on a thread of its own."""

    @staticmethod
    def results(calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """What each returns, or its StrataError; in order. Raises any other error."""
        runs: list[futures.Future[Any]] = [futures.Future() for _ in calls]
        for run, call in zip(runs, calls, strict=True):
            Background("stratamq-ask", _complete, run, call).start()
        futures.wait(runs)
        return [_result_or_error(run.exception() or run.result()) for run in runs]


def _result_or_error(result: Any) -> Any:
    if isinstance(result, BaseException) and not isinstance(result, StrataError):
        raise result
    return result


def _complete(future: "futures.Future[Any]", run: Callable[[], Any]) -> None:
    try:
        future.set_result(run())
    except BaseException as error:  # noqa: BLE001 - it is the caller's
        future.set_exception(error)


# --- tasks of one event loop ---

AsyncLock = asyncio.Lock


class AsyncGuard:
    """Nothing to guard against: between two `await` a task is alone."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, error_type: object, error: object, traceback: object) -> None:
        return None  # not `*_`: this is called for every message


class AsyncCondition:
    """See `Condition`."""

    def __init__(self, guard: AsyncGuard | None = None) -> None:
        self._waiting: dict[asyncio.Future[bool], None] = {}

    def notify_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for one in waiting:
            _wake(one, True)

    async def wait(self, timeout: float | None = None) -> bool:
        """Until the next `notify_all`; False when `timeout` seconds pass before."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[bool] = loop.create_future()
        alarm = None if timeout is None else loop.call_later(timeout, _wake, woken, False)
        self._waiting[woken] = None
        try:
            return await woken
        finally:
            self._waiting.pop(woken, None)
            if alarm is not None:
                alarm.cancel()

    async def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """The first true value of `predicate`, or its last one when `timeout` seconds pass."""
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        while not (value := predicate()):
            left = None if end is None else end - loop.time()
            if left is not None and left <= 0:
                break
            await self.wait(left)
        return value

    async def yield_control(self) -> None:
        """Let other tasks run."""
        await asyncio.sleep(0)


class AsyncEvent:
    """See `threading.Event`."""

    def __init__(self) -> None:
        self._set = False
        self._changed = AsyncCondition()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._changed.notify_all()

    async def wait(self, timeout: float | None = None) -> bool:
        """False when `timeout` seconds pass before."""
        return self._set or await self._changed.wait_for(self.is_set, timeout)


class AsyncBackground:
    """A task."""

    def __init__(
        self, name: str, run: Callable[..., Coroutine[Any, Any, None]], *arguments: Any
    ) -> None:
        self._name = name
        self._run = run
        self._arguments = arguments
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(*self._arguments), name=self._name)

    async def join(self, timeout_s: float | None = None) -> bool:
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=timeout_s)
        return self._task is None or self._task.done()

    @staticmethod
    def current() -> object:
        return asyncio.current_task()


class AsyncOnce:
    """Runs a function at the first `done`: again after an error, otherwise once."""

    def __init__(self, run: Callable[[], Awaitable[None]]) -> None:
        self._run: Callable[[], Awaitable[None]] | None = run
        self._running = AsyncOngoing()

    async def done(self) -> None:
        """Raises what the function raised."""
        if self._run is not None:
            await self._running.result(self._run)
            self._run = None  # it may hold the owner of this


class AsyncOngoing:
    """See `Ongoing`. A cancelled caller leaves the function running, too."""

    def __init__(self) -> None:
        self._task: asyncio.Future[Any] | None = None

    async def result(self, run: Callable[[], Awaitable[T]], timeout_s: float | None = None) -> T:
        task = self.begin(run)
        await asyncio.wait([task], timeout=timeout_s)
        if not task.done():
            raise TimeoutError
        self._task = None
        return task.result()

    def begin(self, run: Callable[[], Awaitable[Any]]) -> "asyncio.Future[Any]":
        """See `Ongoing.begin`."""
        if self._task is None:
            self._task = asyncio.ensure_future(run())
        return self._task

    @staticmethod
    async def first(several: "Sequence[AsyncOngoing]", timeout_s: float | None) -> int | None:
        """See `Ongoing.first`."""
        tasks = [one._task for one in several if one._task is not None]
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return next((number for number, one in enumerate(tasks) if one.done()), None)

    async def ended(self) -> None:
        """See `Ongoing.ended`. A cancelled caller leaves the run to the next caller."""
        task = self._task
        if task is not None:
            await asyncio.wait([task])
            if self._task is task:
                self._task = None
            if not task.cancelled():
                task.exception()


class AsyncAtOnce:
    """See `AtOnce`: a task for each call. When the caller is cancelled, so are they."""

    @staticmethod
    async def results(calls: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
        found = await asyncio.gather(*(call() for call in calls), return_exceptions=True)
        return [_result_or_error(one) for one in found]


def _wake(waiting: "asyncio.Future[bool]", notified: bool) -> None:
    if not waiting.done():
        waiting.set_result(notified)
