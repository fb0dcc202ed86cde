"""When a pass runs: at once, or after the flush that runs.

Under sync flush a pass waits for the flush that runs: what it would append that flush does not
cover, so that no answer comes later, and one pass takes all that came meanwhile. It does not
wait once a whole pass is there. No event loop: `schedule` runs a pass soon.
"""

from collections.abc import Callable

from stratamq_commitlog.write.appender import Appender
from stratamq_commitlog.write.group_commit import GroupCommit


class PassTiming:
    """Decides when an open log's next pass runs. `schedule` may be called again before it has
    run.
    """

    def __init__(
        self,
        appender: Appender,
        commit: GroupCommit,
        *,
        sync_flush: bool,
        pass_bytes: int,
        schedule: Callable[[], None],
    ) -> None:
        self._appender = appender
        self._commit = commit
        self._sync_flush = sync_flush
        self._pass_bytes = pass_bytes
        self._schedule = schedule

    def wake(self) -> None:
        """Something waits to be appended."""
        small = self._appender.pending_bytes < self._pass_bytes
        if not (self._sync_flush and not self._commit.idle and small):
            self._schedule()

    def resume(self) -> None:
        """A flush has ended, or a tick has passed: what waited is appended."""
        if self._appender.waiting:
            self._schedule()
