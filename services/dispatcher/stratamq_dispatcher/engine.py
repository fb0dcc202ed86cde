"""The dispatcher's engine: follows the log and builds the units of its messages.

It starts no thread and knows no event loop. Frames come from the log's own segments. Units go to
the tails of queues at once, where pulls find them; the saver brings them to their files, as far as
the log has flushed. What must be looked at again after a start or a cut is a pass (`passes`).

Units wait in memory until they are written. When there are too many the engine stops reading the
log until some are: `apply` yields what must be waited for.
"""

from collections.abc import Callable, Iterator
from typing import NoReturn

from stratamq.errors import CorruptionError
from stratamq.files.port import Clock, Files, Worker
from stratamq.follow.fold import Fold, FoldPlace
from stratamq.follow.protocol import Event, Opened, ReadAgainError, Wait
from stratamq.formats.frame_verify import NOWHERE
from stratamq.formats.numbers import NextOffset
from stratamq.formats.queue_units import light_runs, unit_runs
from stratamq.store.generations import end_of
from stratamq.store.log_pieces import LogPiece
from stratamq.store.sealed import sealed_from
from stratamq_dispatcher.consume_queue import ConsumeQueue
from stratamq_dispatcher.findings import Findings
from stratamq_dispatcher.frame_reads import HotLog
from stratamq_dispatcher.long_poll import ANYTHING, LongPolls, OnChange
from stratamq_dispatcher.mending import Mender
from stratamq_dispatcher.opened_store import EngineSettings, open_store
from stratamq_dispatcher.passes import Pass, Passes
from stratamq_dispatcher.pull import PullAnswer, PullLimits, PullPlan, PullQuery, plan_pull
from stratamq_dispatcher.queue_ends import LogEnds, QueueEnds
from stratamq_dispatcher.queue_table import Expiry, QueueKey
from stratamq_dispatcher.saver import Saver
from stratamq_dispatcher.verified_reads import VerifiedReads


