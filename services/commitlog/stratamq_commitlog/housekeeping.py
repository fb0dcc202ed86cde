"""What the log does by the clock: checkpoint, snapshot, topics, the disk's level, deletion.

Everything here may be late without harm. It runs on the allocation worker, one task of a kind at a
time, and nothing of it is on the way of an append.
"""

import errno
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stratamq.errors import NotWritableError, StrataError
from stratamq.files.port import Files, Kind, Space, Worker
from stratamq.formats.checkpoint import (
    CHECKPOINT_FIELDS_BYTES,
    CHECKPOINT_FILE_BYTES,
    Checkpoint,
    decode_checkpoint,
    encode_checkpoint,
)
from stratamq.formats.file_names import offset_name
from stratamq_commitlog.messages import PutStatus
from stratamq_commitlog.own_state import FrameMark, OwnState, Snapshot, mark
from stratamq_commitlog.recovery import Recovered
from stratamq_commitlog.reserve import Reserve
from stratamq_commitlog.segment_set import DIRECTORY
from stratamq_commitlog.snapshot_saving import SnapshotSaving
from stratamq_commitlog.unlinking import slice_bytes, unlink_step

if TYPE_CHECKING:
    from stratamq_commitlog.engine import CommitLog, Finish

log = logging.getLogger(__name__)

CHECKPOINT_PATH = "checkpoint"
_SECOND_NS = 1_000_000_000


def read_checkpoint(files: Files) -> Checkpoint:
    """The file's values; zeros when it is missing, short or no file."""
    entry = files.entry(CHECKPOINT_PATH)
    if entry is None or entry.kind is not Kind.FILE or entry.size < CHECKPOINT_FIELDS_BYTES:
        return Checkpoint()
    file = files.open(CHECKPOINT_PATH)
    try:
        decoded = decode_checkpoint(file.read(0, CHECKPOINT_FIELDS_BYTES))
    finally:
        file.close()
    return decoded or Checkpoint()


@dataclass(slots=True)
class _Removed:
    """A segment that is out of the log and waits to be unlinked."""

    base: int
    deadline_ns: int
    emptied: int = 0
    """Up to this position its pages have been taken out of the cache."""


@dataclass(slots=True)
class _ReplicaWaiter:
    end: int
    deadline_ns: int
    finish: "Finish"


