"""Brings units to the queues' files, and the state that records how far they are right behind them.

A cycle of the flusher begins once in `flush_interval_ms`, when there are `flush_bytes` of units, at
a close, and at the end of a pass. It writes what the log has flushed. The stored state records that
files may change before they do, and where they stand once they are synced.

A disk that takes nothing is a level: the units stay in memory, and the next cycle tries again. A
failed sync is for good: nothing is written any more, and the next start writes again what may be
lost.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

from stratamq.errors import StrataError
from stratamq.files.port import Clock, Worker
from stratamq.follow.flushed_steps import FlushedSteps
from stratamq.follow.fold import FoldPlace
from stratamq_dispatcher.dispatch_state import DispatchState
from stratamq_dispatcher.flusher import Cycle, Flusher
from stratamq_dispatcher.opened_store import EngineSettings, OpenedStore
from stratamq_dispatcher.passes import Pass, Passes

log = logging.getLogger(__name__)


class Saver:
    """Used on the engine's thread; writes on the worker's lane, one cycle at a time."""

    def __init__(
        self,
        store: OpenedStore,
        followed: FoldPlace,
        passes: Passes,
        settings: EngineSettings,
        worker: Worker,
        clock: Clock,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`on_failure` is called once, when a sync has failed for good."""
        self.blocked = ""
        """Why files cannot be written at present; "" when they can."""
        self.failure: BaseException | None = None
        self._queues = store.queues
        self._writer = store.writer
        self._followed = followed
        self._passes = passes
        self._settings = settings
        self._clock = clock
        self._on_failure = on_failure
        self._flusher = Flusher(store.queues, store.writer, worker)
        self._stored = store.stored
        self._never_ours = store.never_ours
        self._rebuilt = DispatchState()
        """What a COMPARED pass has brought to disk."""
        if store.stored is not None and store.trusted is not None:
            followed.durable = store.stored.position
            followed.durable_ms = store.stored.store_timestamp_ms
            if store.trusted is Pass.COMPARED:
                self._rebuilt = store.stored
        self._steps = FlushedSteps(followed.durable, followed.durable_ms)
        """The ends of steps, with the store time of the last message there."""
        self._writing = self._steps.covered
        """Up to where the cycle that runs writes."""
        self._compare = False
        """Whether a pass leaves bytes alone that are right already: another's, or ours after a
        clean stop. Otherwise what the cache shows need not be on disk."""
        self._doubtful = False
        """The queues were found wrong: the watermark must not outlive this process."""
        self._marked_pass = 0
        self._next_flush_ns = clock.monotonic_ns()
        self._when_written: list[Callable[[], None]] = []
        """Called at the end of the cycle that runs, or of the next one."""
        self._when_flushed: list[Callable[[], None]] = []
        """Called at the end of the next cycle that begins."""

    # --- what the engine reports ---

    def applied(self, end: int, newest_ms: int | None) -> None:
        """The units of a step are in the queues' tails. `newest_ms`: the store time of its last
        message; None: it had none."""
        self._steps.applied(end, self._steps.newest.value if newest_ms is None else newest_ms)

    def doubt(self) -> None:
        """Units are missing, here or in the log: the next start compares all queues."""
        self._doubtful = True

    def compare_all(self, cut_to: int) -> None:
        """Nothing of the files counts: there is no watermark, or one of a generation that the log
        does not know, so that RocketMQ or another history may have written these files."""
        self._rebuilt = DispatchState()
        self._compare = self._never_ours or (self._stored is not None and self._stored.clean)
        self._writer.relist()
        self._begin_at(cut_to)

    def cut(self, generation: int, cut_to: int, *, vacuous: bool) -> None:
        """The queues were cut to `cut_to`; `vacuous`: nothing of ours was applied up to there."""
        if cut_to < self._rebuilt.position:
            self._rebuilt = DispatchState(generation, cut_to)
        if vacuous:
            self._begin_at(cut_to)
        else:
            self._steps.drop_above(cut_to)
            # The store time at the cut is not known; the one before it is a safe answer.
            newest = self._steps.newest
            self._steps.rewind(cut_to, newest.value if newest.position <= cut_to else 0)
            self._followed.durable_ms = min(self._followed.durable_ms, self._steps.covered.value)

    # --- time and limits ---

    @property
    def written_bytes(self) -> int:
        """Bytes of units written since the start."""
        return self._flusher.written_bytes

    @property
    def is_running(self) -> bool:
        return self._flusher.running

    def tick(self) -> None:
        if self._clock.monotonic_ns() >= self._next_flush_ns:
            self.flush()

    def flush_if_large(self) -> None:
        if self._queues.unwritten_bytes >= self._settings.flush_bytes and self._can_write():
            self.flush()

    def is_full(self) -> bool:
        """Whether units must be written first. Those that the log has not flushed cannot be."""
        if self._queues.unwritten_bytes < self._settings.max_unwritten_bytes:
            return False
        if not self._flusher.running and self._can_write():
            self.flush()
        return self._flusher.running or bool(self.blocked)

    def when_written(self, done: Callable[[], None]) -> None:
        """Call `done` at the end of the cycle that runs, or of the next one."""
        self._when_written.append(done)

    def close(self, done: Callable[[], None]) -> None:
        """Bring to disk what may go there, then call `done`, also when that fails."""
        self._when_flushed.append(done)
        self.flush()

    def raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    # --- one cycle ---

    def flush(self) -> None:
        """Start a cycle, unless one runs or nothing would come of it."""
        if self._flusher.running:
            return
        followed, kind = self._followed, self._passes.kind
        interval_ns = self._settings.flush_interval_ms * 1_000_000
        self._next_flush_ns = self._clock.monotonic_ns() + interval_ns
        self._steps.flushed(followed.flushed)
        ending = kind is not None and followed.at_target
        erase = ending or kind is not Pass.COMPARED
        number = self._passes.number
        if kind is not None and erase and self._marked_pass != number:
            self._marked_pass = number
            self._queues.mark_stale()
        after = self._state_after(complete=erase)
        before = self._state_before() if self._queues.dirty or self._doubtful else None
        if before == self._stored:
            before = None
        waiting, self._when_flushed = self._when_flushed, []
        if self.failure is not None or not (self._queues.dirty or before or after):
            for done in waiting:
                done()
            return
        self._writing = self._steps.covered
        cycle = Cycle(
            limit=self._writing.position,
            erase=erase,
            compare=self._compare and kind is Pass.COMPARED,
            keep=kind is Pass.COMPARED,
            before=before,
            after=after,
        )
        self._flusher.start(cycle, lambda error: self._ended(cycle, number, ending, waiting, error))

    def _state_after(self, *, complete: bool) -> DispatchState | None:
        """What a cycle that begins now brings to disk; None when it is there already, or when
        nothing may be recorded."""
        followed, covered = self._followed, self._steps.covered
        if not followed.opened or self._doubtful:
            return None
        after = DispatchState(
            followed.generation,
            covered.position,
            covered.value,
            complete=complete,
            # When a cycle has erased what is stale, nothing behind the watermark is unknown.
            clean=complete and bool(self._when_flushed),
            minimum=followed.minimum,
        )
        idle = self._stored is not None and self._stored.clean and not self._queues.dirty
        if after == self._stored or (idle and replace(after, clean=True) == self._stored):
            return None
        return after

    def _state_before(self) -> DispatchState:
        """What must be on disk before files change."""
        if self._stored is None or self._doubtful:
            return DispatchState()
        if self._passes.kind is Pass.COMPARED:
            return self._rebuilt
        return replace(self._stored, clean=False)

    def _ended(
        self,
        cycle: Cycle,
        number: int,
        ending: bool,
        waiting: list[Callable[[], None]],
        error: BaseException | None,
    ) -> None:
        """`number`: the newest pass when the cycle began; `ending`: it ends that one."""
        was_blocked, self.blocked = self.blocked, ""
        if error is None:
            self._stored = cycle.after or cycle.before or self._stored
            if number == self._passes.number:
                self._count(cycle)
                if ending:
                    self._passes.kind = None
        elif isinstance(error, OSError):
            self.blocked = f"queue files cannot be written: {error}"
            if not was_blocked:
                log.error("queue files cannot be written", extra={"error": str(error)})
        else:
            self._fail(error)
        written, self._when_written = self._when_written, []
        for done in (*waiting, *written):
            done()
        again = error is None and self._passes.kind is not None and self._followed.at_target
        if self._when_flushed or again:
            self.flush()

    def _count(self, cycle: Cycle) -> None:
        """All that the cycle was to write is synced."""
        self._steps.written = self._writing
        if cycle.after is not None and not cycle.after.complete:
            self._rebuilt = cycle.after
        elif cycle.after is not None:
            self._followed.durable = cycle.after.position
            self._followed.durable_ms = cycle.after.store_timestamp_ms

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self._on_failure(error)
        expected = isinstance(error, StrataError)
        log.critical(
            "flush failed for good",
            extra={"error": str(error)},
            exc_info=None if expected else error,
        )

    def _begin_at(self, position: int) -> None:
        """Nothing of ours is below."""
        self._steps = FlushedSteps(position, 0)
        self._followed.durable_ms = 0

    def _can_write(self) -> bool:
        """Whether the log has flushed more than is written, and files can be written."""
        self._steps.flushed(self._followed.flushed)
        return self._steps.has_changes and not self.blocked
