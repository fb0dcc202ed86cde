"""The index's engine: follows the log, builds hash index files, answers by key.

It starts no thread and knows no event loop. Keys come from the log's own segments, through
`formats.dispatch` and `formats.index_columns`. Items are found at once where they wait in memory;
they go to their file about once a second, as far as the log has flushed, and a watermark that names
what is durable follows (`series`, `writer`). Questions are begun here and go on in the query lane.

What stood in `index/` before is recovered by `load` (`recovery` has the cases). Files without a
watermark of ours are adopted while the log is read again from its minimum (`adoption`): what they
cover is passed over, and only where no file covers the log it is looked at (`Gaps`).
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

from stratamq.errors import OffsetOutOfRangeError, StoreRefusedError, UnavailableError
from stratamq.files.port import Clock, Files, Worker
from stratamq.files.segment_reader import SegmentReader
from stratamq.formats.follow import Event, FollowError, Opened, Report
from stratamq.formats.index_columns import index_keys
from stratamq_index.adoption import Adopted, Adoption, Gaps, ends_of, put_aside
from stratamq_index.cut import CutJob, cut_series
from stratamq_index.directory import Found, scan
from stratamq_index.edge import EdgeFilter
from stratamq_index.geometry import Geometry
from stratamq_index.index_file import (
    DIRECTORY,
    WritableIndexFile,
    close_all,
    sync_files,
    unlink_files,
)
from stratamq_index.log_pieces import LogPieces, Piece
from stratamq_index.opening import open_directory
from stratamq_index.query import LOG_DIRECTORY, QueryLane, Question, Search, Source
from stratamq_index.recovery import edge_of
from stratamq_index.searches import Asked, Done, Searches
from stratamq_index.series import FileSeries, WriteJob
from stratamq_index.watermark import FileRecord, Watermark
from stratamq_index.writer import Writer

log = logging.getLogger(__name__)

MAX_PENDING_ITEMS = 4_000_000
"""Items that may wait in memory (130 MB) while they cannot be written; then applying waits."""
WRITE_EARLY_ITEMS = 500_000
REPORT_LINES = 200


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What the engine takes from the service's settings."""

    index_slots: int | None = None
    index_items: int | None = None
    sync_interval_ms: int = 1000
    slot_interval_ms: int = 5000
    max_open_files: int = 256


