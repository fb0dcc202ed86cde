"""The way of an append through the open log, and what stops it.

appender ──► appended ──► flush wanted, next segment kept ahead ──► high-water mark
a flush ends ──► flushed ──► high-water mark
a write or a flush fails ──► writing has ended; everything that waits is refused
no segment can be allocated ──► what waits is refused; tried again each second
"""

import logging
from collections.abc import Callable

from stratamq.errors import BusyError, NotWritableError, StrataError
from stratamq.files.port import Clock
from stratamq.formats.message_status import SendStatus
from stratamq_commitlog.replica.follow_hub import LogOffsets
from stratamq_commitlog.write.append_stages import AppendStages
from stratamq_commitlog.write.append_times import AppendTimes
from stratamq_commitlog.write.appender import Appender
from stratamq_commitlog.write.group_commit import GroupCommit
from stratamq_commitlog.write.high_water_mark import HighWaterMark
from stratamq_commitlog.write.pending_items import failed, no_segment
from stratamq_commitlog.write.segment_set import SegmentSet
from stratamq_commitlog.write.write_gate import WriteGate

log = logging.getLogger(__name__)


class WritePath:
    """The write path of one open log. `wake`: run a pass soon."""

    def __init__(
        self,
        appender: Appender,
        segments: SegmentSet,
        commit: GroupCommit,
        offsets: LogOffsets,
        gate: WriteGate,
        high_water_mark: HighWaterMark,
        times: AppendTimes,
        clock: Clock,
        wake: Callable[[], None],
        *,
        flush_interval_ms: int | None,
        stages: AppendStages | None = None,
    ) -> None:
        """`flush_interval_ms` None: after each pass. `stages`: where traces are recorded."""
        self._stages = stages
        self.no_room: StrataError | None = None
        """Appends were refused because no segment could be allocated, and none could since."""
        self._appender = appender
        self._segments = segments
        self._commit = commit
        self._offsets = offsets
        self._gate = gate
        self._high_water_mark = high_water_mark
        self._times = times
        self._clock = clock
        self._wake = wake
        self._flush_interval_ms = flush_interval_ms
        self._next_flush_ns = 0
        segments.on_allocated = self._allocated
        commit.on_flushed = self._flushed
        commit.on_failed = self._flush_failed
        appender.on_write_failed = self._write_failed

    def run_pass(self) -> None:
        """Append what waits, up to the limits of a pass; wakes again for the rest."""
        if self._gate.stalled:
            return
        oldest_ns, began_ns = self._appender.oldest_ns, self._clock.monotonic_ns()
        more = self._appender.run()
        end = self._appender.appended
        if end != self._offsets.appended:
            if self._stages is not None:
                self._stages.written(began_ns, end)
            self._offsets.appended = end
            if self._flush_interval_ms is None:
                self._commit.request(end)
            if self._segments.allocation_error is None:
                self._segments.keep_ahead(end)
            self._high_water_mark.advance()
            if oldest_ns is not None:
                self._times.passed(end, oldest_ns, began_ns)
        if more:
            self._wake()

    def tick(self, now_ns: int) -> None:
        """Answer those whose flush takes too long; flush by the interval."""
        self._commit.expire()
        if self._flush_interval_ms is not None and now_ns >= self._next_flush_ns:
            self._next_flush_ns = now_ns + self._flush_interval_ms * 1_000_000
            self._commit.request(self._offsets.appended)

    def stand_still(self, reason: str, *, refuse: bool) -> None:
        """The disk is stalled, "": the stall ended. Nothing is written to it meanwhile; `refuse`:
        who waits to be appended is answered, and nothing of it is stored."""
        self._gate.stalled = reason
        if not reason:
            self._wake()
        elif refuse:
            self._appender.refuse_all(SendStatus.OS_PAGECACHE_BUSY, BusyError(reason))

    def _allocated(self) -> None:
        error = self._segments.allocation_error
        if error is None:
            self.no_room = None
        else:
            log.error("segment allocation failed", extra={"error": str(error)})
            if self._appender.blocked:
                self.no_room = no_segment(error)
                self._appender.refuse_all(SendStatus.CREATE_MAPEDFILE_FAILED, self.no_room)
        self._wake()

    def _flushed(self, end: int) -> None:
        if self._stages is not None:
            self._stages.flushed(end)
        self._offsets.flushed = end
        self._segments.flushed(end)
        self._high_water_mark.advance()

    def _write_failed(self, error: OSError) -> None:
        self._gate.stopped_reason = failed("write", error)
        self._commit.fail(error)

    def _flush_failed(self, error: OSError) -> None:
        gate = self._gate
        gate.stopped_reason = gate.stopped_reason or failed("flush", error)
        log.critical("writing stopped", extra={"reason": gate.stopped_reason})
        self._appender.refuse_all(
            SendStatus.SERVICE_NOT_AVAILABLE,
            NotWritableError(gate.stopped_reason, "flush_failed"),
        )
