"""What the services of one process have in common: signals, errors of the event loop, the end.

    signal                every service stops in order; a second one ends the process at once
    one service ends      the others stop in order, and the process ends with its exit code
    the loop stands       one watch logs it, as an event of the first service

`stratamq up` puts the services that the register marks as light into one process, each with its
settings, lock, ports, run file, health, log file and metrics as if it were alone. `SERVICE` tells
them apart where they use what is the process's: tasks, calls and workers inherit it.
"""

import asyncio
import os
import signal
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from logging import getLogger
from typing import Any, Protocol

from stratamq.files.clock import SystemClock
from stratamq.service.loop_watch import LoopWatch

log = getLogger(__name__)

EXIT_SIGNAL_BASE = 128
SERVICE: ContextVar[str] = ContextVar("service", default="")
"""The service whose code this is, in a process of several; "": it is alone, or the code is of
none."""


class Stoppable(Protocol):
    """The part of a `Server` that its process uses."""

    def request_stop(self) -> None: ...

    def fail(self, error: BaseException) -> None: ...


class HostProcess:
    """`services`: their names, where they are several. Belongs to the event loop."""

    def __init__(self, services: Sequence[str] = ()) -> None:
        self.services = services
        self._servers: list[Stoppable] = []
        self._stopping = False

    @contextmanager
    def serving(self, server: Stoppable) -> Iterator[None]:
        """Signals and errors of the loop are this server's too, meanwhile."""
        if not self._servers:
            self._watch = self._begin()
        self._servers.append(server)
        if self._stopping:  # another service ended while this one was made
            server.request_stop()
        try:
            yield
        finally:
            self._servers.remove(server)
            if not self._servers:
                self._watch.close()

    def request_stop(self) -> None:
        self._stopping = True
        for server in self._servers:
            server.request_stop()

    def _begin(self) -> LoopWatch:
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._on_signal, signum)
        loop.set_exception_handler(self._on_loop_error)
        watch = LoopWatch(SystemClock())
        watch.start()
        return watch

    def _on_signal(self, signum: int) -> None:
        log.info("stop requested", extra={"signal": signal.Signals(signum).name})
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            # A plain handler from now on: it acts even while the event loop is blocked.
            loop.remove_signal_handler(each)
            signal.signal(each, lambda number, _: os._exit(EXIT_SIGNAL_BASE + number))
        self.request_stop()

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if "handle" in context and error is not None and _is_ours(error) and self._servers:
            self._servers[0].fail(error)
        else:
            loop.default_exception_handler(context)


PROCESS: ContextVar[HostProcess | None] = ContextVar("process", default=None)
"""None: of one service."""


def _is_ours(error: BaseException) -> bool:
    """It left our code; a callback of a library's own may fail without harm."""
    frames = traceback.walk_tb(error.__traceback__)
    modules = (str(frame.f_globals.get("__name__")).split(".")[0] for frame, _ in frames)
    return any(module == "__main__" or module.startswith("stratamq") for module in modules)
