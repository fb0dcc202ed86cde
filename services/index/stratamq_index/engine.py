"""The index's engine: follows the log, builds hash index files, answers by key.

It starts no thread and uses no event loop. Keys come from the log's own segments, through
`formats.dispatch` and `formats.index_columns`. Items are found at once where they wait in memory;
they go to their file about once a second, as far as the log has flushed, and a watermark that names
what is durable follows (`series`, `writer`). Questions are begun here and go on in the query lane.

What stood in `index/` before is recovered by `load` (`recovery` has the cases). Files without a
watermark of ours are adopted while the log is read again from its minimum (`adoption`): what they
cover is passed over, and only where no file covers the log it is looked at (`Gaps`).
"""

import logging
from collections.abc import Callable, Iterator

from stratamq.errors import OffsetOutOfRangeError, StoreRefusedError, UnavailableError
from stratamq.files.port import Clock, Files, Worker
from stratamq.follow.protocol import Event, FollowError, Opened, Report
from stratamq.formats.store_paths import COMMIT_LOG, INDEX
from stratamq.store.segment_reader import SegmentReader
from stratamq_index.contents import Contents
from stratamq_index.geometry import Geometry
from stratamq_index.index_file import SyncError
from stratamq_index.log_pieces import LogPieces
from stratamq_index.opening import open_directory
from stratamq_index.persistence import EngineSettings, Persistence, Present, ignore
from stratamq_index.query import QueryLane, Question, Search, Source
from stratamq_index.searches import Asked, Done, Searches
from stratamq_index.series import FileSeries
from stratamq_index.watermark import FileRecord
from stratamq_index.writer import Writer

log = logging.getLogger(__name__)

MAX_PENDING_ITEMS = 4_000_000
"""Items that may wait in memory (130 MB) while they cannot be written; then applying waits."""
REPORT_LINES = 200


