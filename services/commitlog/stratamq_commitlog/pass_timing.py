"""When a pass runs: at once, or after the flush that runs.

Under sync flush a pass waits for the flush that runs: what it would append that flush does not
cover, so that no answer comes later, and one pass takes all that came meanwhile. It does not
wait once a whole pass is there. No event loop: `schedule` runs a pass soon.
"""

from collections.abc import Callable
from dataclasses import dataclass

from stratamq_commitlog.write.appender import Appender
from stratamq_commitlog.write.group_commit import GroupCommit


@dataclass(slots=True)
class PassTiming:
    """Decides when an open log's next pass runs. `schedule` may be called again before it has
    run.
    """

    appender: Appender
    commit: GroupCommit
    sync_flush: bool
    pass_bytes: int
    schedule: Callable[[], None]

    def wake(self) -> None:
        """Something waits to be appended."""
        small = self.appender.pending_bytes < self.pass_bytes
        if not (self.sync_flush and not self.commit.idle and small):
            self.schedule()

    def resume(self) -> None:
        """A flush has ended, or a tick has passed: what waited is appended."""
        if self.appender.waiting:
            self.schedule()
