"""Background work of the log on one worker: one task of a kind at a time.

What the disk refuses is logged and given to the caller as an error, and tried again by the next
tick; a full disk releases the reserve first, so that the next try finds room.
"""

import errno
import logging
from collections.abc import Callable
from typing import Any

from stratamq.errors import NotWritableError, StrataError
from stratamq.files.port import Worker
from stratamq_commitlog.recovery.reserve import Reserve

log = logging.getLogger(__name__)

JobDone = Callable[[Any, StrataError | None], None]


class Jobs:
    """Periodic jobs of one open log."""

    def __init__(self, worker: Worker, reserve: Reserve) -> None:
        self._worker = worker
        self._reserve = reserve
        self._running: set[str] = set()
        self._stopped = False

    def is_running(self, kind: str) -> bool:
        return kind in self._running

    def submit(self, kind: str, task: Callable[[], Any], done: JobDone) -> bool:
        """Run `task` on the worker, then `done` on the engine's thread. False: one of that kind is
        running, or `stop` was called, and nothing was done."""
        if kind in self._running or self._stopped:
            return False
        self._running.add(kind)

        def finished(result: object, error: BaseException | None) -> None:
            self._running.discard(kind)
            failure = self.failure(kind, error)
            done(result if failure is None else None, failure)

        self._worker.submit(task, finished)
        return True

    def stop(self) -> None:
        """Begin nothing more on the worker; what runs ends."""
        self._stopped = True

    def each(self, task: Callable[[], Any], done: Callable[..., None]) -> None:
        """Run every one of these, in order; `done` gets the exception itself."""
        self._worker.submit(task, done)

    def failure(self, kind: str, error: BaseException | None) -> StrataError | None:
        """What the disk refused, as a NotWritableError; any other exception is raised."""
        if error is None:
            return None
        if not isinstance(error, OSError):
            raise error
        log.error("background work failed", extra={"task": kind, "error": str(error)})
        if error.errno == errno.ENOSPC:
            self.submit("reserve", self._reserve.release, lambda _, error: None)
        return NotWritableError(f"{kind} could not be written: {error.strerror or error}", kind)