class IndexEngine:
    """Single-threaded; `stratamq.follow.driver` drives it. `load` comes first and may take long.

    `worker` is the write lane, `query_worker` the query lane. `tick` is to be called several times
    a second.
    """

    name = "index"

    def __init__(
        self,
        files: Files,
        settings: EngineSettings,
        worker: Worker,
        query_worker: Worker,
        clock: Clock,
    ) -> None:
        self.geometry: Geometry
        self.contents: Contents
        self.confirmed = self.flushed = self.minimum = 0
        self.serving = False
        self.stopped_reason = ""
        self.files = files
        self.worker = worker
        self.persistence = Persistence(
            files,
            settings,
            worker,
            clock,
            present=self._present,
            on_idle=self.go_on,
            on_expired=self._forget_files,
            on_cut=self._files_cut,
        )
        self.report_lines: list[str] = []
        self.searches = Searches(query_worker, clock)
        self.log: LogPieces
        self.lane: QueryLane
        self.exchange: str = ""
        """Why applying has to wait: files are being exchanged. Set by a rebuild."""
        self.keep_files = False
        """Expired files stay while a rebuild counts on them."""
        self.exchanged: set[str] = set()
        """Files that rebuilds have replaced; whoever has read their bytes takes them out."""
        self._settings = settings
        self._query_worker = query_worker
        self._segments: SegmentReader | None = None
        self._opened: Opened | None = None
        self._reopen: Opened | None = None
        self._target = 0
        """What must be applied before questions are answered."""

    # --- start ---

    def load(self) -> None:
        """Recover what is there. StoreRefusedError: why the directory cannot be served."""
        try:
            self._load()
        except (OSError, SyncError) as error:
            raise StoreRefusedError(f"{INDEX} cannot be recovered: {error}") from error

    def _load(self) -> None:
        report = self.report_lines
        self.geometry, recovered = open_directory(
            self.files,
            self._settings.index_slots,
            self._settings.index_items,
            self.persistence.writer,
            report,
        )
        self.persistence.start(recovered.position, recovered.sealed)
        self.contents = Contents(self.files, self.geometry, self.persistence, recovered, report)
        log.info(
            "index recovered",
            extra={
                "case": recovered.case.name,
                "files": len(self.series.records()) + len(recovered.adopt),
                "position": recovered.position,
            },
        )

    # --- the follower ---

    def resume_point(self) -> tuple[int, int]:
        return (self.generation, self.series.position) if self.generation else (0, 0)

    def opened(self, opened: Opened) -> None:
        """When this returns, no answer has anything at or above `cut_to`."""
        if self._segments is None or self._opened is None:
            self._segments = SegmentReader(self.files, COMMIT_LOG, opened.segment_bytes)
            self.log = self.contents.log = LogPieces(self._segments, opened.segment_bytes)
            self.lane = QueryLane(
                self.files, self.geometry, opened.segment_bytes, self._settings.max_open_files
            )
        elif opened.segment_bytes != self._opened.segment_bytes:
            raise FollowError("the log's segments have another size than before")
        self._opened = opened
        # Behind the end of what was durable the log may have made its segments anew.
        cut_to, minimum = opened.cut_to, opened.minimum
        self._segments.release_from(cut_to)
        self._query_worker.submit(lambda: self.lane.look_again(minimum, cut_to), ignore)
        self.minimum, self.confirmed = opened.minimum, opened.confirmed
        self.flushed = opened.flushed
        if opened.cut_to != self.series.position or not self.serving:
            self.serving = False
            self._target = opened.confirmed
            self.searches.overtake()
        self._reopen = opened
        self.go_on()

    def apply(self, event: Event) -> Iterator[None]:
        while self._reopen is not None or self.exchange:
            self._check()
            yield
        self._check()
        if event.start != self.series.position:
            raise FollowError(f"at {self.series.position}, not at {event.start}")
        self._learn(event)
        while self.contents.adopting:
            # Not `yield from`: when this stream ends in between, the next one continues it.
            self.contents.adopt_step()
            yield
        if self.contents.has_gaps and (yield from self.contents.pass_over(event)):
            self._progress()
            return
        try:
            for piece in self.log.read(event.start, event.end, event.lengths):
                while self.series.pending_items > MAX_PENDING_ITEMS or self.exchange:
                    self._check()
                    yield
                self.contents.put(piece)
                yield
        except OffsetOutOfRangeError as error:
            # A full disk does not wait for followers: what was deleted needs no index.
            if error.minimum < event.end:
                raise
            self.contents.skip_to(event.end)
        self._progress()

    def report(self) -> Report:
        persistence = self.persistence
        durable, durable_ms = persistence.durable, persistence.durable_ms
        return Report(self.series.position, durable, durable_ms, self.minimum)

    def close_at(self, end: int, done: Callable[[], None]) -> None:
        self.flushed = max(self.flushed, end)
        self.persistence.close_at(end, done)

    def stopped(self, error: BaseException) -> None:
        self.stopped_reason = str(error) or type(error).__name__
        self.serving = False
        log.error("index stopped", extra={"reason": self.stopped_reason})

    # --- the service ---

    def tick(self) -> None:
        """Write what is due."""
        self.persistence.pump(tick=True)

    def ask(self, question: Question, done: Done) -> Asked:
        """UnavailableError until the index has come to where the log was when it connected."""
        if not self.serving:
            raise UnavailableError(
                self.stopped_reason
                or f"the index has come to {self.series.position} of {self._target}"
            )
        return self.searches.ask(lambda: self._plan(question), self.lane, done)

    def shutdown(self, done: Callable[[], None]) -> None:
        """Write and sync what may be; then nothing is applied. `done` is called in any case."""
        self.persistence.shutdown(done)

    def end_rebuild(self) -> None:
        """Whatever became of it: applying, questions and expiry go on."""
        self.keep_files = False
        self.exchange = ""
        self._forget_files()
        self.searches.release(self.lane)
        self.go_on()

    def findings(self) -> list[str]:
        """What the start found, and damaged messages that questions have come to; a line each."""
        return [*self.report_lines, *(self.lane.damage if self._opened is not None else ())]

    @property
    def generation(self) -> int:
        return self.contents.generation

    @property
    def cut_count(self) -> int:
        return self.contents.cut_count

    @property
    def series(self) -> FileSeries:
        return self.contents.series

    @property
    def sealed(self) -> list[FileRecord]:
        """Full files, all of them on disk."""
        return self.series.sealed

    @property
    def applied(self) -> int:
        return self.series.position

    @property
    def durable(self) -> int:
        return self.persistence.durable

    @property
    def stop_reason(self) -> str:
        """Why indexing has stopped; empty while it runs."""
        return self.stopped_reason or str(self.writer.failure or "")

    @property
    def writer(self) -> Writer:
        return self.persistence.writer

    def _present(self) -> Present:
        settled = self._opened is not None and self._reopen is None and not self.exchange
        settled = settled and self.contents.settled
        return Present(
            self.series,
            settled,
            bool(self.exchange),
            self.keep_files,
            self.generation,
            self.flushed,
            self.minimum,
        )

    def _files_cut(self) -> None:
        self.searches.overtake()
        self._forget_files()

    def _forget_files(self) -> None:
        """Questions open the files again."""
        self._query_worker.submit(self.lane.forget, ignore)

    @property
    def records(self) -> list[FileRecord]:
        """Every file with its header as it is in memory, oldest first."""
        return self.series.records()

    # --- connection ---

    def go_on(self) -> None:
        """The write lane is idle: start what waits for that."""
        if self._reopen is not None and not self.writer.busy:
            self._begin_at(self._reopen)
        self.persistence.pump()

    def _begin_at(self, opened: Opened) -> None:
        """Bring memory and files to the log's answer. No work is under way."""
        self._reopen = None
        if self.contents.begin_at(opened):
            self.searches.overtake()
        self._progress()

    # --- applying ---

    def _learn(self, event: Event) -> None:
        self.confirmed = event.confirmed
        self.flushed = max(self.flushed, event.flushed)
        if event.minimum > self.minimum and self._segments is not None:
            self.minimum = event.minimum
            self._segments.release_below(event.minimum)
            self._query_worker.submit(lambda: self.lane.release(event.minimum), ignore)

    def _progress(self) -> None:
        settled = self._reopen is None and not self.contents.adopting
        if not self.serving and settled and self.series.position >= self._target:
            self.serving = not self.stopped_reason
        self.persistence.pump()

    def _check(self) -> None:
        if self.writer.failure is not None:
            raise self.writer.failure
        if self.persistence.closed:
            raise UnavailableError("the index is stopping")

    # --- questions ---

    def _plan(self, question: Question) -> Search:
        key_hash = question.key_hash
        sources = []
        for file in reversed(self.series.open):
            found, following = file.find(key_hash)
            sources.append(Source(file.name, file.state.header(), found, following))
        sources += [Source(record.name, record.header) for record in reversed(self.series.sealed)]
        return Search(question, sources, self.minimum, self.series.position)
