"""The end of an open log: what it waits for, and what its directory is left as."""

import logging
from collections.abc import Sequence

from stratamq.errors import UnavailableError
from stratamq.files.port import Clock, Files
from stratamq.formats.message_status import SendStatus
from stratamq_commitlog.log_reads import LogReads
from stratamq_commitlog.recovery.opening import remove_abort
from stratamq_commitlog.replica.follow_hub import FollowHub, LogOffsets
from stratamq_commitlog.upkeep.scrubber import Scrubber
from stratamq_commitlog.upkeep.upkeep import Upkeep
from stratamq_commitlog.write.appender import Appender
from stratamq_commitlog.write.group_commit import GroupCommit
from stratamq_commitlog.write.high_water_mark import HighWaterMark
from stratamq_commitlog.write.segment_set import SegmentSet
from stratamq_commitlog.write.write_gate import WriteGate

log = logging.getLogger(__name__)


class Closing:
    """Closes one log. `followers`: those that must confirm the final offset before a shutdown is
    marked clean."""

    def __init__(
        self,
        files: Files,
        clock: Clock,
        gate: WriteGate,
        offsets: LogOffsets,
        segments: SegmentSet,
        commit: GroupCommit,
        appender: Appender,
        hub: FollowHub,
        high_water_mark: HighWaterMark,
        upkeep: Upkeep,
        scrubber: Scrubber,
        reads: LogReads,
        *,
        followers: Sequence[str],
    ) -> None:
        self._files = files
        self._clock = clock
        self._gate = gate
        self._offsets = offsets
        self._segments = segments
        self._commit = commit
        self._appender = appender
        self._hub = hub
        self._high_water_mark = high_water_mark
        self._upkeep = upkeep
        self._scrubber = scrubber
        self._reads = reads
        self._followers = followers

    def begin(self) -> None:
        """Refuse appends, flush, and send the followers the end of the log."""
        if self._gate.closing:
            return
        self._gate.closing = True
        self._appender.refuse_all(
            SendStatus.SERVICE_NOT_AVAILABLE, UnavailableError("the log is closing")
        )
        self._commit.request(self._offsets.appended)
        self._high_water_mark.announce_end()

    @property
    def ready(self) -> bool:
        """Everything is durable here and at every follower that must have reported the end."""
        return (
            self._all_flushed() or self._commit.failure is not None
        ) and self.missing_followers() == []

    def missing_followers(self) -> list[str]:
        """Configured followers that have not reported the log's end as durable."""
        if not self._segments.offsets:
            return []
        return self._hub.unfinished(self._followers)

    def finish(self) -> None:
        """Blocking: save the last state. `abort` goes only if nothing is left to recover."""
        clean = self._all_flushed() and self._commit.failure is None
        missing = self.missing_followers()
        try:
            self._upkeep.close(flushed=clean)
            self._segments.close()
            self._scrubber.close()
            if clean and not missing:
                remove_abort(self._files, self._clock)
            else:
                why = {"missing_followers": missing, "flushed": clean}
                log.warning("abort is kept", extra=why)
        except OSError as error:
            # Nothing is lost by it: the next start recovers.
            log.error("abort is kept", extra={"error": str(error)})
        self._reads.close()

    def _all_flushed(self) -> bool:
        return self._commit.flushed == self._offsets.appended
