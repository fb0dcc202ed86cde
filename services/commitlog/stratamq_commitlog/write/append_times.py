"""How long appends take, and where: measured once a pass, for what waited longest in it.

    enqueued ──► the pass begins ──► written ──► flushed ──► on k slaves ──► answered
            queue              write        flush       replicas
            └───────────────────────── whole ──────────────────────────┘

Under ASYNC_FLUSH no append waits for the flush, and on an ASYNC_MASTER none waits for slaves, so
these parts are not observed there. Failed passes are not observed.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from stratamq.errors import StrataError
from stratamq.files.port import Clock
from stratamq.formats.log_state import Role
from stratamq.formats.message_status import SendStatus
from stratamq.rpc.request_ids import Span
from stratamq_commitlog.log_state import StateCell
from stratamq_commitlog.write.group_commit import GroupCommit
from stratamq_commitlog.write.pending_items import Commit

PARTS = ("queue", "write", "flush", "replicas")
WHOLE = "whole"


@dataclass(slots=True)
class AppendTimes:
    """Measures the appends to one open log. `observe`: one of PARTS or WHOLE, in ns."""

    clock: Clock
    commit: GroupCommit
    when_safe: Commit
    states: StateCell
    observe: Callable[[str, int], None]
    sync_flush: bool

    def passed(self, end: int, oldest_ns: int, began_ns: int) -> None:
        """A pass that began then has brought the log's end to `end`; what waited longest in it was
        enqueued at `oldest_ns`."""
        now, observe = self.clock.monotonic_ns, self.observe
        written_ns = durable_ns = now()
        observe("queue", began_ns - oldest_ns)
        observe("write", written_ns - began_ns)

        def flushed(durable: bool | None) -> None:
            nonlocal durable_ns
            durable_ns = now()
            if durable:
                observe("flush", durable_ns - written_ns)

        def answered(status: SendStatus, error: StrataError | None) -> None:
            if error is not None:
                return
            answered_ns = now()
            if self.states.now.role is Role.SYNC_MASTER:
                observe("replicas", answered_ns - durable_ns)
            observe(WHOLE, answered_ns - oldest_ns)

        if self.sync_flush:
            self.commit.wait(end, flushed)
        self.when_safe(end, answered)


MOST = 1_024


class _Pass(NamedTuple):
    begin_ns: int
    written_ns: int
    end: int
    """The log's, behind the pass."""


class AppendStages:
    """When the last passes were written and flushed: the parts of an append whose trace is
    recorded.

    taken ─append wait─► pass ─pass write─► written ─flush wait─► flushed ─replica wait─► answered

    Kept for each pass and each flush, not for each message; only where traces are on.

    The stages that appends to one log are in. Single-threaded.
    """

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
