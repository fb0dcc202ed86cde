"""The way of an append through the open log, and what stops it.

appender ──► appended ──► flush wanted, next segment kept ahead ──► high-water mark
a flush ends ──► flushed ──► high-water mark
a write or a flush fails ──► writing has ended; everything that waits is refused
no segment can be allocated ──► what waits is refused; tried again each second
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from stratamq.errors import BusyError, NotWritableError, StrataError
from stratamq.files.port import Clock
from stratamq.formats.message_status import SendStatus
from stratamq_commitlog.log_state import LogOffsets
from stratamq_commitlog.write.append_times import AppendStages, AppendTimes
from stratamq_commitlog.write.appender import Appender
from stratamq_commitlog.write.group_commit import GroupCommit
from stratamq_commitlog.write.pending_items import failed, no_segment
from stratamq_commitlog.write.segment_set import SegmentSet
from stratamq_commitlog.write.write_gate import WriteGate

log = logging.getLogger(__name__)


@dataclass(slots=True)
class WritePath:
    """The write path of one open log. `moved` hears that *appended* or *flushed* is another one;
    `wake`: run a pass soon. `flush_interval_ms` None: after each pass. `stages`: where traces
    are recorded."""

    appender: Appender
    segments: SegmentSet
    commit: GroupCommit
    offsets: LogOffsets
    gate: WriteGate
    moved: Callable[[], None]
    times: AppendTimes
    clock: Clock
    wake: Callable[[], None]
    flush_interval_ms: int | None
    stages: AppendStages | None = None
    no_room: StrataError | None = None
    """Appends were refused because no segment could be allocated, and none could since."""
    next_flush_ns: int = 0

    def run_pass(self) -> None:
        """Append what waits, up to the limits of a pass; wakes again for the rest."""
        if self.gate.stalled:
            return
        oldest_ns, began_ns = self.appender.oldest_ns, self.clock.monotonic_ns()
        more = self.appender.run()
        end = self.appender.appended
        if end != self.offsets.appended:
            if self.stages is not None:
                self.stages.written(began_ns, end)
            self.offsets.appended = end
            if self.flush_interval_ms is None:
                self.commit.request(end)
            if self.segments.allocation_error is None:
                self.segments.keep_ahead(end)
            self.moved()
            if oldest_ns is not None:
                self.times.passed(end, oldest_ns, began_ns)
        if more:
            self.wake()

    def tick(self, now_ns: int) -> None:
        """Answer those whose flush takes too long; flush by the interval."""
        self.commit.expire()
        if self.flush_interval_ms is not None and now_ns >= self.next_flush_ns:
            self.next_flush_ns = now_ns + self.flush_interval_ms * 1_000_000
            self.commit.request(self.offsets.appended)

    def stand_still(self, reason: str, *, refuse: bool) -> None:
        """The disk is stalled, "": the stall ended. Nothing is written to it meanwhile; `refuse`:
        who waits to be appended is answered, and nothing of it is stored."""
        self.gate.stalled = reason
        if not reason:
            self.wake()
        elif refuse:
            self.appender.refuse_all(SendStatus.OS_PAGECACHE_BUSY, BusyError(reason))

    def allocated(self) -> None:
        error = self.segments.allocation_error
        if error is None:
            self.no_room = None
        else:
            log.error("segment allocation failed", extra={"error": str(error)})
            if self.appender.blocked:
                self.no_room = no_segment(error)
                self.appender.refuse_all(SendStatus.CREATE_MAPEDFILE_FAILED, self.no_room)
        self.wake()

    def flushed(self, end: int) -> None:
        if self.stages is not None:
            self.stages.flushed(end)
        self.offsets.flushed = end
        self.segments.flushed(end)
        self.moved()

    def write_failed(self, error: OSError) -> None:
        self.gate.stopped_reason = failed("write", error)
        self.commit.fail(error)

    def flush_failed(self, error: OSError) -> None:
        gate = self.gate
        gate.stopped_reason = gate.stopped_reason or failed("flush", error)
        log.critical("writing stopped", extra={"reason": gate.stopped_reason})
        self.appender.refuse_all(
            SendStatus.SERVICE_NOT_AVAILABLE,
            NotWritableError(gate.stopped_reason, "flush_failed"),
        )
