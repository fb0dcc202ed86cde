"""How long appends take, and where: measured once a pass, for what waited longest in it.

    enqueued ──► the pass begins ──► written ──► flushed ──► on k slaves ──► answered
            queue              write        flush       replicas
            └───────────────────────── whole ──────────────────────────┘

Under ASYNC_FLUSH no append waits for the flush, and on an ASYNC_MASTER none waits for slaves, so
these parts are not observed there. Failed passes are not observed.
"""

from collections.abc import Callable

from stratamq.errors import StrataError
from stratamq.files.port import Clock
from stratamq.formats.broker_role import Role
from stratamq.formats.message_status import SendStatus
from stratamq_commitlog.log_state import StateCell
from stratamq_commitlog.write.group_commit import GroupCommit
from stratamq_commitlog.write.pending_items import Commit

PARTS = ("queue", "write", "flush", "replicas")
WHOLE = "whole"


class AppendTimes:
    """Measures the appends to one open log."""

    def __init__(
        self,
        clock: Clock,
        commit: GroupCommit,
        when_safe: Commit,
        states: StateCell,
        *,
        sync_flush: bool,
    ) -> None:
        self.observe: Callable[[str, int], None] = lambda part, elapsed_ns: None
        """Of PARTS or WHOLE, in ns."""
        self._clock = clock
        self._commit = commit
        self._when_safe = when_safe
        self._states = states
        self._sync_flush = sync_flush

    def passed(self, end: int, oldest_ns: int, began_ns: int) -> None:
        """A pass that began then has brought the log's end to `end`; what waited longest in it was
        enqueued at `oldest_ns`."""
        now, observe = self._clock.monotonic_ns, self.observe
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
            if self._states.now.role is Role.SYNC_MASTER:
                observe("replicas", answered_ns - durable_ns)
            observe(WHOLE, answered_ns - oldest_ns)

        if self._sync_flush:
            self._commit.wait(end, flushed)
        self._when_safe(end, answered)
