"""A thread that detects and logs where the event loop stalls.

While a call blocks the loop (a write to a disk that does not answer), no handler, no health check
and no time-out runs: only another thread can detect it. The metric is served by the thread of the
metrics endpoint.
"""

import asyncio
import logging
import sys
import threading
import traceback

from stratamq.files.port import Clock
from stratamq.service import metrics

log = logging.getLogger(__name__)

STANDS_STILL_S = 5.0
_LOOK_S = 0.5

STALLED = metrics.gauge(
    "service_loop_stalled_seconds",
    "Seconds the event loop has been blocked by the current callback; 0 while it runs.",
    asks="Is the service blocked?",
)


class LoopWatch:
    """`start` on the loop that is watched; `close` ends the thread."""

    def __init__(self, clock: Clock, stands_still_s: float = STANDS_STILL_S) -> None:
        self._clock = clock
        self._limit_s = stands_still_s
        self._beat_ns = clock.monotonic_ns()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look, name="loop-watch", daemon=True)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._beat()
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._timer.cancel()
        self._thread.join()

    def _beat(self) -> None:
        self._beat_ns = self._clock.monotonic_ns()
        self._timer = self._loop.call_later(_LOOK_S, self._beat)

    def _look(self) -> None:
        logged = False
        while not self._closed.wait(_LOOK_S):
            silent_s = (self._clock.monotonic_ns() - self._beat_ns) / 1e9
            stalled = silent_s >= self._limit_s
            STALLED.set(silent_s if stalled else 0.0)
            if stalled and not logged:
                log.critical("event loop stalled", extra={"seconds": silent_s, "in": self._where()})
            elif logged and not stalled:
                log.warning("event loop stall ended")
            logged = stalled

    def _where(self) -> str:
        """The last calls of the loop's thread, innermost first."""
        frame = sys._current_frames().get(self._watched)
        calls = traceback.extract_stack(frame)[-3:]
        return " < ".join(f"{one.name} ({one.filename}:{one.lineno})" for one in reversed(calls))
