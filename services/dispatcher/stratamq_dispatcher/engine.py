"""The dispatcher's engine: follows the log, builds consume queues, says what is durable.

It starts no thread and knows no event loop. Frames come from the log's own segments. Units go to
the tails of queues at once, where pulls see them, and to their files once a second, as far as the
log has flushed. What must be looked at again after a start or a cut is a pass (`passes`).

Units wait in memory until they are written. When there are too many the engine stops reading the
log until some are: `apply` yields what must be waited for.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from stratamq.errors import (
    CorruptionError,
    StrataError,
    UnavailableError,
)
from stratamq.files.port import Clock, Files, Worker
from stratamq.follow.protocol import Event, Opened, Report, Wait
from stratamq.formats.dispatch import DispatchColumns, dispatch_columns
from stratamq.formats.frame_verify import NOWHERE
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.queue_units import unit_runs
from stratamq.formats.store_paths import COMMIT_LOG
from stratamq.store.frame_windows import next_frames
from stratamq.store.generations import end_of
from stratamq.store.sealed import sealed_from
from stratamq.store.segment_reader import SegmentReader
from stratamq_dispatcher.consume_queue import ConsumeQueue, first_at_or_above
from stratamq_dispatcher.dispatch_state import DispatchState, StateFile
from stratamq_dispatcher.engine_settings import EngineSettings
from stratamq_dispatcher.expiry import Expiry
from stratamq_dispatcher.flusher import Cycle, Flusher
from stratamq_dispatcher.frame_reads import HotLog
from stratamq_dispatcher.loading import load_queues
from stratamq_dispatcher.long_poll import ANYTHING, LongPolls
from stratamq_dispatcher.mending import Mended, MendPlan, plan_mend, write_mended
from stratamq_dispatcher.passes import Pass
from stratamq_dispatcher.queue_files import OpenFiles
from stratamq_dispatcher.queue_table import QueueKey, QueueTable
from stratamq_dispatcher.queue_writer import QueueWriter
from stratamq_dispatcher.resuming import LogWitness
from stratamq_dispatcher.watermark import Watermark

log = logging.getLogger(__name__)

NextOffset = tuple[str, int, int]
"""topic, queue id, next queue offset."""
REPORT_LINES = 200
"""More is cut off: a damaged directory can have thousands of findings."""


class DispatchEngine:
    """Single-threaded; `stratamq.follow.driver` drives it. `load` comes first and may take long."""

    name = "dispatcher"

    def __init__(
        self,
        files: Files,
        settings: EngineSettings,
        worker: Worker,
        clock: Clock,
        incarnation: int = 1,
    ) -> None:
        """`incarnation` is another one in each process."""
        self._incarnation = incarnation
        self.waiting = LongPolls()
        self.queues: QueueTable
        self.segments: SegmentReader | None = None
        self.generation = 0
        self.sealed_from = NOWHERE
        """From this log offset on every record has a checksum of its own."""
        self.applied = 0
        self.confirmed = 0
        self.flushed = 0
        self.minimum = 0
        self.durable = 0
        self.durable_store_timestamp_ms = 0
        self.segment_bytes = 0
        self.serving = False
        self.is_slave = False
        self.stopped_reason = ""
        self.flush_blocked = ""
        """Why files cannot be written just now: a level, not a latch."""
        self.history_is_foreign = False
        """The log does not know our generation: RocketMQ may have run in between."""
        self.history = 0
        """Grows when the log was cut: readers in other threads must let go of its files."""
        self._files = files
        self._settings = settings
        self._worker = worker
        self._clock = clock
        self._state_file = StateFile(files)
        self._stored: DispatchState | None = None
        """What lies in the state file."""
        self._report: list[str] = []
        self._trusted: Pass | None = None
        """The pass that goes on from the stored watermark; None: the files do not agree with it."""
        self._rebuilt = DispatchState()
        """What a COMPARED pass has brought to disk."""
        self._watermark = Watermark()
        self._when_written: list[Callable[[], None]] = []
        """Who waits for the end of the cycle that runs, or of the next one."""
        self._never_ours = False
        self._compare = False
        """Whether a pass leaves bytes alone that are right already: another's, or ours after a
        clean stop. Otherwise what the cache shows need not be on disk."""
        self._doubtful = False
        """The queues were found wrong: the watermark must not outlive this process."""
        self._opened = False
        self._pass: Pass | None = None
        self._pass_number = self._marked_pass = 0
        self._held_to = 0
        self._target = -1
        """Where the queues must be to serve."""
        self._failure: BaseException | None = None
        self._next_flush_ns = 0
        self._when_flushed: list[Callable[[], None]] = []
        self._pages_of_log: deque[tuple[int, list[NextOffset]]] = deque()
        """Pages of the log's queue table that wait until what is applied has come to their end."""

    # --- start ---

    def load(self) -> None:
        """Find out what the files hold. Raises StoreRefusedError."""
        settings = self._settings
        remembered = self._state_file.load()
        state = remembered.state
        loaded = load_queues(self._files, settings.queue_file_bytes, remembered.queues)
        self._report += remembered.report + loaded.report
        self._stored = state
        self._never_ours = remembered.never_ours
        self._ranges = loaded.ranges
        open_files = OpenFiles(self._files, settings.max_open_files // 2)
        self.queues = QueueTable(self._files, loaded.geometry, open_files, self._incarnation)
        self._expiry = Expiry(self.queues, self._report.append)
        # RocketMQ reads the last three files of a queue and takes older ones for full: never more
        # than two may be unfinished at a crash.
        units_per_file = loaded.geometry.units_per_file
        window_units = min(-(-settings.flush_window_bytes // QUEUE_UNIT_BYTES), units_per_file)
        if state is not None and state.complete and not loaded.damaged:
            erase = 0 if state.clean else window_units
            if self.queues.open_trusted(loaded.ranges, remembered.queues, state.position, erase):
                self._trusted = Pass.CHECKED
        elif state is not None and state.position and not loaded.damaged:
            log = LogWitness(self._files, COMMIT_LOG, tuple(settings.delay_levels_ms))
            if self.queues.open_rebuilt(loaded.ranges, state.position, log):
                self._trusted, self._rebuilt = Pass.COMPARED, state
            log.close()
        if state is not None and self._trusted is not None:
            self.generation = state.generation
            self.applied = self.durable = state.position
            self.durable_store_timestamp_ms = state.store_timestamp_ms
            self._watermark.load(state.position, state.store_timestamp_ms)
            self.minimum = state.minimum
        self._writer = QueueWriter(
            self._files,
            loaded.geometry,
            loaded.ranges,
            self._state_file,
            remembered.stale,
            listed=remembered.queues is not None and remembered.queues.ranges == loaded.ranges,
            max_open_files=settings.max_open_files - settings.max_open_files // 2,
            window_units=window_units,
        )
        self._flusher = Flusher(self.queues, self._writer, self._worker)
        self._next_flush_ns = self._clock.monotonic_ns()

    # --- the follower's half of Follow ---

    def resume_point(self) -> tuple[int, int]:
        """(generation, position) to follow from; (0, 0) when the files say nothing."""
        return self.generation, self.applied

    def opened(self, opened: Opened) -> None:
        """The log's answer: drop everything from `cut_to` on, learn where the log is."""
        first, self._opened = not self._opened, True
        self._pages_of_log.clear()
        self._map_log(opened)
        self.sealed_from = sealed_from(self._files)
        if first and self._trusted is not None and opened.cut_to == self.applied:
            self._begin(self._trusted, opened)
            if self._trusted is Pass.COMPARED:
                self._report.append(f"comparing all queues goes on at {self.applied}")
        elif first or opened.cut_to != self.applied:
            self._go_back(opened, first)
        elif not self.serving:
            self._target = max(opened.confirmed, opened.generation_start)
        self._held_to = max(opened.confirmed, opened.generation_start)
        if self.generation not in (0, opened.generation):
            self._held_to = end_of(self._files, self.generation, opened.generation_start)
        self.generation = opened.generation
        self.is_slave = opened.is_slave
        self.confirmed, self.flushed = opened.confirmed, opened.flushed
        self._learn_minimum(opened.minimum)
        if first:
            self._expiry.begin()
        self._progressed()

    def apply(self, event: Event) -> Iterator[Wait | None]:
        """Build the units of one range, in steps; between them the event loop may do other work.

        Never more than `max_unwritten_bytes` of units and one step are in memory that could be
        written: then it yields a Wait until some are.

        Raises CorruptRecordError or CorruptionError when the log's bytes or queue offsets do not go
        on: dispatch stops there, it never skips.
        """
        self.confirmed, self.flushed = event.confirmed, event.flushed
        self._learn_minimum(event.minimum)
        settings = self._settings
        position, taken = event.start, 0
        while position < event.end:
            self._raise_failure()
            assert self.segments is not None
            if event.lengths is None:
                window, lengths = next_frames(
                    self.segments.window, position, event.end, settings.step_messages
                )
            else:
                lengths = event.lengths[taken : taken + settings.step_messages]
                window = self.segments.window(position, int(lengths.sum(dtype="i8")))
            columns = dispatch_columns(window, position, lengths, settings.delay_levels_ms)
            taken += len(lengths)
            position += int(lengths.sum(dtype="i8"))
            self._apply_columns(columns, position)
            if self.queues.unwritten_bytes >= settings.flush_bytes and self._can_write():
                self._flush()
            yield None
            while self._is_full():
                yield self._when_written.append
                self._raise_failure()
        while self._page_is_due and self.applied >= self._target:
            self._learn_page()
            yield None
        self._raise_failure()
        self._progressed()

    def report(self) -> Report:
        return Report(self.applied, self.durable, self.durable_store_timestamp_ms, self.minimum)

    def close_at(self, end: int, done: Callable[[], None]) -> None:
        """The log stops at `end`: call `done` when all that may be durable is."""
        self.close(done)

    def stopped(self, error: BaseException) -> None:
        """Following failed for good. What is applied can still be read."""
        self.stopped_reason = self.stopped_reason or f"{type(error).__name__}: {error}"
        self.waiting.wake_all()

    # --- time ---

    @property
    def at_rest(self) -> bool:
        """Nothing is to be written or expired: ticks may come later."""
        return self.serving and self.applied == self.durable and not self._expiry.is_busy

    def tick(self) -> None:
        """To be called a few times a second."""
        self.waiting.sweep()
        self._expiry.step(self.minimum)
        if self._clock.monotonic_ns() >= self._next_flush_ns:
            self._flush()

    def close(self, done: Callable[[], None]) -> None:
        """Bring to disk what may go there, then call `done`, also when that fails."""
        self.waiting.wake_all()
        self._when_flushed.append(done)
        self._flush()

    # --- questions ---

    def require_serving(self) -> None:
        """Raises UnavailableError before the queues are where consumers may have seen them."""
        if not self.serving:
            reason = self.stopped_reason or f"applied {self.applied} of {self._target}"
            raise UnavailableError(f"the dispatcher does not serve yet: {reason}")

    @property
    def begun(self) -> int:
        """A master's generation, once the queues hold all that lies before it; else 0."""
        return 0 if self.is_slave or not self.serving else self.generation

    def end(self, topic: str, queue_id: int) -> int:
        return self.queues.next_index(topic, queue_id)

    def end_at_begin(self, topic: str, queue_id: int) -> int:
        """Where a queue ended when the generation before did, or, for a process that begins in the
        log's generation, when that began to serve. Raises CorruptionError."""
        queue = self.queues.get(topic, queue_id)
        if queue is None or queue.end_offset <= self._held_to:
            return 0 if queue is None else queue.end
        files, begin = self.queues.open_files, queue.first_index
        return first_at_or_above(queue, files, self._held_to, begin, queue.end)

    @property
    def written_bytes(self) -> int:
        """Bytes of units written since the start."""
        return self._flusher.written_bytes

    def hot_log(self) -> HotLog:
        """The log as it lies in memory. After the first `opened`."""
        assert self.segments is not None
        return HotLog(self.segments, self.sealed_from)

    def newest_store_timestamp_ms(self, queue: ConsumeQueue) -> int | None:
        """Store time of the queue's newest message; 0 when the log has none of it, None when it
        must be read."""
        if not queue.has_messages or queue.end_offset <= self.minimum or self.segments is None:
            return 0
        return queue.newest_ms if queue.newest_ms >= 0 else None

    def recovery_report(self) -> list[str]:
        """What was found and done since the start, a line each."""
        lines = self._report + self.queues.report
        if len(lines) > REPORT_LINES:
            lines = [*lines[:REPORT_LINES], f"and {len(lines) - REPORT_LINES} more"]
        return lines

    def note_damage(self, error: CorruptionError) -> None:
        """A read met damage: `recovery_report` names it, once."""
        if error.message not in self._report and len(self._report) < REPORT_LINES:
            self._report.append(error.message)
            log.error("damage", extra={"error": error.message})

    def plan_mend(self, topic: str, queue_id: int, damaged: int) -> MendPlan | None:
        """How to find out what unit `damaged` should be; None when there is no way."""
        queue = self.queues.get(topic, queue_id)
        if queue is None or self._failure is not None:
            return None
        levels = tuple(self._settings.delay_levels_ms)
        return plan_mend(
            queue, self.queues.open_files, damaged, self.minimum, self.segment_bytes, levels
        )

    def mend(self, plan: MendPlan, mended: Mended, done: Callable[[bool], None]) -> None:
        """Write units that the log has given again; `done` hears whether they are there."""
        queue = self.queues.get(plan.topic, plan.queue_id)
        if queue is None or queue.version != plan.version or mended.stop > queue.written:
            done(False)
            return

        def written(_: None, error: BaseException | None) -> None:
            what = f"{plan.directory}: units {mended.first} to {mended.stop - 1} were damaged"
            if error is None:
                self._report.append(f"{what}, and are taken from the log again")
            elif isinstance(error, OSError | StrataError):
                self._report.append(f"{what}, and cannot be written: {error}")
            else:
                raise error
            done(error is None)

        geometry, files = queue.geometry, self._files
        self._worker.submit(lambda: write_mended(files, geometry, plan.directory, mended), written)

    def learn_queues(self, appended: int, table: list[NextOffset]) -> None:
        """A page of the log's next queue offsets when its end was `appended`.

        Queues of which the log has no message left go on where they were.
        """
        news = [one for one in table if self.queues.next_index(one[0], one[1]) < one[2]]
        if news:
            self._pages_of_log.append((appended, news))
        self._progressed()

    # --- inside: passes ---

    def _map_log(self, opened: Opened) -> None:
        if self.segments is None or self.segment_bytes != opened.segment_bytes:
            self.segment_bytes = opened.segment_bytes
            self.segments = SegmentReader(
                self._files, COMMIT_LOG, opened.segment_bytes, self._settings.maximum_maps
            )
        # A log that was cut behind our position has put another file in a segment's place.
        self.segments.release_from(opened.cut_to)

    def _begin(self, kind: Pass, opened: Opened) -> None:
        self._pass = kind
        self._pass_number += 1
        self.serving = False
        self._target = max(opened.confirmed, opened.generation_start)

    def _go_back(self, opened: Opened, first: bool) -> None:
        """To `cut_to`, from wherever we are."""
        cut_to = opened.cut_to
        assert self.segments is not None
        self.segments.release_from(cut_to)
        self.history += 1
        trusted = self._trusted is not None
        compared = first and not (trusted and opened.minimum < cut_to < self.applied)
        if compared:
            self.history_is_foreign = trusted
            self._rebuilt = DispatchState()
            # No watermark; or a generation that the log does not know, so that RocketMQ or another
            # history may have written these files.
            self._compare = self._never_ours or (self._stored is not None and self._stored.clean)
            self.queues.open_untrusted(self._ranges, cut_to)
            self._writer.list_anew()
            self.minimum = 0
            self._begin(Pass.COMPARED, opened)
            self._report.append(f"all queues are compared with the log from {cut_to} on")
        else:
            count = self.queues.cut(cut_to)
            comparing = (self._trusted if first else self._pass) is Pass.COMPARED
            self._begin(Pass.COMPARED if comparing else Pass.CUT, opened)
            if cut_to < self._rebuilt.position:
                self._rebuilt = DispatchState(opened.generation, cut_to)
            self._report.append(
                f"the log goes on at {cut_to}, not at {self.applied}: {count} queues were cut"
            )
        self._watermark.rewind(cut_to, vacuous=compared or cut_to > self.applied)
        self.applied = cut_to
        offset, store_timestamp_ms = self._watermark.covered
        self.durable = min(self.durable, offset)
        self.durable_store_timestamp_ms = min(self.durable_store_timestamp_ms, store_timestamp_ms)
        self.waiting.wake_all()

    def _progressed(self) -> None:
        if self._target < 0 or self.applied < self._target:
            return
        self._learn_page()
        if self._page_is_due:
            return  # a page for each step of `apply`
        self.serving = True
        if self._pass is not None:
            self._flush()

    @property
    def _page_is_due(self) -> bool:
        return bool(self._pages_of_log) and self.applied >= self._pages_of_log[0][0]

    def _learn_page(self) -> None:
        if self._page_is_due:
            for topic, queue_id, next_index in self._pages_of_log.popleft()[1]:
                self.queues.begin_empty(topic, queue_id, next_index, self.minimum)

    def _learn_minimum(self, minimum: int) -> None:
        if minimum <= self.minimum:
            return
        self.minimum = minimum
        if self.segments is not None:
            self.segments.release_below(minimum)
        self._expiry.begin()

    def _apply_columns(self, columns: DispatchColumns, position: int) -> None:
        grown: list[QueueKey] = [ANYTHING]
        try:
            for run in unit_runs(columns):
                if self.queues.append(run, self.minimum) is not None:
                    grown.append((run.topic, run.queue_id))
        except CorruptionError:
            # Units are missing, here or in the log: the next start compares all queues.
            self._doubtful = True
            raise
        self.applied = position
        newest_ms = int(columns.store_timestamp_ms[-1]) if len(columns) else None
        self._watermark.applied(position, newest_ms)
        if len(self.waiting):
            self.waiting.grown(grown)

    # --- inside: flushing ---

    def _flush(self) -> None:
        """Start a cycle, unless one runs or nothing would come of it."""
        if self._flusher.running:
            return
        interval_ns = self._settings.flush_interval_ms * 1_000_000
        self._next_flush_ns = self._clock.monotonic_ns() + interval_ns
        self._watermark.flushed(self.flushed)
        ending = self._pass is not None and self.applied >= self._target
        erase = ending or self._pass is not Pass.COMPARED
        if self._pass is not None and erase and self._marked_pass != self._pass_number:
            self._marked_pass = self._pass_number
            self.queues.mark_stale()
        after = None
        if self._opened and not self._doubtful:
            # When a cycle has erased what is stale, nothing behind the watermark is unknown.
            clean = erase and bool(self._when_flushed)
            after = DispatchState(
                self.generation,
                *self._watermark.covered,
                complete=erase,
                clean=clean,
                minimum=self.minimum,
            )
            idle = self._stored is not None and self._stored.clean and not self.queues.dirty
            if after == self._stored or (idle and replace(after, clean=True) == self._stored):
                after = None
        waiting, self._when_flushed = self._when_flushed, []
        before = self._unclean() if self.queues.dirty or self._doubtful else None
        if before == self._stored:
            before = None
        if self._failure is not None or not (self.queues.dirty or before or after):
            for done in waiting:
                done()
            return
        cycle = Cycle(
            limit=self._watermark.covered[0],
            erase=erase,
            compare=self._compare and self._pass is Pass.COMPARED,
            before=before,
            after=after,
        )
        number = self._pass_number
        self._flusher.start(
            cycle, lambda error: self._flushed(cycle, number, ending, waiting, error)
        )

    def _unclean(self) -> DispatchState:
        """What must be on disk before files change."""
        if self._stored is None or self._doubtful:
            return DispatchState()
        if self._pass is Pass.COMPARED:
            return self._rebuilt
        return replace(self._stored, clean=False)

    def _can_write(self) -> bool:
        """Whether the log has flushed more than is written, and files can be written."""
        self._watermark.flushed(self.flushed)
        return self._watermark.is_ahead and not self.flush_blocked

    def _is_full(self) -> bool:
        """Whether units must be written first. Those that the log has not flushed cannot be."""
        if self.queues.unwritten_bytes < self._settings.max_unwritten_bytes:
            return False
        if not self._flusher.running and self._can_write():
            self._flush()
        return self._flusher.running or bool(self.flush_blocked)

    def _flushed(
        self,
        cycle: Cycle,
        number: int,
        ending: bool,
        waiting: list[Callable[[], None]],
        error: BaseException | None,
    ) -> None:
        was_blocked, self.flush_blocked = self.flush_blocked, ""
        if error is None:
            self._stored = cycle.after or cycle.before or self._stored
            if number == self._pass_number:
                self._watermark.written_to = cycle.limit
                if ending:
                    self._pass = None
                if cycle.after is not None and not cycle.after.complete:
                    self._rebuilt = cycle.after
                elif cycle.after is not None:
                    self.durable = cycle.after.position
                    self.durable_store_timestamp_ms = cycle.after.store_timestamp_ms
        elif isinstance(error, OSError):
            self.flush_blocked = f"queue files cannot be written: {error}"
            if not was_blocked:
                log.error("queue files cannot be written", extra={"error": str(error)})
        else:
            self._failure = error
            self.stopped(error)
            known = isinstance(error, StrataError)
            log.critical(
                "flush failed for good",
                extra={"error": str(error)},
                exc_info=None if known else error,
            )
        written, self._when_written = self._when_written, []
        for done in (*waiting, *written):
            done()
        again = error is None and self._pass is not None and self.applied >= self._target
        if self._when_flushed or again:
            self._flush()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
