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
from stratamq_dispatcher.dispatch_state import DispatchState
from stratamq_dispatcher.engine_settings import EngineSettings
from stratamq_dispatcher.flusher import Cycle, Flusher
from stratamq_dispatcher.followed import Followed
from stratamq_dispatcher.opened_store import OpenedStore
from stratamq_dispatcher.passes import Pass
from stratamq_dispatcher.watermark import Watermark

log = logging.getLogger(__name__)


class Saver:
    """Of the engine's thread; writes on the worker's lane, one cycle at a time."""

    def __init__(
        self,
        store: OpenedStore,
        followed: Followed,
        settings: EngineSettings,
        worker: Worker,
        clock: Clock,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`on_failure` is called once, when a sync has failed for good."""
        self.durable = 0
        """All messages below this log offset are in files that are synced."""
        self.durable_store_timestamp_ms = 0
        self.blocked = ""
        """Why files cannot be written at present; "" when they can."""
        self.failure: BaseException | None = None
        self._queues = store.queues
        self._writer = store.writer
        self._followed = followed
        self._settings = settings
        self._clock = clock
        self._on_failure = on_failure
        self._flusher = Flusher(store.queues, store.writer, worker)
        self._watermark = Watermark()
        self._stored = store.stored
        self._never_ours = store.never_ours
        self._rebuilt = DispatchState()
        """What a COMPARED pass has brought to disk."""
        if store.stored is not None and store.trusted is not None:
            self.durable = store.stored.position
            self.durable_store_timestamp_ms = store.stored.store_timestamp_ms
            self._watermark.load(self.durable, self.durable_store_timestamp_ms)
            if store.trusted is Pass.COMPARED:
                self._rebuilt = store.stored
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
        self._watermark.applied(end, newest_ms)

    def doubt(self) -> None:
        """Units are missing, here or in the log: the next start compares all queues."""
        self._doubtful = True

    def compare_all(self, cut_to: int) -> None:
        """Nothing of the files counts: there is no watermark, or one of a generation that the log
        does not know, so that RocketMQ or another history may have written these files."""
        self._rebuilt = DispatchState()
        self._compare = self._never_ours or (self._stored is not None and self._stored.clean)
        self._writer.list_anew()
        self._rewind(cut_to, vacuous=True)

    def cut(self, generation: int, cut_to: int, *, vacuous: bool) -> None:
        """The queues were cut to `cut_to`; `vacuous`: nothing of ours was applied up to there."""
        if cut_to < self._rebuilt.position:
            self._rebuilt = DispatchState(generation, cut_to)
        self._rewind(cut_to, vacuous=vacuous)

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
        followed = self._followed
        interval_ns = self._settings.flush_interval_ms * 1_000_000
        self._next_flush_ns = self._clock.monotonic_ns() + interval_ns
        self._watermark.flushed(followed.flushed)
        ending = followed.kind is not None and followed.at_target
        erase = ending or followed.kind is not Pass.COMPARED
        if followed.kind is not None and erase and self._marked_pass != followed.number:
            self._marked_pass = followed.number
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
        cycle = Cycle(
            limit=self._watermark.covered[0],
            erase=erase,
            compare=self._compare and followed.kind is Pass.COMPARED,
            keep=followed.kind is Pass.COMPARED,
            before=before,
            after=after,
        )
        number = followed.number
        self._flusher.start(cycle, lambda error: self._ended(cycle, number, ending, waiting, error))

    def _state_after(self, *, complete: bool) -> DispatchState | None:
        """What a cycle that begins now brings to disk; None when it is there already, or when
        nothing may be recorded."""
        followed = self._followed
        if not followed.opened or self._doubtful:
            return None
        after = DispatchState(
            followed.generation,
            *self._watermark.covered,
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
        if self._followed.kind is Pass.COMPARED:
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
            if number == self._followed.number:
                self._count(cycle)
                if ending:
                    self._followed.end_pass()
        elif isinstance(error, OSError):
            self.blocked = f"queue files cannot be written: {error}"
            if not was_blocked:
                log.error("queue files cannot be written", extra={"error": str(error)})
        else:
            self._fail(error)
        written, self._when_written = self._when_written, []
        for done in (*waiting, *written):
            done()
        again = error is None and self._followed.kind is not None and self._followed.at_target
        if self._when_flushed or again:
            self.flush()

    def _count(self, cycle: Cycle) -> None:
        """All that the cycle was to write is synced."""
        self._watermark.written_to = cycle.limit
        if cycle.after is not None and not cycle.after.complete:
            self._rebuilt = cycle.after
        elif cycle.after is not None:
            self.durable = cycle.after.position
            self.durable_store_timestamp_ms = cycle.after.store_timestamp_ms

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self._on_failure(error)
        expected = isinstance(error, StrataError)
        log.critical(
            "flush failed for good",
            extra={"error": str(error)},
            exc_info=None if expected else error,
        )

    def _rewind(self, cut_to: int, *, vacuous: bool) -> None:
        self._watermark.rewind(cut_to, vacuous=vacuous)
        offset, store_timestamp_ms = self._watermark.covered
        self.durable = min(self.durable, offset)
        self.durable_store_timestamp_ms = min(self.durable_store_timestamp_ms, store_timestamp_ms)

    def _can_write(self) -> bool:
        """Whether the log has flushed more than is written, and files can be written."""
        self._watermark.flushed(self._followed.flushed)
        return self._watermark.is_ahead and not self.blocked