class Housekeeping:
    """Belongs to one open CommitLog."""

    def __init__(
        self,
        engine: "CommitLog",
        files: Files,
        state: OwnState,
        worker: Worker,
        reserve: Reserve,
    ) -> None:
        self._engine = engine
        self._files = files
        self._state = state
        self._worker = worker
        self._reserve = reserve
        self._next_second_ns = 0
        self._next_snapshot_ns = 0
        self._checkpoint = Checkpoint()
        self._busy: set[str] = set()
        self._snapshot: Snapshot | None = None
        self._snapshot_offset = -1
        self._snapshot_needs = 0
        """The durable snapshot stands on the frame here: nothing from it on may be deleted."""
        self._saving = SnapshotSaving(
            state, engine.appender.queues, self._submit, self._snapshot_now
        )
        self._stored: Snapshot | None = None
        """The durable snapshot."""
        self._last_frame: FrameMark | None = None
        self._flushed_timestamps: deque[tuple[int, int]] = deque()
        self._physic_timestamp_ms = 0
        self._removed: list[_Removed] = []
        self._replica_waiters: deque[_ReplicaWaiter] = deque()

    @property
    def unlinking(self) -> bool:
        """Files of deleted segments are still there."""
        return bool(self._removed)

    def start(self, checkpoint: Checkpoint, recovered: Recovered) -> None:
        """Blocking: the first snapshot and checkpoint of a start, durable on return."""
        self._last_frame = recovered.last_frame
        self._physic_timestamp_ms = recovered.store_timestamp_ms
        self._take_space(self._files.space(), None)
        newest = recovered.store_timestamp_ms
        index_ms = min(checkpoint.index_msg_timestamp_ms, newest)
        self._checkpoint = Checkpoint(
            physic_msg_timestamp_ms=min(checkpoint.physic_msg_timestamp_ms, newest),
            logics_msg_timestamp_ms=self._dispatched_ms(
                min(checkpoint.logics_msg_timestamp_ms, newest), index_ms
            ),
            index_msg_timestamp_ms=index_ms,
            confirm_phy_offset=self._engine.offsets.confirmed,
        )
        self._write_checkpoint(self._checkpoint)
        first = self._with_minimum(self._take_snapshot())
        self._state.first_snapshot(first, self._engine.appender.queues.table)
        self._snapshot_stored(first)

    def tick(self, now_ns: int) -> None:
        self._expire_replicas(now_ns)
        self._unlink_released(now_ns)
        if self._snapshot is not None:
            self._write_snapshot()
        if now_ns >= self._next_snapshot_ns:
            interval = self._engine.config.snapshot_interval_ms
            self._next_snapshot_ns = now_ns + interval * 1_000_000
            engine = self._engine
            moved = engine.offsets.appended != self._snapshot_offset
            # Once writing has ended the queue table may be ahead of the log.
            if moved and self._snapshot is None and engine.commit.failure is None:
                try:
                    self._snapshot = self._take_snapshot()
                except OSError as error:
                    log.error("no snapshot could be taken", extra={"error": str(error)})
        if now_ns >= self._next_second_ns:
            self._next_second_ns = now_ns + _SECOND_NS
            self._every_second()

    def stop(self) -> None:
        """No more steps of what is written in many: the worker is about to end, or to wait."""
        self._saving.stop()
        self._engine.topics.saving.stop()

    def close(self, *, flushed: bool) -> None:
        """Blocking: write the last state, if it is true of the disk."""
        bound = self._engine.master_confirmed
        if bound.value is not None and bound.needs_store(self._engine.offsets.flushed):
            bound.store(bound.value)
        self._engine.topics.save()
        if flushed:
            self._store_blocking(self._take_snapshot())
            self._write_checkpoint(self._next_checkpoint())
        elif self._removed and self._stored is not None and self._state.can_append_snapshot:
            self._state.append_snapshot(self._with_minimum(self._stored), ())
        for removed in self._removed:
            self._engine.segments.unlink(removed.base)
        self._removed.clear()

    # --- every second ---

    def _every_second(self) -> None:
        self._submit("space", self._look_at_space, self._take_space)
        checkpoint = self._next_checkpoint()
        if checkpoint != self._checkpoint:

            def written(_: None, error: StrataError | None) -> None:
                if error is None:
                    self._checkpoint = checkpoint

            self._submit("checkpoint", lambda: self._write_checkpoint(checkpoint), written)
        bound = self._engine.master_confirmed
        if bound.needs_store(self._engine.offsets.flushed):
            offset = bound.value
            assert offset is not None
            self._submit("master_confirmed", lambda: bound.store(offset), lambda _, error: None)
        if self._engine.topics.dirty:
            self.save_topics(lambda error: None)
        self._save_clock()
        self._engine.topics.saving.tick(self._submit_topics)
        if self._engine.segments.allocation_error is not None:
            self._engine.segments.allocate_again(self._engine.offsets.appended)

    def _save_clock(self) -> None:
        clock = self._engine.store_clock
        if not clock.unsaved or "clock" in self._busy:
            return
        clock.unsaved, document = False, clock.document()

        def saved(_: None, error: StrataError | None) -> None:
            if error is not None:
                clock.unsaved = True  # tried again in a second

        self._submit("clock", lambda: clock.save(document), saved)

    def _look_at_space(self) -> Space:
        self._reserve.keep()
        return self._files.space()

    def _take_space(self, space: Space | None, error: StrataError | None) -> None:
        if space is None:
            return
        gate = self._engine.gate
        config = self._engine.config
        limit = config.disk_refuse_ratio
        if gate.disk_full:
            limit = min(limit, config.disk_resume_ratio)
        full = space.used_ratio > limit
        if full is not gate.disk_full:
            log.warning("disk level changed", extra={"full": full, "used": space.used_ratio})
        gate.disk_used_ratio, gate.disk_full = space.used_ratio, full

    def _next_checkpoint(self) -> Checkpoint:
        """What the files may claim now: store times of messages that are on the disk."""
        engine, old = self._engine, self._checkpoint
        offsets = engine.offsets
        if offsets.flushed == offsets.appended:
            self._physic_timestamp_ms = engine.appender.store_timestamp_ms
            self._flushed_timestamps.clear()
        else:
            newest = (offsets.appended, engine.appender.store_timestamp_ms)
            if not self._flushed_timestamps or self._flushed_timestamps[-1] != newest:
                self._flushed_timestamps.append(newest)
            while self._flushed_timestamps and self._flushed_timestamps[0][0] <= offsets.flushed:
                self._physic_timestamp_ms = self._flushed_timestamps.popleft()[1]
        queues_ms = self._covered_ms("dispatcher", old.logics_msg_timestamp_ms)
        index_ms = self._covered_ms("index", old.index_msg_timestamp_ms)
        return Checkpoint(
            physic_msg_timestamp_ms=self._physic_timestamp_ms,
            logics_msg_timestamp_ms=self._dispatched_ms(queues_ms, index_ms),
            index_msg_timestamp_ms=index_ms,
            master_flushed_offset=old.master_flushed_offset,
            confirm_phy_offset=min(offsets.confirmed, offsets.flushed),
            logics_physical_offset=old.logics_physical_offset,
        )

    def _dispatched_ms(self, queues_ms: int, index_ms: int) -> int:
        """Where RocketMQ may begin to dispatch again after a crash.

        It looks at the older of physic and logics alone, and deletes index files that end after the
        index's time: what these held must be dispatched again.
        """
        return min(queues_ms, index_ms) if "index" in self._engine.config.followers else queues_ms

    def _covered_ms(self, follower: str, before: int) -> int:
        """What a follower says is on disk; before it has spoken, what the checkpoint says."""
        state = self._engine.hub.followers.get(follower)
        return before if state is None else state.durable_store_timestamp_ms

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        entry = self._files.entry(CHECKPOINT_PATH)
        if entry is not None and (entry.kind is not Kind.FILE or entry.size < 4096):
            target = f"stratamq/aside/{CHECKPOINT_PATH}"
            self._files.make_directory("stratamq/aside")
            if entry.kind is Kind.DIRECTORY:
                target = f"{target}-{self._engine.clock.wall_ms()}"
            self._files.replace(CHECKPOINT_PATH, target)
            entry = None
        if entry is None:
            self._files.create(CHECKPOINT_PATH, CHECKPOINT_FILE_BYTES)
        file = self._files.open(CHECKPOINT_PATH, writable=True)
        try:
            file.write(0, encode_checkpoint(checkpoint)[:CHECKPOINT_FIELDS_BYTES])
            file.flush()
        finally:
            file.close()
        self._checkpoint = checkpoint

    # --- snapshot ---

    def _snapshot_now(self) -> None:
        self._snapshot_offset, self._next_snapshot_ns = -1, 0

    def snapshot_again(self) -> None:
        """The queue table has changed, and the log's end has not: the next interval saves it."""
        self._snapshot_offset = -1

    def _take_snapshot(self) -> Snapshot:
        engine = self._engine
        last = engine.appender.last_frame
        if last is not None:
            offset, size = last
            self._last_frame = mark(offset, engine.read_back(offset, size))
        self._snapshot_offset = engine.offsets.appended
        self._saving.take()
        return Snapshot(
            generation=engine.generation,
            offset=engine.offsets.appended,
            frame=self._last_frame,
            store_timestamp_ms=engine.appender.store_timestamp_ms,
        )

    def _write_snapshot(self) -> None:
        snapshot = self._snapshot
        if snapshot is None or snapshot.offset > self._engine.offsets.flushed:
            return
        if "snapshot" in self._busy:
            return  # at the next tick: an idle log would take no other one
        self._snapshot = None
        self._store(snapshot)

    def _store(self, snapshot: Snapshot) -> None:
        snapshot = self._with_minimum(snapshot)

        def stored(error: StrataError | None) -> None:
            if error is None:
                self._snapshot_stored(snapshot)
            else:
                self._snapshot_offset = -1  # taken again at the next interval

        if not self._saving.store(snapshot, stored):
            self._snapshot_offset = -1

    def _store_blocking(self, snapshot: Snapshot) -> None:
        snapshot = self._with_minimum(snapshot)
        self._saving.store_blocking(snapshot)
        self._snapshot_stored(snapshot)

    def _with_minimum(self, snapshot: Snapshot) -> Snapshot:
        """Segments may have left the log since it was taken, and their files may be gone."""
        return replace(snapshot, minimum=self._engine.offsets.minimum)

    def _snapshot_stored(self, snapshot: Snapshot) -> None:
        self._stored = snapshot
        self._snapshot_needs = snapshot.offset if snapshot.frame is None else snapshot.frame.offset

    # --- topics ---

    def save_topics(self, done: Callable[[StrataError | None], None]) -> None:
        """Make what changed durable; calls that come meanwhile share the next writing."""
        self._engine.topics.saving.save(
            self._submit_topics, lambda error: done(self._told("topics", error))
        )

    def _submit_topics(self, task: Callable, done: Callable) -> None:
        self._worker.submit(task, done)

    # --- deletion ---

    def delete_below(self, offset: int, max_segments: int, urgent: bool) -> tuple[int, list[str]]:
        engine = self._engine
        segments, offsets = engine.segments, engine.offsets
        # Nothing else could say how far the queues of what is deleted had come: they would count
        # from anywhere again after a crash.
        limit = min(offset, offsets.flushed, self._snapshot_needs)
        if not urgent:
            watermarks = [
                state.durable if (state := engine.hub.followers.get(name)) is not None else 0
                for name in engine.config.followers
            ]
            limit = min([limit, *watermarks])
        count = 0
        while (
            count < len(segments.offsets) - 1
            and count < max_segments
            and segments.offsets[count] + engine.segment_bytes <= limit
        ):
            count += 1
        deadline = engine.clock.monotonic_ns() + engine.config.release_timeout_ms * 1_000_000
        removed = segments.remove_first(count)
        self._removed += [_Removed(base, deadline) for base in removed]
        offsets.minimum = segments.minimum
        if removed:
            engine.hub.moved()
        return offsets.minimum, [f"{DIRECTORY}/{offset_name(base)}" for base in removed]

    def _unlink_released(self, now_ns: int) -> None:
        engine = self._engine
        if not self._removed or "unlink" in self._busy:
            return
        first = self._removed[0]
        end = first.base + engine.segment_bytes
        if not engine.hub.released_by_all(end) and now_ns < first.deadline_ns:
            return
        if self._stored is None or (self._stored.minimum or 0) < end:
            # A start knows by it what was deleted, should the directory forget that a file is gone.
            if self._stored is not None and "snapshot" not in self._busy:
                again = self._with_minimum(self._stored)
                self._saving.repeat(
                    again, lambda error: None if error else self._snapshot_stored(again)
                )
            return

        def unlinked(_: None, error: StrataError | None) -> None:
            if error is None:
                self._removed.pop(0)

        position = first.emptied
        length = slice_bytes(
            len(self._removed) * engine.segment_bytes, refusing=engine.gate.disk_full
        )
        first.emptied += length
        last = first.emptied >= engine.segment_bytes
        self._submit(
            "unlink",
            lambda: unlink_step(engine.segments, first.base, position, length),
            unlinked if last else lambda _, error: None,
        )

    # --- replicas ---

    def await_replicas(self, end: int, finish: "Finish") -> None:
        engine = self._engine
        replicated = engine.replicas.replicated(engine.offsets.appended)
        if replicated is None:
            finish(PutStatus.SLAVE_NOT_AVAILABLE, None)
        elif replicated >= end:
            finish(PutStatus.PUT_OK, None)
        else:
            now = engine.clock.monotonic_ns()
            deadline = now + engine.config.slave_timeout_ms * 1_000_000
            self._replica_waiters.append(_ReplicaWaiter(end, deadline, finish))

    def replicas_moved(self) -> None:
        engine = self._engine
        replicated = engine.replicas.replicated(engine.offsets.appended)
        waiters = self._replica_waiters
        while waiters and replicated is not None and waiters[0].end <= replicated:
            waiters.popleft().finish(PutStatus.PUT_OK, None)

    def leave_replicas(self) -> None:
        """No slave will acknowledge to this broker any more: what waits for one is stored, and not
        confirmed."""
        waiters = self._replica_waiters
        while waiters:
            waiters.popleft().finish(PutStatus.FLUSH_SLAVE_TIMEOUT, None)

    def _expire_replicas(self, now_ns: int) -> None:
        waiters = self._replica_waiters
        while waiters and waiters[0].deadline_ns <= now_ns:
            waiters.popleft().finish(PutStatus.FLUSH_SLAVE_TIMEOUT, None)

    # --- work elsewhere ---

    def _make_room(self) -> None:
        """A write of ours found no space: it is tried again, and finds the reserve's."""
        self._submit("reserve", self._reserve.release, lambda _, error: None)

    def _submit(self, kind: str, task: Callable, done: Callable) -> None:
        """Run one task of a kind at a time; what fails is logged and tried again later."""
        if kind in self._busy:
            return
        self._busy.add(kind)

        def finished(result: object, error: BaseException | None) -> None:
            self._busy.discard(kind)
            told = self._told(kind, error)
            done(result if told is None else None, told)

        self._worker.submit(task, finished)

    def _told(self, kind: str, error: BaseException | None) -> StrataError | None:
        """What the disk refused, as an error of ours; a bug is raised."""
        if error is None:
            return None
        if not isinstance(error, OSError):
            raise error
        log.error("housekeeping failed", extra={"task": kind, "error": str(error)})
        if error.errno == errno.ENOSPC:
            self._make_room()
        return NotWritableError(f"{kind} could not be written: {error.strerror or error}", kind)
