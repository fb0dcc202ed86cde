"""What the log does by the clock, and may do late: snapshots, checkpoint, topics, deletion.

Nothing of it is on the way of an append. The parts do the work; here is when.
"""

from collections.abc import Callable

from stratamq.errors import StrataError
from stratamq.formats.checkpoint import Checkpoint
from stratamq_commitlog.recovery.recovery import Recovered
from stratamq_commitlog.replica.follow_hub import LogOffsets
from stratamq_commitlog.replica.master_confirmed import MasterConfirmed
from stratamq_commitlog.upkeep.checkpoints import Checkpoints
from stratamq_commitlog.upkeep.deletion import Deletion
from stratamq_commitlog.upkeep.disk_level import DiskLevel
from stratamq_commitlog.upkeep.jobs import Jobs
from stratamq_commitlog.upkeep.snapshots import Snapshots
from stratamq_commitlog.write.segment_set import SegmentSet
from stratamq_commitlog.write.store_clock import StoreClock
from stratamq_commitlog.write.topic_table import TopicTable

_SECOND_NS = 1_000_000_000


class Upkeep:
    """Background work of one open log."""

    def __init__(
        self,
        jobs: Jobs,
        offsets: LogOffsets,
        segments: SegmentSet,
        snapshots: Snapshots,
        checkpoints: Checkpoints,
        deletion: Deletion,
        disk_level: DiskLevel,
        topics: TopicTable,
        master_confirmed: MasterConfirmed,
        clock: StoreClock,
    ) -> None:
        self._jobs = jobs
        self._offsets = offsets
        self._segments = segments
        self._snapshots = snapshots
        self._checkpoints = checkpoints
        self._deletion = deletion
        self._disk_level = disk_level
        self._topics = topics
        self._master_confirmed = master_confirmed
        self._clock = clock
        self._next_second_ns = 0

    def start(self, checkpoint: Checkpoint, recovered: Recovered) -> None:
        """Blocking: the first saved state of a start, durable on return. OSError."""
        self._disk_level.start()
        self._checkpoints.start(checkpoint, recovered.store_timestamp_ms)
        self._snapshots.start(recovered.last_frame)

    def tick(self, now_ns: int) -> None:
        self._deletion.tick(now_ns)
        self._snapshots.tick(now_ns)
        if now_ns >= self._next_second_ns:
            self._next_second_ns = now_ns + _SECOND_NS
            self._every_second()

    def stop(self) -> None:
        """No more steps of what is written in many: the worker is about to end, or to wait."""
        self._jobs.stop()
        self._snapshots.stop()
        self._topics.saving.stop()

    def close(self, *, flushed: bool) -> None:
        """Blocking: the last saved state, as far as it is true of the disk. OSError."""
        bound = self._master_confirmed
        if bound.value is not None and bound.needs_store(self._offsets.flushed):
            bound.store(bound.value)
        self._topics.save()
        if flushed:
            self._snapshots.close()
            self._checkpoints.close()
        elif self._deletion.unlinking:
            self._snapshots.store_minimum_blocking()
        self._deletion.close()

    def save_topics(self, done: Callable[[StrataError | None], None]) -> None:
        """Make changed topics durable, then `done(None)`; calls that come meanwhile share the next
        writing."""
        self._topics.saving.save(
            self._jobs.each, lambda error: done(self._jobs.failure("topics", error))
        )

    def _every_second(self) -> None:
        self._disk_level.every_second()
        self._checkpoints.every_second()
        self._save_master_confirmed()
        if self._topics.dirty:
            self.save_topics(lambda error: None)
        self._save_clock()
        self._topics.saving.tick(self._jobs.each)
        if self._segments.allocation_error is not None:
            self._segments.allocate_again(self._offsets.appended)

    def _save_master_confirmed(self) -> None:
        bound, offset = self._master_confirmed, self._master_confirmed.value
        if offset is not None and bound.needs_store(self._offsets.flushed):
            self._jobs.submit(
                "master_confirmed", lambda: bound.store(offset), lambda _, error: None
            )

    def _save_clock(self) -> None:
        clock = self._clock
        if not clock.unsaved or self._jobs.is_running("clock"):
            return
        clock.unsaved, document = False, clock.document()

        def saved(_: None, error: StrataError | None) -> None:
            if error is not None:
                clock.unsaved = True  # the next second tries again

        self._jobs.submit("clock", lambda: clock.save(document), saved)
