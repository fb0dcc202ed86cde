"""Build the index of a range of the log again, while applying and answering go on.

Files that hold anything of the range are built again under `stratamq/tmp`, from the first message
behind the file before them to the first message of the file behind them, and under the names they
have. Then all are exchanged in one piece of work of the write lane, and questions that read a
mixture are asked again. A message whose keys lie in two files keeps that split at both ends.

The file that takes the next key is rebuilt by catching up with it: near the end applying waits for
the rebuild, and then continues in the new file.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from stratamq.errors import (
    BusyError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnavailableError,
)
from stratamq.formats.index_columns import index_keys
from stratamq.formats.store_paths import INDEX, TEMPORARY_DIRECTORY
from stratamq_index.edge import EdgeFilter, without_following
from stratamq_index.engine import IndexEngine
from stratamq_index.index_file import (
    TEMPORARY_PREFIX,
    EdgeKeys,
    IndexFileReader,
    WritableIndexFile,
    close_all,
    path_of,
    unlink_files,
)
from stratamq_index.recovery import edge_of
from stratamq_index.series import FileSeries
from stratamq_index.watermark import FileRecord, Watermark

log = logging.getLogger(__name__)

PREFIX = f"{TEMPORARY_DIRECTORY}/{TEMPORARY_PREFIX}"
PAUSE_BELOW_BYTES = 32 * 1024 * 1024
"""Applying waits for the rest of a rebuild that is so near."""
NO_LIMIT = 1 << 63
_WRITE_ITEMS = 250_000


class Wait:
    """What a rebuild yields when it can only go on after work in the write lane."""

    def __init__(self) -> None:
        self.over = False
        self._callbacks: list[Callable[[], None]] = []

    def then(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the wait is over, at once if it is."""
        if self.over:
            callback()
        else:
            self._callbacks.append(callback)

    def end(self) -> None:
        self.over = True
        for callback in self._callbacks:
            callback()


@dataclass(frozen=True, slots=True)
class Rebuilt:
    files: int
    items: int


class Rebuild:
    """One rebuild of [start, end), or of everything when both are 0.

    `steps` yields None after each step of less than 2 ms and a `Wait` when it has to wait; the
    result is in `rebuilt`. Closing the iterator gives up and leaves the index as it was.
    """

    def __init__(self, engine: IndexEngine, start: int, end: int) -> None:
        """InvalidRequestError, BusyError while another one runs, UnavailableError."""
        if start < 0 or end < start:
            raise InvalidRequestError(f"not a range of the log: {start} to {end}")
        if not engine.followed.serving:
            raise UnavailableError("the index is not ready")
        if engine.keep_files:
            raise BusyError("another rebuild is under way")
        self.rebuilt = Rebuilt(0, 0)
        self._engine = engine
        self._start, self._end = (start, end) if end else (0, NO_LIMIT)
        self._work: _Work | None = None

    def steps(self) -> Generator[Wait | None, None, None]:
        engine = self._engine
        if engine.keep_files:
            raise BusyError("another rebuild is under way")
        engine.keep_files = True
        try:
            yield from self._steps()
        except OffsetOutOfRangeError as error:
            reason = "messages of the range were deleted meanwhile: ask again"
            raise UnavailableError(reason) from error
        finally:
            engine.worker.submit(lambda: _clean(engine), _ignore)
            if self._work is not None:
                # A caller that gives up while files are exchanged must not stop that half-way.
                self._work.exchanged.then(engine.end_rebuild)
            else:
                engine.end_rebuild()

    def _steps(self) -> Iterator[Wait | None]:
        engine = self._engine
        records = engine.records
        sealed = len(engine.series.sealed)
        chosen = [
            number
            for number, record in enumerate(records)
            if record.header.end_phy_offset >= self._start
            and (records[number - 1].header.end_phy_offset if number else -1) < self._end
        ]
        if not chosen:
            return
        first, last = chosen[0], chosen[-1]
        with_open = last >= sealed
        if with_open:
            first, last = min(first, sealed), len(records) - 1
        work = self._work = _Work(engine, records, first, last, with_open)
        yield from work.read()
        yield from work.exchange()
        self.rebuilt = work.rebuilt


