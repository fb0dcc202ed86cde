"""What the log does by the clock, and may do late: snapshots, checkpoint, topics, deletion.

Nothing of it is on the way of an append. The parts do the work; here is when.
"""

from collections.abc import Callable
from dataclasses import dataclass

from stratamq.errors import StrataError
from stratamq.formats.checkpoint import Checkpoint
from stratamq_commitlog.log_state import LogOffsets
from stratamq_commitlog.recovery.recovery import RecoveredLog
from stratamq_commitlog.replica.master_confirmed import MasterConfirmed
from stratamq_commitlog.upkeep.checkpoints import Checkpoints
from stratamq_commitlog.upkeep.deletion import SegmentDeletion
from stratamq_commitlog.upkeep.disk_level import DiskLevel
from stratamq_commitlog.upkeep.jobs import Jobs
from stratamq_commitlog.upkeep.snapshots import Snapshots
from stratamq_commitlog.write.segment_set import SegmentSet
from stratamq_commitlog.write.store_clock import StoreClock
from stratamq_commitlog.write.topic_table import TopicTable

_SECOND_NS = 1_000_000_000


@dataclass(slots=True)
class Upkeep:
    """Background work of one open log."""

    jobs: Jobs
    offsets: LogOffsets
    segments: SegmentSet
    snapshots: Snapshots
    checkpoints: Checkpoints
    deletion: SegmentDeletion
    disk_level: DiskLevel
    topics: TopicTable
    master_confirmed: MasterConfirmed
    clock: StoreClock
    next_second_ns: int = 0

    def start(self, checkpoint: Checkpoint, recovered: RecoveredLog) -> None:
        """Blocking: the first saved state of a start, durable on return. OSError."""
        self.disk_level.start()
        self.checkpoints.start(checkpoint, recovered.store_timestamp_ms)
        self.snapshots.start(recovered.last_frame)

    def tick(self, now_ns: int) -> None:
        self.deletion.tick(now_ns)
        self.snapshots.tick(now_ns)
        if now_ns >= self.next_second_ns:
            self.next_second_ns = now_ns + _SECOND_NS
            self._every_second()

    def stop(self) -> None:
        """No more steps of what is written in many: the worker is about to end, or to wait."""
        self.jobs.stop()
        self.snapshots.stop()
        self.topics.saving.stop()

    def close(self, *, flushed: bool) -> None:
        """Blocking: the last saved state, as far as it is true of the disk. OSError."""
        bound = self.master_confirmed
        if bound.value is not None and bound.needs_store(self.offsets.flushed):
            bound.store(bound.value)
        self.topics.save()
        if flushed:
            self.snapshots.close()
            self.checkpoints.close()
        elif self.deletion.unlinking:
            self.snapshots.store_minimum_blocking()
        self.deletion.close()

    def save_topics(self, done: Callable[[StrataError | None], None]) -> None:
        """Make changed topics durable, then `done(None)`; calls that come meanwhile share the next
        writing."""
        self.topics.saving.save(
            self.jobs.each, lambda error: done(self.jobs.failure("topics", error))
        )

    def _every_second(self) -> None:
        self.disk_level.every_second()
        self.checkpoints.every_second()
        self._save_master_confirmed()
        if self.topics.dirty:
            self.save_topics(lambda error: None)
        self._save_clock()
        self.topics.saving.tick(self.jobs.each)
        if self.segments.allocation_error is not None:
            self.segments.allocate_again(self.offsets.appended)

    def _save_master_confirmed(self) -> None:
        bound, offset = self.master_confirmed, self.master_confirmed.value
        if offset is not None and bound.needs_store(self.offsets.flushed):
            self.jobs.submit("master_confirmed", lambda: bound.store(offset), lambda _, error: None)

    def _save_clock(self) -> None:
        clock = self.clock
        if not clock.unsaved or self.jobs.is_running("clock"):
            return
        clock.unsaved, document = False, clock.document()

        def saved(_: None, error: StrataError | None) -> None:
            if error is not None:
                clock.unsaved = True  # the next second tries again

        self.jobs.submit("clock", lambda: clock.save(document), saved)
