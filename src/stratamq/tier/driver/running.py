"""Procedures run over a bounded number of threads, the calls of a `Together` at once.

`Runner.run` is for those who may block, `Runner.start` for an event loop: there a procedure's own
code runs in the threads too. No thread waits for another one, so that any number of procedures
share them. `storage.run` does one call after the other. Neither retries: `retrying.py` is a storage
that does.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Generic, TypeVar

from stratamq.tier.driver.calls import Procedure, Together
from stratamq.tier.driver.storage import CallOutcome, Storage, attempt, joined

T = TypeVar("T")
R = TypeVar("R")


class Runner:
    """Runs procedures over `threads` threads, so that at most this many calls are under way.

    Thread-safe. `close` it at the end.
    """

    def __init__(self, storage: Storage, threads: int) -> None:
        if threads < 1:
            raise ValueError(f"no work is done by {threads} threads")
        self.storage = storage
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="tier")
        self._under_way: set[Future[Any]] = set()

    def run(self, procedure: Procedure[T]) -> T:
        """The procedure's result. Its single calls are made by the calling thread."""
        driven = _Driven(procedure, self.storage)
        outcomes: list[CallOutcome] | None = None
        while True:
            together = driven.go_on(outcomes)
            if together is None:
                return driven.result
            outcomes = [future.result() for future in self._submit(together)]

    async def start(self, procedure: Procedure[T]) -> T:
        """The procedure's result, without a moment's work on the event loop.

        Cancelled, the call that is under way comes to its end in its thread, no further one is
        made, and the procedure is closed.
        """
        driven = _Driven(procedure, self.storage)
        outcomes: list[CallOutcome] | None = None
        try:
            while True:
                together = await asyncio.wrap_future(self._in_thread(driven.go_on, outcomes))
                if together is None:
                    return driven.result
                waiting = [asyncio.wrap_future(future) for future in self._submit(together)]
                outcomes = list(await asyncio.gather(*waiting))
        finally:
            driven.stop()

    def close(self, wait_s: float | None = None) -> bool:
        """Wait for the calls that are under way, so long at most (None: to their end): whether they
        have ended. The storage stays open."""
        self._pool.shutdown(wait=wait_s is None, cancel_futures=True)
        return not wait(list(self._under_way), wait_s).not_done

    def _submit(self, together: Together[Any]) -> list["Future[CallOutcome]"]:
        return [self._in_thread(attempt, self.storage, call) for call in together.calls]

    def _in_thread(self, work: Callable[..., R], *arguments: Any) -> "Future[R]":
        future = self._pool.submit(work, *arguments)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return future


class _Driven(Generic[T]):
    """A procedure under way: at one time in one thread."""

    result: T

    def __init__(self, procedure: Procedure[T], storage: Storage) -> None:
        self._procedure = procedure
        self._storage = storage
        self._turn = threading.Lock()
        self._stopped = False

    def go_on(self, outcomes: list[CallOutcome] | None) -> Together[Any] | None:
        """Up to the next Together, whose outcomes come with the next `go_on`; None: the end, and
        `result` is there unless it was stopped. Raises what the procedure raises."""
        with self._turn:
            outcome = joined(outcomes) if outcomes is not None else CallOutcome(None)
            try:
                while not self._stopped:
                    if outcome.error is not None:
                        call = self._procedure.throw(outcome.error)
                    else:
                        call = self._procedure.send(outcome.value)
                    if isinstance(call, Together):
                        return call
                    outcome = attempt(self._storage, call)
            except StopIteration as end:
                self.result = end.value
                return None
            self._procedure.close()
            return None

    def stop(self) -> None:
        """Close the procedure: now, or in its thread behind the call that is under way there."""
        self._stopped = True
        if self._turn.acquire(blocking=False):
            try:
                self._procedure.close()
            finally:
                self._turn.release()
