"""The queue-offset snapshot: taken every few seconds, stored once what is below it is durable.

take ──► wait until *flushed* reaches it ──► store on the worker ──► deletion may go up to it
"""

import logging
from dataclasses import replace

from stratamq.errors import StrataError
from stratamq.store.queue_snapshot import FrameMark, Snapshot, mark
from stratamq_commitlog.log_reads import LogReads
from stratamq_commitlog.log_state import StateCell
from stratamq_commitlog.recovery.own_state import OwnState
from stratamq_commitlog.replica.follow_hub import LogOffsets
from stratamq_commitlog.upkeep.jobs import Jobs
from stratamq_commitlog.upkeep.snapshot_saving import SnapshotSaving
from stratamq_commitlog.write.appender import Appender
from stratamq_commitlog.write.group_commit import GroupCommit

log = logging.getLogger(__name__)


class Snapshots:
    """Saves the queue offsets of one open log."""

    def __init__(
        self,
        own_state: OwnState,
        appender: Appender,
        offsets: LogOffsets,
        states: StateCell,
        commit: GroupCommit,
        reads: LogReads,
        jobs: Jobs,
        *,
        interval_ms: int,
    ) -> None:
        self.needed_from = 0
        """The durable snapshot stands on the frame here: nothing from it on may be deleted."""
        self._own_state = own_state
        self._appender = appender
        self._offsets = offsets
        self._states = states
        self._commit = commit
        self._reads = reads
        self._jobs = jobs
        self._interval_ns = interval_ms * 1_000_000
        self._saving = SnapshotSaving(own_state, appender.queues, jobs.submit, self._take_now)
        self._next_ns = 0
        self._waiting: Snapshot | None = None
        """Taken, and not durable below its offset."""
        self._taken_at = -1
        """The offset of the last one that was taken; -1: another one is due."""
        self._stored: Snapshot | None = None
        """The durable snapshot."""
        self._last_frame: FrameMark | None = None

    def start(self, last_frame: FrameMark | None) -> None:
        """Blocking: the first snapshot of a start, durable on return. OSError."""
        self._last_frame = last_frame
        first = self._with_minimum(self._take())
        self._own_state.first_snapshot(first, self._appender.queues.table)
        self._has_stored(first)

    def tick(self, now_ns: int) -> None:
        self._store_waiting()
        if now_ns < self._next_ns:
            return
        self._next_ns = now_ns + self._interval_ns
        moved = self._offsets.appended != self._taken_at
        # Once writing has ended the queue table may be ahead of the log.
        if moved and self._waiting is None and self._commit.failure is None:
            try:
                self._waiting = self._take()
            except OSError as error:
                log.error("no snapshot could be taken", extra={"error": str(error)})

    def again(self) -> None:
        """The queue table has changed, and the log's end has not: the next interval saves it."""
        self._taken_at = -1

    def stop(self) -> None:
        """Begin nothing more on the worker."""
        self._saving.stop()

    def close(self) -> None:
        """Blocking: the last snapshot, durable on return. OSError."""
        snapshot = self._with_minimum(self._take())
        self._saving.store_blocking(snapshot)
        self._has_stored(snapshot)

    def minimum_is_durable(self, minimum: int) -> bool:
        """Whether a start would find that the log begins at `minimum`, or above."""
        return self._stored is not None and (self._stored.minimum or 0) >= minimum

    def store_minimum(self) -> None:
        """Store the durable snapshot again, with the log's present minimum."""
        if self._stored is None or self._jobs.is_running("snapshot"):
            return
        again = self._with_minimum(self._stored)
        self._saving.repeat(again, lambda error: None if error else self._has_stored(again))

    def store_minimum_blocking(self) -> None:
        """The same, durable on return, where it can be done by one small write. OSError."""
        if self._stored is not None and self._own_state.can_append_snapshot:
            self._own_state.append_snapshot(self._with_minimum(self._stored), ())

    def _take_now(self) -> None:
        self._taken_at, self._next_ns = -1, 0

    def _take(self) -> Snapshot:
        appender, offsets = self._appender, self._offsets
        if appender.last_frame is not None:
            offset, size = appender.last_frame
            self._last_frame = mark(offset, self._reads.read_back(offset, size))
        self._taken_at = offsets.appended
        self._saving.take()
        return Snapshot(
            generation=self._states.now.generation,
            offset=offsets.appended,
            frame=self._last_frame,
            store_timestamp_ms=appender.store_timestamp_ms,
        )

    def _store_waiting(self) -> None:
        snapshot = self._waiting
        if snapshot is None or snapshot.offset > self._offsets.flushed:
            return
        if self._jobs.is_running("snapshot"):
            return  # at the next tick: an idle log would take no other one
        self._waiting = None
        snapshot = self._with_minimum(snapshot)

        def stored(error: StrataError | None) -> None:
            if error is None:
                self._has_stored(snapshot)
            else:
                self._taken_at = -1

        if not self._saving.store(snapshot, stored):
            self._taken_at = -1

    def _with_minimum(self, snapshot: Snapshot) -> Snapshot:
        """Segments may have left the log since it was taken, and their files may be gone."""
        return replace(snapshot, minimum=self._offsets.minimum)

    def _has_stored(self, snapshot: Snapshot) -> None:
        self._stored = snapshot
        self.needed_from = snapshot.offset if snapshot.frame is None else snapshot.frame.offset