class _Work:
    """Builds `records[first … last]` again and exchanges them. `with_open`: up to the present."""

    def __init__(
        self,
        engine: IndexEngine,
        records: Sequence[FileRecord],
        first: int,
        last: int,
        with_open: bool,
    ) -> None:
        self.rebuilt = Rebuilt(0, 0)
        self.exchanged = Wait()
        """Over unless an exchange is under way."""
        self.exchanged.end()
        self._engine = engine
        self._cut_count = engine.cut_count
        self._with_open = with_open
        self._kept = list(records[:first])
        self._old = [record.name for record in records[first : last + 1]]
        edge = edge_of(engine.files, engine.geometry, self._kept)
        self._edge = EdgeFilter(edge)
        self._after: EdgeKeys | None = None
        if last + 1 < len(records):
            self._after = _head_of(engine, records[last + 1])
        self._stop = engine.series.position
        start = max(engine.followed.minimum, edge.physical_offset if edge else 0)
        limit = records[last + 1].name if last + 1 < len(records) else None
        self._series = FileSeries(engine.geometry, start, names=self._old, before_name=limit)
        self._series.follow(self._kept[-1].header if self._kept else None)

    def read(self) -> Iterator[Wait | None]:
        engine, series = self._engine, self._series
        while True:
            if self._with_open:
                near = engine.series.position - series.position < PAUSE_BELOW_BYTES
                if near:
                    engine.exchange = "the newest index file is rebuilt"
                self._stop = engine.series.position
            for piece in engine.log.read(series.position, self._stop):
                keys = self._edge.without_known(index_keys(piece.columns))
                series.put(without_following(keys, self._after))
                series.mark(piece.end)
                yield None
                self._check()
                if series.pending_items >= _WRITE_ITEMS:
                    yield from self._write(slots=False)
                if self._after is not None and piece.end > self._after.physical_offset:
                    break
            if not self._with_open or (engine.exchange and series.position == self._stop):
                break
        yield from self._write(slots=not self._with_open)

    def exchange(self) -> Iterator[Wait | None]:
        engine = self._engine
        engine.exchange = engine.exchange or "index files are exchanged"
        idle = Wait()
        engine.worker.submit(_nothing, lambda result, error: idle.end())
        yield idle
        self._check()
        new = self._series.records()
        following = [r.name for r in engine.records if r.name > self._old[-1]]
        if not self._with_open and new and following and new[-1].name >= following[0]:
            raise UnavailableError("no name is left for another file: rebuild a wider range")
        done = self.exchanged = Wait()
        engine.searches.hold()

        def failed(error: BaseException) -> None:
            # Old and new files may be mixed on disk: the next start sorts them out.
            engine.writer.failure = error
            done.end()

        def exchanged(result: None) -> None:
            self._take_over()
            done.end()

        position, records = self._written()
        lowered = None
        if self._with_open:
            edge = self._kept[-1].header.end_phy_offset if self._kept else 0
            lowered = Watermark(engine.contents.generation, edge, False, tuple(self._kept))
        watermark = Watermark(engine.contents.generation, position, False, records)
        on_disk = [record.name for record in self._series.written()[1]]
        disks = {file.name: file.disk for file in self._series.open if file.disk is not None}
        engine.writer.submit(
            lambda: _rename(engine, self._old, on_disk, disks),
            watermark,
            exchanged,
            before=lowered,
            failed=failed,
        )
        yield done
        if engine.writer.failure is not None:
            raise engine.writer.failure
        items = sum(record.header.next_item - 1 for record in new)
        self.rebuilt = Rebuilt(len(new), items)

    def _written(self) -> tuple[int, tuple[FileRecord, ...]]:
        """The watermark after the exchange: position and files."""
        position, records = self._series.written()
        if self._with_open:
            return position, (*self._kept, *records)
        position, before = self._engine.series.written()
        rest = [r for r in before[len(self._kept) :] if r.name not in self._old]
        return position, (*self._kept, *records, *rest)

    def _take_over(self) -> None:
        engine, series = self._engine, self._series
        engine.exchanged.update(self._old)
        if self._with_open:
            replaced = engine.series
            series.sealed = [*self._kept, *series.sealed]
            engine.contents.series = series
        else:
            replaced = series
            first = len(self._kept)
            engine.series.sealed[first : first + len(self._old)] = series.records()
        disks = [file.disk for file in replaced.open if file.disk is not None]
        engine.worker.submit(lambda: close_all(disks), _ignore)

    def _write(self, *, slots: bool) -> Iterator[Wait]:
        engine = self._engine
        flushed = engine.followed.flushed if self._with_open else NO_LIMIT
        job = self._series.plan(flushed, engine.files, PREFIX, slots=slots)
        if job is None:
            return
        wait = Wait()
        failures: list[BaseException] = []

        def done(disks: list[WritableIndexFile] | None, error: BaseException | None) -> None:
            if error is not None:
                failures.append(error)
            elif disks is not None:
                sealed = self._series.finish(job, disks)
                engine.worker.submit(lambda: close_all(sealed), _ignore)
            wait.end()

        engine.worker.submit(job.run, done)
        yield wait
        if failures:
            reason = f"the rebuilt index cannot be written: {failures[0]}"
            raise BusyError(reason) from failures[0]
        self._check()

    def _check(self) -> None:
        engine = self._engine
        if engine.writer.failure is not None:
            raise engine.writer.failure
        if engine.cut_count != self._cut_count or engine.persistence.is_closing:
            raise UnavailableError("the rebuild was given up: the log was cut, or the index stops")


def _rename(
    engine: IndexEngine,
    old: Sequence[str],
    new: Sequence[str],
    disks: dict[str, WritableIndexFile],
) -> None:
    for name in new:
        engine.files.replace(f"{PREFIX}{name}", path_of(name))
        if name in disks:
            disks[name].reopen(engine.files, path_of(name))
    unlink_files(engine.files, [name for name in old if name not in new])
    engine.files.sync_directory(INDEX)
    engine.files.sync_directory(TEMPORARY_DIRECTORY)


def _clean(engine: IndexEngine) -> None:
    for entry in engine.files.list(TEMPORARY_DIRECTORY):
        if entry.name.startswith(TEMPORARY_PREFIX):
            engine.files.unlink(f"{TEMPORARY_DIRECTORY}/{entry.name}")


def _head_of(engine: IndexEngine, record: FileRecord) -> EdgeKeys | None:
    """The first message of a file, which may be in memory still."""
    for file in engine.series.open:
        if file.name == record.name and file.written == 1:
            return file.head_keys()
    with closing(
        IndexFileReader.open(engine.files, path_of(record.name), engine.geometry)
    ) as reader:
        return reader.head_keys(record.header.next_item)


def _ignore(result: object, error: BaseException | None) -> None:
    if error is not None:
        log.warning("files of a rebuild were left behind", extra={"reason": str(error)})


def _nothing() -> None:
    """In the write lane: whatever was submitted before is done."""
