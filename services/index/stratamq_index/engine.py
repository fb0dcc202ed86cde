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
from collections import deque
from collections.abc import Callable, Iterator

from stratamq.errors import OffsetOutOfRangeError, StoreRefusedError, UnavailableError
from stratamq.files.port import Clock, Files, Worker
from stratamq.follow.fold import Fold, FoldPlace
from stratamq.follow.protocol import Event, Opened
from stratamq.formats.store_paths import INDEX
from stratamq.store.log_pieces import LogPiece
from stratamq_index.contents import Contents
from stratamq_index.geometry import FileGeometry
from stratamq_index.index_file import SyncError
from stratamq_index.log_pieces import LogPieces
from stratamq_index.persistence import EngineSettings, Persistence, Present, ignore
from stratamq_index.query import KeyQuery, QueryLane, Search, Source
from stratamq_index.recovery import open_directory
from stratamq_index.searches import Done, PendingQuery, Searches
from stratamq_index.series import FileSeries
from stratamq_index.watermark import FileRecord
from stratamq_index.writer import Writer

log = logging.getLogger(__name__)

MAX_PENDING_ITEMS = 4_000_000
"""Items that may wait in memory (130 MB) while they cannot be written; then applying waits."""
REPORT_LINES = 200


class IndexEngine:
    """The state of a fold (`fold` is what `stratamq.follow.driver` drives). Single-threaded. `load`
    comes first and may take long.

    `worker` is the write lane, `query_worker` the query lane. `tick` is to be called several times
    a second.
    """

    def __init__(
        self,
        files: Files,
        settings: EngineSettings,
        worker: Worker,
        query_worker: Worker,
        clock: Clock,
    ) -> None:
        self.geometry: FileGeometry
        self.contents: Contents
        self.lane: QueryLane
        self.followed = FoldPlace()
        self.fold = Fold("index", self, self.followed, files)
        self.log = LogPieces(self.followed)
        self.files = files
        self.worker = worker
        self.persistence = Persistence(
            files,
            settings,
            worker,
            clock,
            self.followed,
            present=self._present,
            on_idle=self.progressed,
            on_expired=self._forget_files,
            on_cut=self._files_cut,
        )
        self.report_lines: list[str] = []
        self.searches = Searches(query_worker, clock)
        self.exchange: str = ""
        """Why applying has to wait: files are being exchanged. Set by a rebuild."""
        self.keep_files = False
        """Expired files stay while a rebuild counts on them."""
        self.exchanged: set[str] = set()
        """Files that rebuilds have replaced; the reader of their bytes takes them out."""
        self._settings = settings
        self._query_worker = query_worker
        self._answers: deque[Opened] = deque()
        """The log's answers to which memory and files are still to be brought, in order."""

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
        followed = self.followed
        self.contents = Contents(
            self.files, self.geometry, followed, self.log, self.persistence, recovered, report
        )
        followed.generation = recovered.generation
        followed.applied = followed.durable = recovered.position
        followed.durable_ms = self.series.sealed_ms
        log.info(
            "index recovered",
            extra={
                "case": recovered.case.name,
                "files": len(self.series.records()) + len(recovered.adopt),
                "position": recovered.position,
            },
        )

    # --- what the fold calls ---

    def cut(self, opened: Opened) -> int:
        followed, cut_to, minimum = self.followed, opened.cut_to, opened.minimum
        if not followed.opened or self.lane.segment_bytes != opened.segment_bytes:
            self.lane = QueryLane(
                self.files, self.geometry, followed.segment_bytes, self._settings.max_open_files
            )
        # Behind the end of what was durable the log may have made its segments again.
        self._query_worker.submit(lambda: self.lane.look_again(minimum, cut_to), ignore)
        if not followed.serving:
            self.searches.overtake()
        self._answers.append(opened)
        return cut_to

    def apply(self, event: Event, pieces: Iterator[LogPiece]) -> Iterator[None]:
        while self._answers or self.exchange:
            self._check()
            yield
        self._check()
        while self.contents.adopting:
            # Not `yield from`: when this stream ends in between, the next one continues it.
            self.contents.adopt_step()
            yield
        if self.contents.has_gaps and (yield from self.contents.pass_over(event)):
            return
        try:
            for piece in pieces:
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

    def forget_below(self, minimum: int) -> None:
        self._query_worker.submit(lambda: self.lane.release(minimum), ignore)

    def progressed(self) -> None:
        """Also called when the write lane is idle: start what waits for that."""
        while self._answers and not self.writer.busy:
            if self.contents.begin_at(self._answers.popleft()):
                self.searches.overtake()
        if not self._answers and not self.contents.adopting:
            self.followed.serve_at_target()
        self.persistence.pump()

    def close(self, done: Callable[[], None]) -> None:
        self.persistence.close(done)

    def stopped(self) -> None:
        self.followed.serving = False

    # --- the service ---

    def tick(self) -> None:
        """Write what is due."""
        self.persistence.pump(tick=True)

    def ask(self, question: KeyQuery, done: Done) -> PendingQuery:
        """UnavailableError until the index has come to where the log was when it connected."""
        self.followed.require_serving("index")
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
        self.progressed()

    def findings(self) -> list[str]:
        """What the start found, and damaged messages that questions have come to; a line each."""
        return [*self.report_lines, *(self.lane.damage if self.followed.opened else ())]

    @property
    def cut_count(self) -> int:
        return self.contents.cut_count

    @property
    def series(self) -> FileSeries:
        return self.contents.series

    @property
    def stop_reason(self) -> str:
        """Why indexing has stopped; empty while it runs."""
        return self.followed.stopped_reason or str(self.writer.failure or "")

    @property
    def writer(self) -> Writer:
        return self.persistence.writer

    def _present(self) -> Present:
        settled = self.followed.opened and not self._answers and not self.exchange
        settled = settled and self.contents.settled
        return Present(
            self.series,
            settled,
            bool(self.exchange),
            self.keep_files,
            self.contents.generation,
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

    def _check(self) -> None:
        if self.writer.failure is not None:
            raise self.writer.failure
        if self.persistence.closed:
            raise UnavailableError("the index is stopping")

    # --- questions ---

    def _plan(self, question: KeyQuery) -> Search:
        key_hash = question.key_hash
        sources = []
        for file in reversed(self.series.open):
            found, following = file.find(key_hash)
            sources.append(Source(file.name, file.state.header(), found, following))
        sources += [Source(record.name, record.header) for record in reversed(self.series.sealed)]
        return Search(question, sources, self.followed.minimum, self.followed.applied)