class IndexEngine:
    """Single-threaded; `stratamq.client.follow` drives it. `load` comes first and may take long.

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
        self.series: FileSeries
        self.generation = 0
        self.confirmed = self.flushed = self.minimum = self.durable = 0
        self.serving = False
        self.stopped_reason = ""
        self.files = files
        self.worker = worker
        self.report_lines: list[str] = []
        self.writer = Writer(files, worker, self._on_idle)
        self.searches = Searches(query_worker, clock)
        self.log: LogPieces
        self.lane: QueryLane
        self.exchange: str = ""
        """Why applying has to wait: files are being exchanged. Set by a rebuild."""
        self.keep_files = False
        """Expired files stay while a rebuild counts on them."""
        self.cut_count = 0
        """How often the log's answer changed what is in memory."""
        self._settings = settings
        self._query_worker = query_worker
        self._clock = clock
        self._segments: SegmentReader | None = None
        self._opened: Opened | None = None
        self._reopen: Opened | None = None
        self._target = 0
        """What must be applied before questions are answered."""
        self._found: list[Found] = []
        self._adoption: Generator[Adopted | None, None, None] | None = None
        self._gaps: Gaps | None = None
        self._edge = EdgeFilter(None)
        self._unsynced: list[str] = []
        """Adopted files: they may have been written by a process that did not sync them."""
        self._expired: list[str] = []
        self._cuts: deque[CutJob] = deque()
        """What earlier answers of the log demand of the files, before anything else is written."""
        self._durable_ms = 0
        self._force = False
        self._slots_stale = False
        self._last_write_ns = self._last_slots_ns = clock.monotonic_ns()
        self._closing: tuple[int, Callable[[], None]] | None = None
        self._closed = False

    # --- start ---

    def load(self) -> None:
        """Recover what is there. StoreRefusedError says why the directory cannot be served."""
        try:
            self._load()
        except OSError as error:
            raise StoreRefusedError(f"{DIRECTORY} cannot be recovered: {error}") from error

    def _load(self) -> None:
        report = self.report_lines
        self.geometry, recovered = open_directory(
            self.files,
            self._settings.index_slots,
            self._settings.index_items,
            self.writer,
            report,
        )
        self.generation = recovered.generation
        self.durable = recovered.position
        self._durable_ms = _end_ms(recovered.sealed)
        self.series = FileSeries(self.geometry, recovered.position, recovered.sealed)
        if recovered.current is not None:
            self.series.resume(recovered.current)
        self._edge = EdgeFilter(recovered.edge)
        self._found = recovered.adopt
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
        """Nothing at or above `cut_to` is answered any more when this returns."""
        if self._segments is None or self._opened is None:
            self._segments = SegmentReader(self.files, LOG_DIRECTORY, opened.segment_bytes)
            self.log = LogPieces(self._segments, opened.segment_bytes)
            self.lane = QueryLane(
                self.files, self.geometry, opened.segment_bytes, self._settings.max_open_files
            )
        elif opened.segment_bytes != self._opened.segment_bytes:
            raise FollowError("the log's segments have another size than before")
        self._opened = opened
        self.minimum, self.confirmed = opened.minimum, opened.confirmed
        self.flushed = opened.flushed
        if opened.cut_to != self.series.position or not self.serving:
            self.serving = False
            self._target = opened.confirmed
            self.searches.overtake()
        if self.writer.busy:
            self._reopen = opened
        else:
            self._begin_at(opened)

    def apply(self, event: Event) -> Iterator[None]:
        while self._reopen is not None or self.exchange:
            self._check()
            yield
        self._check()
        if event.start != self.series.position:
            raise FollowError(f"at {self.series.position}, not at {event.start}")
        self._learn(event)
        while self._adoption is not None:
            # Not `yield from`: when this stream ends in between, the next one goes on with it.
            adopted = next(self._adoption, None)
            if adopted is not None:
                self._install(adopted)
            yield
        if self._gaps is not None and (yield from self._pass_over(self._gaps, event)):
            self._progress()
            return
        try:
            for piece in self.log.read(event.start, event.end, event.lengths):
                while self.series.pending_items > MAX_PENDING_ITEMS or self.exchange:
                    self._check()
                    yield
                self._put(piece)
                yield
        except OffsetOutOfRangeError as error:
            # A full disk does not wait for followers: what was deleted needs no index.
            if error.minimum < event.end:
                raise
            self._edge = EdgeFilter(None)
            self.series.mark(event.end)
        self._progress()

    def report(self) -> Report:
        return Report(self.series.position, self.durable, self._durable_ms, self.minimum)

    def close_at(self, end: int, done: Callable[[], None]) -> None:
        self.flushed = max(self.flushed, end)
        self._closing = (end, done)
        self._pump()
        self._end_closing()

    def stopped(self, error: BaseException) -> None:
        self.stopped_reason = str(error) or type(error).__name__
        self.serving = False
        log.error("index stopped", extra={"reason": self.stopped_reason})

    # --- the service ---

    def tick(self) -> None:
        """Write what is due."""
        self._pump()

    def ask(self, question: Question, done: Done) -> Asked:
        """UnavailableError until the index has come to where the log was when it connected."""
        if not self.serving:
            raise UnavailableError(
                self.stopped_reason
                or f"the index has come to {self.series.position} of {self._target}"
            )
        return self.searches.ask(lambda: self._plan(question), self.lane, done)

    def shutdown(self, done: Callable[[], None]) -> None:
        """Write and sync what may be; nothing is applied any more. `done` is called in any case."""
        self._closed = True
        self._closing = (0, done)
        self._pump()
        self._end_closing()

    def end_rebuild(self) -> None:
        """Whatever became of it: applying, questions and expiry go on."""
        self.keep_files = False
        self.exchange = ""
        self._query_worker.submit(self.lane.forget, _ignore)
        self.searches.release(self.lane)
        self._pump()

    @property
    def sealed(self) -> list[FileRecord]:
        """Full files, all of them on disk."""
        return self.series.sealed

    @property
    def applied(self) -> int:
        return self.series.position

    @property
    def stop_reason(self) -> str:
        """Why nothing is indexed any more; empty while all is well."""
        return self.stopped_reason or str(self.writer.failure or "")

    @property
    def is_closing(self) -> bool:
        return self._closing is not None or self._closed

    @property
    def records(self) -> list[FileRecord]:
        """Every file with its header as it is in memory, oldest first."""
        return self.series.records()

    # --- connection ---

    def _begin_at(self, opened: Opened) -> None:
        """Make memory and files what the log's answer says. No work is under way."""
        self._reopen = None
        position, cut_to = self.series.position, opened.cut_to
        if self._adoption is not None and (cut_to, opened.generation) != (
            position,
            self.generation,
        ):
            self._adoption.close()
            self._adoption = None
            self._found = scan(self.files, self.geometry, self.report_lines)
        if self._found:
            self._adopt(opened)
            return
        # While adopted files are passed over they reach beyond our position: another generation
        # may have another history there.
        passing = self._gaps is not None and opened.generation != self.generation
        self.generation = opened.generation
        self._force = True
        if cut_to < position or passing:
            self._cut(cut_to)
            return
        if cut_to > position:
            # The log begins above us: what lies between is gone.
            self._edge = EdgeFilter(None)
            self.series.mark(cut_to)
        self._progress()

    def _cut(self, cut_to: int) -> None:
        self.cut_count += 1
        assert self._segments is not None
        self._segments.release_from(cut_to)
        self._query_worker.submit(lambda: self.lane.release(self.minimum, cut_to), _ignore)
        self._gaps = None
        self._edge = EdgeFilter(None)
        self._cuts.append(cut_series(self.series, cut_to, self.files, self.log.store_time))
        self.durable = min(self.durable, cut_to)
        self._durable_ms = min(self._durable_ms, _end_ms(self.series.sealed))
        self.searches.overtake()
        log.warning("index cut", extra={"cut_to": cut_to})
        self._progress()

    def _adopt(self, opened: Opened) -> None:
        self.cut_count += 1
        self.generation = opened.generation
        self.series = FileSeries(self.geometry, opened.cut_to)
        self._adoption = Adoption(
            self.files,
            self.geometry,
            self.log,
            self._found,
            opened.minimum,
            opened.confirmed,
            self.report_lines,
        ).steps()
        self._found = []
        if opened.confirmed <= opened.cut_to:
            # The log holds nothing, and no event will come: no file can be right.
            for adopted in self._adoption:
                if adopted is not None:
                    self._install(adopted)
        self._progress()

    def _install(self, adopted: Adopted) -> None:
        self._adoption = None
        position = self.series.position
        self.series = FileSeries(self.geometry, position, adopted.sealed)
        if adopted.current is not None:
            self.series.resume(adopted.current)
        self._edge = EdgeFilter(adopted.edge)
        self._unsynced = [record.name for record in self.series.records()]
        self._gaps = None
        if adopted.edge is not None:
            ends = ends_of(self.files, self.geometry, self.series.records())
            self._gaps = Gaps(self.log, ends)
        self._force = True

    def _pass_over(self, gaps: Gaps, event: Event) -> Generator[None, None, bool]:
        """True when adopted files cover all of the event, or a part that nobody indexes."""
        reached = self._edge.offset
        number = yield from gaps.first_unindexed(event.start, min(event.end, reached))
        if number is not None:
            self._drop_adopted(number)
            reached = self._edge.offset
        if event.end <= reached:
            self.series.position = event.end
            return True
        self._gaps = None
        return False

    def _drop_adopted(self, number: int) -> None:
        records = self.series.records()
        for file in self.series.open:
            if file.disk is not None:
                file.disk.close()
        names = [record.name for record in records[number:]]
        put_aside(self.files, names, "messages before it are not indexed", self.report_lines)
        kept = records[:number]
        self._install(Adopted(kept, None, edge_of(self.files, self.geometry, kept)))

    # --- applying ---

    def _put(self, piece: Piece) -> None:
        keys = self._edge.without_known(index_keys(piece.columns))
        self.series.put(keys)
        if piece.end > self._edge.offset:
            self._edge = EdgeFilter(None)
            self.series.mark(piece.end)
        else:
            # The files hold more than this: a watermark here would put it in twice.
            self.series.position = piece.end

    def _learn(self, event: Event) -> None:
        self.confirmed = event.confirmed
        self.flushed = max(self.flushed, event.flushed)
        if event.minimum > self.minimum and self._segments is not None:
            self.minimum = event.minimum
            self._segments.release_below(event.minimum)
            self._query_worker.submit(lambda: self.lane.release(event.minimum), _ignore)

    def _progress(self) -> None:
        settled = self._reopen is None and self._adoption is None
        if not self.serving and settled and self.series.position >= self._target:
            self.serving = not self.stopped_reason
        self._pump()

    def _check(self) -> None:
        if self.writer.failure is not None:
            raise self.writer.failure
        if self._closed:
            raise UnavailableError("the index is stopping")

    # --- writing ---

    def _pump(self) -> None:
        """Begin the next piece of work, if one is due and none is under way."""
        writer, series = self.writer, self.series
        if writer.busy or writer.failure is not None or self.exchange or self._opened is None:
            return
        if self._cuts:
            self._write_cut(self._cuts[0])
            return
        if self._adoption is not None or self._gaps is not None or self._found:
            return
        now_ns = self._clock.monotonic_ns()
        due = now_ns - self._last_write_ns >= self._settings.sync_interval_ms * 1_000_000
        closing = self._closing is not None
        full = series.pending_items >= WRITE_EARLY_ITEMS and not writer.blocked
        if not (due or closing or full or self._force):
            return
        if closing:
            closed = writer.stored is not None and writer.stored.closed
            slots = not closed or series.has_news(self.flushed)
        else:
            slots_ns = self._settings.slot_interval_ms * 1_000_000
            slots = self._slots_stale and now_ns - self._last_slots_ns >= slots_ns
        self._expire()
        force = self._force or bool(self._expired)
        job = series.plan(self.flushed, self.files, f"{DIRECTORY}/", force=force, slots=slots)
        if job is None:
            return
        self._last_write_ns = now_ns
        self._write(job, slots, closing)

    def _write(self, job: WriteJob, slots: bool, closing: bool) -> None:
        unsynced, expired = self._unsynced, self._expired
        started_ns = self._last_write_ns
        series = self.series

        def work() -> list[WritableIndexFile]:
            sync_files(self.files, unsynced)
            return job.run()

        def then(disks: list[WritableIndexFile]) -> None:
            sealed = series.finish(job, disks)
            self.worker.submit(lambda: close_all(sealed), _ignore)
            self._force = False
            self._unsynced, self._expired = [], []
            self.durable = job.mark.position
            self._durable_ms = _end_ms(series.sealed)
            self._slots_stale = not slots and bool(series.open)
            if slots:
                self._last_slots_ns = started_ns
            for name in expired:
                self._query_worker.submit(lambda name=name: self.lane.forget(name), _ignore)

        watermark = Watermark(self.generation, job.mark.position, closing, job.records)
        self.writer.submit(work, watermark, then, lambda: unlink_files(self.files, expired))

    def _write_cut(self, job: CutJob) -> None:
        def then(disk: WritableIndexFile | None) -> None:
            self._cuts.popleft()
            if job.shortened is not None:
                job.shortened.disk = disk
            self.searches.overtake()
            self._query_worker.submit(self.lane.forget, _ignore)

        position, records = self.series.written()
        watermark = Watermark(self.generation, position, False, records)
        self.writer.submit(job.run, watermark, then)

    def _on_idle(self) -> None:
        if self._reopen is not None:
            self._begin_at(self._reopen)
        if not self.writer.blocked:
            self._pump()
        self._end_closing()

    def _end_closing(self) -> None:
        """Tell whoever waits for the end that it is reached, or that it never will be."""
        if self._closing is None or self.writer.busy:
            return
        end, done = self._closing
        stored = self.writer.stored
        closed = stored is not None and stored.closed and self.durable >= end
        if closed or self._closed:
            self._closing = None
            done()

    def _expire(self) -> None:
        """Files all of whose messages are gone from the log; never the last file."""
        if self.keep_files:
            return
        sealed = self.series.sealed
        last = len(sealed) - (0 if self.series.open else 1)
        count = 0
        while count < last and sealed[count].header.end_phy_offset < self.minimum:
            count += 1
        if count:
            self._expired += [record.name for record in self.series.drop_sealed(count)]

    # --- questions ---

    def _plan(self, question: Question) -> Search:
        key_hash = question.key_hash
        sources = []
        for file in reversed(self.series.open):
            found, following = file.find(key_hash)
            sources.append(Source(file.name, file.state.header(), found, following))
        sources += [Source(record.name, record.header) for record in reversed(self.series.sealed)]
        return Search(question, sources, self.minimum, self.series.position)


def _end_ms(sealed: Sequence[FileRecord]) -> int:
    return sealed[-1].header.end_timestamp_ms if sealed else 0


def _ignore(result: object, error: BaseException | None) -> None:
    if error is not None:
        log.error("closing files failed", extra={"reason": str(error)})
