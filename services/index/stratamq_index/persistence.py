"""When what is written: items about once a second, slots every few, all of it at the end.

One piece of work at a time goes to the write lane, each followed by a watermark. First of all comes
what the log's answers demanded to be cut; nothing else is written before that is done.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stratamq.files.port import Clock, Files, Worker
from stratamq.follow.fold import FoldPlace
from stratamq.formats.store_paths import INDEX
from stratamq_index.cut import CutJob
from stratamq_index.index_file import WritableIndexFile, close_all, sync_files, unlink_files
from stratamq_index.series import FileSeries, WriteJob
from stratamq_index.watermark import Watermark
from stratamq_index.writer import Writer

log = logging.getLogger(__name__)

WRITE_EARLY_ITEMS = 500_000
"""So many items in memory do not wait for the interval."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What the engine takes from the service's settings."""

    index_slots: int | None = None
    index_items: int | None = None
    sync_interval_ms: int = 1000
    slot_interval_ms: int = 5000
    max_open_files: int = 256


@dataclass(frozen=True, slots=True)
class Present:
    """What the files are to become, at one moment."""

    series: FileSeries
    settled: bool
    """The series is what the files are to become."""
    exchanging: bool
    """A rebuild exchanges files: nothing else is written."""
    keep_files: bool
    """Expired files stay."""
    generation: int


class Persistence:
    """Writes the series. `on_idle` is called when the last work has ended, `on_expired` when
    files have gone, `on_cut` when they are others under the same names."""

    def __init__(
        self,
        files: Files,
        settings: EngineSettings,
        worker: Worker,
        clock: Clock,
        followed: FoldPlace,
        present: Callable[[], Present],
        on_idle: Callable[[], None],
        on_expired: Callable[[], None],
        on_cut: Callable[[], None],
    ) -> None:
        self.writer = Writer(files, worker, self._on_idle)
        self.closed = False
        """Shutting down: nothing more is applied."""
        self._files = files
        self._settings = settings
        self._worker = worker
        self._clock = clock
        self._followed = followed
        self._present = present
        self._idle = on_idle
        self._on_expired = on_expired
        self._on_cut = on_cut
        self._cuts: deque[CutJob] = deque()
        self._unsynced: list[str] = []
        """Adopted files: they may have been written by a process that did not sync them."""
        self._expired: list[str] = []
        self._force = False
        self._slots_stale = False
        self._last_write_ns = self._last_slots_ns = clock.monotonic_ns()
        self._closing: Callable[[], None] | None = None

    @property
    def is_closing(self) -> bool:
        return self._closing is not None or self.closed

    def record(self, unsynced: Sequence[str] = ()) -> None:
        """Store a watermark as soon as may be, whether or not there are new items."""
        self._force = True
        self._unsynced += unsynced

    def cut(self, job: CutJob, series: FileSeries) -> None:
        """The series was cut: the files follow before anything else is written."""
        self._cuts.append(job)
        self._followed.durable_ms = min(self._followed.durable_ms, series.sealed_ms)

    def close(self, done: Callable[[], None]) -> None:
        """Make all that is applied durable, slots and header too; then call `done`."""
        self._closing = done
        self.pump()
        self._end_closing()

    def shutdown(self, done: Callable[[], None]) -> None:
        self.closed = True
        self.close(done)

    def pump(self, *, tick: bool = False) -> None:
        """Begin the next piece of work, if one is due and none is under way."""
        writer = self.writer
        if writer.busy or writer.failure is not None:
            return
        present = self._present()
        series = present.series
        if present.exchanging:
            return
        if writer.blocked and not tick:
            return  # the next tick tries again, not the end of what has just failed
        if self._cuts:
            self._write_cut(self._cuts[0], present)
            return
        if not present.settled:
            return
        now_ns = self._clock.monotonic_ns()
        closing = self._closing is not None
        due = now_ns - self._last_write_ns >= self._settings.sync_interval_ms * 1_000_000
        full = series.pending_items >= WRITE_EARLY_ITEMS and not writer.blocked
        if not (due or closing or full or self._force):
            return
        if closing:
            closed = writer.stored is not None and writer.stored.closed
            slots = not closed or series.has_changes(self._followed.flushed)
        else:
            slots_ns = self._settings.slot_interval_ms * 1_000_000
            slots = self._slots_stale and now_ns - self._last_slots_ns >= slots_ns
        self._expire(present)
        job = series.plan(
            self._followed.flushed,
            self._files,
            f"{INDEX}/",
            force=self._force or bool(self._expired),
            slots=slots,
        )
        if job is not None:
            self._last_write_ns = now_ns
            self._write(job, present, slots, closing)

    def _write(self, job: WriteJob, present: Present, slots: bool, closing: bool) -> None:
        files, series, followed = self._files, present.series, self._followed
        unsynced, expired = self._unsynced, self._expired
        started_ns = self._last_write_ns

        def work() -> list[WritableIndexFile]:
            sync_files(files, unsynced)
            return job.run()

        def then(disks: list[WritableIndexFile]) -> None:
            sealed = series.finish(job, disks)
            self._worker.submit(lambda: close_all(sealed), ignore)
            self._force = False
            self._unsynced, self._expired = [], []
            # The log may have gone back since, to where the series is not cut yet.
            followed.durable = min(job.step.position, followed.applied)
            followed.durable_ms = series.sealed_ms
            self._slots_stale = not slots and bool(series.open)
            if slots:
                self._last_slots_ns = started_ns
            if expired:
                self._on_expired()

        watermark = Watermark(present.generation, job.step.position, closing, job.records)
        self.writer.submit(work, watermark, then, lambda: unlink_files(files, expired))

    def _write_cut(self, job: CutJob, present: Present) -> None:
        def then(disk: WritableIndexFile | None) -> None:
            self._cuts.popleft()
            if job.shortened is not None:
                job.shortened.disk = disk
            self._on_cut()

        position, records = present.series.written()
        self.writer.submit(job.run, Watermark(present.generation, position, False, records), then)

    def _on_idle(self) -> None:
        self._idle()
        self._end_closing()

    def _end_closing(self) -> None:
        """Notify those that wait for the end: it is reached, or never will be."""
        if self._closing is None or self.writer.busy:
            return
        done, stored, followed = self._closing, self.writer.stored, self._followed
        reached = stored is not None and stored.closed and followed.durable == followed.applied
        if reached or self.closed:
            self._closing = None
            done()

    def _expire(self, present: Present) -> None:
        """Files all of whose messages are gone from the log; never the last file."""
        if present.keep_files:
            return
        series = present.series
        sealed = series.sealed
        last = len(sealed) - (0 if series.open else 1)
        count = 0
        while count < last and sealed[count].header.end_phy_offset < self._followed.minimum:
            count += 1
        if count:
            self._expired += [record.name for record in series.drop_sealed(count)]


def ignore(result: object, error: BaseException | None) -> None:
    """The end of a task whose failure changes nothing."""
    if error is not None:
        log.error("closing files failed", extra={"reason": str(error)})
