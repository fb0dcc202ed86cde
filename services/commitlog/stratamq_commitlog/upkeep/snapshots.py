"""The queue-offset snapshot: taken every few seconds, stored once what is below it is durable.

take ──► wait until *flushed* reaches it ──► store on the worker ──► deletion may go up to it
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from stratamq.errors import StrataError
from stratamq.store.queue_snapshot import FrameMark, QueueTable, TableSnapshot, mark
from stratamq_commitlog.log_reads import LogReads
from stratamq_commitlog.log_state import LogOffsets, StateCell
from stratamq_commitlog.recovery.own_state import OwnState
from stratamq_commitlog.upkeep.jobs import Jobs
from stratamq_commitlog.write.appender import Appender
from stratamq_commitlog.write.group_commit import GroupCommit
from stratamq_commitlog.write.queue_offsets import QueueOffsets

ENTRIES_PER_STEP = 1_000
"""Gathering so many is less than a millisecond of the engine's thread."""

Submit = Callable[[str, Callable, Callable[[object, StrataError | None], None]], None]
"""Run a task of a kind on the worker: `Housekeeping._submit`."""


class SnapshotSaving:
    """Saves the queue table beside the appends: what changed every few seconds, the whole of it in
    steps when the changes have outgrown it.

    A snapshot names a position of the log, and the table's entries must be those of that
    position. What changes is gathered entry by entry as it does (`QueueOffsets.changed`), so
    that a snapshot is taken by putting the gathered entries aside. While the whole table is
    being written, changes are kept as well as saved: they follow it in the new file, whose
    entries may be of any moment before them.

    Belongs to one open log. `store` after `take`, one at a time.
    """

    def __init__(
        self,
        state: OwnState,
        queues: QueueOffsets,
        submit: Submit,
        on_written: Callable[[], None],
    ) -> None:
        """`on_written`: the whole table is written, and waits for a snapshot to be taken."""
        self._on_written = on_written
        self._state = state
        self._queues = queues
        self._submit = submit
        self._unsaved: list[QueueTable] = []
        """Taken, and not known to be in the file."""
        self._done_with: list[QueueTable] = []
        """For the worker to empty, with its next task: see `_let_go`."""
        self._whole: _Whole | None = None
        self._stopped = False
        self._finishes = False
        """The whole table was written when the last snapshot was taken."""

    def take(self) -> None:
        """Everything that has changed until now belongs to the next snapshot."""
        self._finishes = self._whole is not None and self._whole.written
        changed = self._queues.take_changed()
        if changed:
            self._unsaved.append(changed)
            if self._whole is not None:
                self._whole.since.append(changed)

    def store_blocking(self, snapshot: TableSnapshot) -> None:
        """Durable on return. OSError."""
        self._give_up()
        if self._state.can_append_snapshot:
            self._state.append_snapshot(snapshot, self._unsaved)
        else:
            self._state.store_snapshot(snapshot, self._queues.table)
        self._unsaved.clear()

    def store(self, snapshot: TableSnapshot, done: Callable[[StrataError | None], None]) -> bool:
        """Have it stored on the worker. False: it cannot be before the whole table is written,
        which has begun."""
        state, whole = self._state, self._whole
        if whole is not None and self._finishes:
            self._whole = None
            since = whole.since
            self._save(lambda: state.finish_snapshot(snapshot, since), done, since)
            return True
        if not state.can_append_snapshot:
            self._drop(len(self._unsaved))  # the whole table has it
            self._begin_whole()
            return False
        unsaved = list(self._unsaved)
        self._save(lambda: state.append_snapshot(snapshot, unsaved), done)
        return True

    def repeat(self, snapshot: TableSnapshot, done: Callable[[StrataError | None], None]) -> None:
        """The durable snapshot again, with another minimum: nothing that changed since."""
        if not self._state.can_append_snapshot:
            self._begin_whole()
            return

        def saved(_: object, error: StrataError | None) -> None:
            if self._state.snapshot_outgrown:
                self._begin_whole()
            done(error)

        self._submit("snapshot", lambda: self._state.append_snapshot(snapshot, ()), saved)

    def _save(
        self,
        task: Callable[[], None],
        done: Callable[[StrataError | None], None],
        since: Sequence[QueueTable] = (),
    ) -> None:
        count = len(self._unsaved)
        done_with, self._done_with = self._done_with, []

        def save() -> None:
            _let_go(done_with)
            task()

        def saved(_: object, error: StrataError | None) -> None:
            if error is None:
                self._done_with += since
                self._drop(count)
            if self._state.snapshot_outgrown:
                self._begin_whole()
            done(error)

        self._submit("snapshot", save, saved)

    def _drop(self, count: int) -> None:
        """The first of what is unsaved is, or will be, in the file."""
        if self._whole is None:  # else it is among what that has yet to save
            self._done_with += self._unsaved[:count]
        del self._unsaved[:count]

    def stop(self) -> None:
        """Begin nothing more on the worker: `store_blocking` is what follows."""
        self._stopped = True

    # --- the whole table ---

    def _begin_whole(self) -> None:
        if self._whole is None and not self._stopped:
            self._whole = _Whole()
            self._submit("snapshot-whole", self._state.begin_snapshot, self._step)

    def _step(self, _: object, error: StrataError | None) -> None:
        whole = self._whole
        if self._stopped:
            return
        if whole is None or error is not None:
            self._whole = None  # begun again when the next snapshot is stored
            return
        names, table = self._queues.names, self._queues.table
        some = [
            (*name, table[name]) for name in names[whole.place : whole.place + ENTRIES_PER_STEP]
        ]
        whole.place += len(some)
        if some:
            self._submit("snapshot-whole", lambda: self._state.add_to_snapshot(some), self._step)
        else:
            whole.written = True
            self._on_written()

    def _give_up(self) -> None:
        if self._whole is not None:
            self._whole = None
            self._state.give_up_snapshot()


def _let_go(tables: Iterable[QueueTable]) -> None:
    """Empty them entry by entry, on the worker: to drop a large table at once holds every thread
    up for as long as that takes."""
    for table in tables:
        while table:
            table.popitem()


class _Whole:
    """A whole table that is being written."""

    def __init__(self) -> None:
        self.place = 0
        self.written = False
        self.since: list[QueueTable] = []
        """What changed since it was begun."""


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
        self._waiting: TableSnapshot | None = None
        """Taken, and not durable below its offset."""
        self._taken_at = -1
        """The offset of the last one that was taken; -1: another one is due."""
        self._stored: TableSnapshot | None = None
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

    def save_again(self) -> None:
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

    def _take(self) -> TableSnapshot:
        appender, offsets = self._appender, self._offsets
        if appender.last_frame is not None:
            offset, size = appender.last_frame
            self._last_frame = mark(offset, self._reads.read_back(offset, size))
        self._taken_at = offsets.appended
        self._saving.take()
        return TableSnapshot(
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

    def _with_minimum(self, snapshot: TableSnapshot) -> TableSnapshot:
        """Segments may have left the log since it was taken, and their files may be gone."""
        return replace(snapshot, minimum=self._offsets.minimum)

    def _has_stored(self, snapshot: TableSnapshot) -> None:
        self._stored = snapshot
        self.needed_from = snapshot.offset if snapshot.frame is None else snapshot.frame.offset
