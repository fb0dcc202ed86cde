"""When the last passes were written and flushed: the parts of an append whose trace is recorded.

    taken ─append wait─► pass ─pass write─► written ─flush wait─► flushed ─replica wait─► answered

Kept for each pass and each flush, not for each message; only where traces are on.
"""

from collections import deque
from typing import NamedTuple

from stratamq.files.port import Clock
from stratamq.rpc.request_ids import Span

MOST = 1_024


class _Pass(NamedTuple):
    begin_ns: int
    written_ns: int
    end: int
    """The log's, behind the pass."""


class AppendStages:
    """The stages that appends to one log are in. Single-threaded."""

    def __init__(self, clock: Clock) -> None:
        self.now_ns = clock.monotonic_ns
        self._passes: deque[_Pass] = deque(maxlen=MOST)
        self._flushes: deque[tuple[int, int]] = deque(maxlen=MOST)
        """(time, flushed)."""

    def written(self, began_ns: int, end: int) -> None:
        """A pass that began then has brought the log's end to `end`."""
        self._passes.append(_Pass(began_ns, self.now_ns(), end))

    def flushed(self, end: int) -> None:
        self._flushes.append((self.now_ns(), end))

    def record(self, span: Span, taken_ns: int, offset: int, *, replicated: bool) -> None:
        """The parts of an append that is answered now; its last message is at log offset `offset`.
        `replicated`: it waited for slaves."""
        found = self._pass_of(offset)
        if found is None:
            return
        span.past_part("append wait", taken_ns, max(taken_ns, found.begin_ns))
        span.past_part("pass write", found.begin_ns, found.written_ns)
        safe_ns = found.written_ns
        flushed_ns = self._flushed_ns(offset)
        if flushed_ns is not None and flushed_ns > safe_ns:
            span.past_part("flush wait", safe_ns, flushed_ns)
            safe_ns = flushed_ns
        if replicated:
            span.past_part("replica wait", safe_ns, self.now_ns())

    def _pass_of(self, offset: int) -> _Pass | None:
        found = None
        for one in reversed(self._passes):
            if one.end <= offset:
                return found
            found = one
        return None  # forgotten, or the first one

    def _flushed_ns(self, offset: int) -> int | None:
        found = None
        for time_ns, end in reversed(self._flushes):
            if end <= offset:
                break
            found = time_ns
        return found