class DispatchEngine:
    """The state of a fold (`fold` is what `stratamq.follow.driver` drives). Single-threaded. `load`
    comes first and may take long."""

    def __init__(
        self,
        files: Files,
        settings: EngineSettings,
        worker: Worker,
        clock: Clock,
        incarnation: int = 1,
        *,
        awaits_queues: bool = False,
        require_readable: Callable[[str], None] = lambda topic: None,
        on_watched: OnChange = lambda key, is_watched: None,
    ) -> None:
        """`incarnation` is another one in each process; `awaits_queues`: it serves only when it
        has learned the log's queue table as well; `require_readable` raises for a topic of which
        nothing may be read (`FollowedTopics.require_readable`); `on_watched` of `LongPolls`."""
        self._awaits_queues = awaits_queues
        self._was_read_again = False
        """The log was read again for queues that ended early. Once is enough: should the log count
        messages that get no units, reading it a third time would not end it."""
        self.followed = FoldPlace()
        self.fold = Fold(
            "dispatcher",
            self,
            self.followed,
            files,
            step_messages=settings.step_messages,
            delay_levels_ms=settings.delay_levels_ms,
        )
        self.waiting = LongPolls(on_watched)
        self.sealed_from = NOWHERE
        """From this log offset on every record has a checksum of its own."""
        self.history_is_foreign = False
        """The log does not have our generation: RocketMQ may have run in between."""
        self.history = 0
        """Grows when the log was cut: readers in other threads must close its files."""
        self._require_readable = require_readable
        self._incarnation = incarnation
        self._files = files
        self._settings = settings
        self._worker = worker
        self._clock = clock
        self.findings = Findings()
        self._passes = Passes()
        self._verified = VerifiedReads(clock)

    # --- start ---

    def load(self) -> None:
        """Find out what the files hold. Raises StoreRefusedError."""
        files, settings, followed = self._files, self._settings, self.followed
        store = open_store(files, settings, self._incarnation)
        self.findings.add(*store.report)
        if store.stored is not None and store.trusted is not None:
            followed.generation = store.stored.generation
            followed.applied = store.stored.position
            followed.minimum = store.stored.minimum
        self.queues = store.queues
        self._trusted, self._ranges = store.trusted, store.ranges
        self._log_ends = LogEnds(self.queues)
        self.ends = QueueEnds(self.queues, followed, files)
        self._expiry = Expiry(self.queues, self.findings.add)
        self.saver = Saver(
            store, followed, self._passes, settings, self._worker, self._clock, self.fold.stopped
        )
        self.mender = Mender(
            files,
            self._worker,
            self.queues,
            followed,
            self.findings,
            tuple(settings.delay_levels_ms),
            may_write=lambda: self.saver.failure is None,
        )

    # --- what the fold calls ---

    def cut(self, opened: Opened) -> int:
        """The log's answer: drop everything from `cut_to` on."""
        # While there was no connection the log may have been repaired, or be another one.
        self._verified.forget()
        followed, first = self.followed, not self.followed.opened
        self._log_ends.clear(more=self._awaits_queues)
        self.sealed_from = sealed_from(self._files)
        if first and self._trusted is not None and opened.cut_to == followed.applied:
            self._passes.begin(self._trusted)
            if self._trusted is Pass.COMPARED:
                self.findings.add(f"comparing all queues goes on at {followed.applied}")
        elif first or opened.cut_to != followed.applied:
            self._go_back(opened, first)
        self.ends.held_to = opened.reached
        if followed.generation not in (0, opened.generation):
            self.ends.held_to = end_of(self._files, followed.generation, opened.generation_start)
        return opened.cut_to

    def apply(self, event: Event, pieces: Iterator[LogPiece]) -> Iterator[Wait | None]:
        """Never more than `max_unwritten_bytes` of units and one step are in memory that could be
        written: then it yields a Wait until some are.

        Raises CorruptRecordError or CorruptionError when the log's bytes or queue offsets do not go
        on: dispatch stops there, it never skips.
        """
        followed, saver = self.followed, self.saver
        for piece in pieces:
            saver.raise_failure()
            self._apply_piece(piece)
            saver.flush_if_large()
            yield None
            while saver.is_full():
                yield saver.when_written
        while self._log_ends.is_due(followed.applied) and followed.at_target:
            self._take_page()
            yield None
        saver.raise_failure()

    def forget_below(self, minimum: int) -> None:
        self._expiry.begin()

    def progressed(self) -> None:
        followed = self.followed
        if not followed.at_target:
            return
        self._take_page()
        if self._log_ends.more or self._log_ends.is_due(followed.applied):
            return  # a page for each step of `apply`
        followed.serve_at_target()
        if self._passes.kind is not None:
            self.saver.flush()

    def close(self, done: Callable[[], None]) -> None:
        """Bring to disk what may go there, then call `done`, also when that fails."""
        self.waiting.wake_all()
        self.saver.close(done)

    def stopped(self) -> None:
        """What is applied can still be read."""
        self.waiting.wake_all()

    # --- what else is learned ---

    def learn_queues(self, appended: int, table: list[NextOffset], more: bool = False) -> None:
        """A page of the log's next queue offsets when its end was `appended`; `more`: another one
        follows.

        Queues of which the log has no message left go on where they were. Raises ReadAgainError.
        """
        self._log_ends.add(appended, table, more)
        self.progressed()

    def follow_tier(self, topic: str, queue_id: int, end: int) -> None:
        """A queue of a mounted tier, which this log has nothing of: it ends at queue offset
        `end`."""
        self.queues.begin_empty(topic, queue_id, end, self.followed.minimum)
        if len(self.waiting):
            self.waiting.grown([ANYTHING, (topic, queue_id)])

    # --- time ---

    @property
    def at_rest(self) -> bool:
        """Nothing is to be written or expired: ticks may come later."""
        written = self.followed.applied == self.followed.durable
        return self.followed.serving and written and not self._expiry.is_busy

    @property
    def is_settled(self) -> bool:
        """Serves, no pass is left, and all that may be written is."""
        idle = not (self._log_ends or self.queues.dirty or self.saver.is_running)
        return self.followed.serving and self._passes.kind is None and idle

    def tick(self) -> None:
        """To be called a few times a second."""
        self.waiting.sweep()
        self._expiry.step(self.followed.minimum)
        self.saver.tick()

    # --- questions ---

    def require_serving(self) -> None:
        """UnavailableError before the queues are where consumers may have seen them."""
        self.followed.require_serving("dispatcher")

    def plan_pull(self, query: PullQuery, limits: PullLimits) -> PullAnswer | PullPlan:
        """Raises UnavailableError until it serves, CorruptionError for damaged queue files, and
        what `require_readable` raises."""
        self.require_serving()
        self._require_readable(query.topic)
        return plan_pull(
            self.queues.get(query.topic, query.queue_id),
            query,
            self.queues.open_files,
            self.followed.minimum,
            self.followed.confirmed,
            limits,
            self.followed.segment_bytes,
        )

    def hot_log(self) -> HotLog:
        """The log's bytes in memory. After the first `opened`."""
        assert self.followed.segments is not None
        return HotLog(self.followed.segments, self.sealed_from, self._verified)

    def newest_store_timestamp_ms(self, queue: ConsumeQueue) -> int | None:
        """Store time of the queue's newest message; 0 when the log has none of it, None when it
        must be read."""
        deleted = queue.end_offset <= self.followed.minimum
        if not queue.has_messages or deleted or self.followed.segments is None:
            return 0
        return queue.newest_ms if queue.newest_ms >= 0 else None

    def recovery_report(self) -> list[str]:
        """What was found and done since the start, a line each."""
        return self.findings.lines(self.queues.report)

    # --- inside ---

    def _go_back(self, opened: Opened, first: bool) -> None:
        """To `cut_to`, from wherever we are."""
        followed, cut_to = self.followed, opened.cut_to
        self.history += 1
        trusted = self._trusted is not None
        if first and not (trusted and opened.minimum < cut_to < followed.applied):
            self.history_is_foreign = trusted
            self.queues.open_untrusted(self._ranges, cut_to)
            followed.minimum = 0
            self._passes.begin(Pass.COMPARED)
            self.findings.add(f"all queues are compared with the log from {cut_to} on")
            self.saver.compare_all(cut_to)
        else:
            comparing = (self._trusted if first else self._passes.kind) is Pass.COMPARED
            self._passes.begin(Pass.COMPARED if comparing else Pass.CUT)
            count = self._cut(opened.generation, cut_to)
            self.findings.add(
                f"the log goes on at {cut_to}, not at {followed.applied}: {count} queues were cut"
            )
        self.waiting.wake_all()

    def _cut(self, generation: int, cut_to: int) -> int:
        """How many queues lost something."""
        self._verified.forget()
        count = self.queues.cut(cut_to)
        self.saver.cut(generation, cut_to, vacuous=cut_to > self.followed.applied)
        return count

    def _take_page(self) -> None:
        """Raises ReadAgainError when the page names a queue that ends early."""
        followed = self.followed
        if not self._was_read_again and (early := self._log_ends.early(followed.applied)):
            queue, next_index = early[0]
            self._read_again(
                min(queue.end_offset for queue, _ in early),
                f"{queue.directory}: ends at {queue.end}, and the log had given it {next_index} "
                f"messages; {len(early)} queues are as early",
            )
        self._log_ends.take_page(followed.applied, followed.minimum)

    def _read_again(self, offset: int, reason: str) -> NoReturn:
        """Queues have lost units whose messages are at or above `offset`."""
        followed = self.followed
        # A step that failed half way has given some queues more than is applied.
        cut_to = max(min(offset, followed.applied), followed.minimum)
        self._was_read_again = True
        self.history += 1
        self._passes.begin(Pass.CUT)
        self._cut(followed.generation, cut_to)
        followed.serving = False
        followed.go_on_at(cut_to)
        reason = f"{reason}: the log is read again from {cut_to}"
        self.findings.add(reason)
        self.waiting.wake_all()
        raise ReadAgainError(reason)

    def _apply_piece(self, piece: LogPiece) -> None:
        columns = piece.columns
        grown: list[QueueKey] = [ANYTHING]
        try:
            for run in unit_runs(columns):
                if self.queues.append(run, self.followed.minimum) is not None:
                    grown.append((run.topic, run.queue_id))
            for run in light_runs(columns):
                if self.queues.append_light(run, self.followed.minimum) is not None:
                    grown.append((run.topic, run.queue_id))
        except CorruptionError as error:
            queue = self.queues.get(run.topic, run.queue_id)
            if queue is not None and not self._was_read_again:
                self._read_again(queue.end_offset, str(error))
            self.saver.doubt()
            raise
        self.followed.applied = piece.end
        self.saver.applied(piece.end, int(columns.store_timestamp_ms[-1]) if len(columns) else None)
        if len(self.waiting):
            self.waiting.grown(grown)
