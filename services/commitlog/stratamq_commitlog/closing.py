"""The end of an open log: what it waits for, and what its directory is left as."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from stratamq.errors import UnavailableError
from stratamq.files.port import Clock, Files
from stratamq.formats.message_status import SendStatus
from stratamq_commitlog.log_reads import LogReads
from stratamq_commitlog.log_state import LogOffsets
from stratamq_commitlog.recovery.opening import remove_abort
from stratamq_commitlog.replica.follow_hub import FollowHub
from stratamq_commitlog.replica.high_water_mark import HighWaterMark
from stratamq_commitlog.upkeep.scrubber import LogScrubber
from stratamq_commitlog.upkeep.upkeep import Upkeep
from stratamq_commitlog.write.appender import Appender
from stratamq_commitlog.write.group_commit import GroupCommit
from stratamq_commitlog.write.segment_set import SegmentSet
from stratamq_commitlog.write.write_gate import WriteGate

log = logging.getLogger(__name__)


@dataclass(slots=True)
class LogCloser:
    """Closes one log. `followers`: those that must confirm the final offset before a shutdown is
    marked clean."""

    files: Files
    clock: Clock
    gate: WriteGate
    offsets: LogOffsets
    segments: SegmentSet
    commit: GroupCommit
    appender: Appender
    hub: FollowHub
    high_water_mark: HighWaterMark
    upkeep: Upkeep
    scrubber: LogScrubber
    reads: LogReads
    followers: Sequence[str]

    def begin(self) -> None:
        """Refuse appends, flush, and send the followers the end of the log."""
        if self.gate.closing:
            return
        self.gate.closing = True
        self.appender.refuse_all(
            SendStatus.SERVICE_NOT_AVAILABLE, UnavailableError("the log is closing")
        )
        self.commit.request(self.offsets.appended)
        self.high_water_mark.announce_end()

    @property
    def ready(self) -> bool:
        """Everything is durable here and at every follower that must have reported the end."""
        return (
            self._all_flushed() or self.commit.failure is not None
        ) and self.missing_followers() == []

    def missing_followers(self) -> list[str]:
        """Configured followers that have not reported the log's end as durable."""
        if not self.segments.offsets:
            return []
        return self.hub.unfinished(self.followers)

    def finish(self) -> None:
        """Blocking: save the last state. `abort` goes only if nothing is left to recover."""
        clean = self._all_flushed() and self.commit.failure is None
        missing = self.missing_followers()
        try:
            self.upkeep.close(flushed=clean)
            self.segments.close()
            self.scrubber.close()
            if clean and not missing:
                remove_abort(self.files, self.clock)
            else:
                why = {"missing_followers": missing, "flushed": clean}
                log.warning("abort is kept", extra=why)
        except OSError as error:
            # Nothing is lost by it: the next start recovers.
            log.error("abort is kept", extra={"error": str(error)})
        self.reads.close()

    def _all_flushed(self) -> bool:
        return self.commit.flushed == self.offsets.appended
