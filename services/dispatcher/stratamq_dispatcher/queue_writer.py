"""Writes what queues hold in memory to their files: one job at a time, on the worker's lane.

    job:  our state records that files will change  (only when it does not already)
          files that are no longer part of a queue   unlinked from the outside in, synced; moved
                                                     aside while queues are compared
          what is stale behind queues' ends          recorded
          new queues, where there are many           their files, made together
          for each queue                             pre-blank units, units, zeros
          everything synced                          few files by fdatasync, many by one syncfs
          the list of files, then the watermark      stored

A job writes at most `window_units` of a queue between two syncs. After a power loss nothing of ours
is further than that beyond what was synced: a start looks until it has seen so many zeros.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial

from stratamq.errors import StrataError
from stratamq.files.port import File, Files
from stratamq.formats.queue_paths import QueueGeometry, queue_directory
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.queue_units import pre_blank_fill
from stratamq_dispatcher.consume_queue import NO_MESSAGE
from stratamq_dispatcher.dispatch_state import DispatchState, Stale, StateFile
from stratamq_dispatcher.queue_files import Displaced, OpenFiles, set_aside

QueueKey = tuple[str, int]
FileRange = tuple[int, int]
"""First unit of a queue's first file, and the unit behind its last file."""

FEW_FILES = 16
"""Up to so many are synced one by one: a syncfs waits for everything on the volume."""
NEW_FILES_AT_ONCE = 128
"""Each has a descriptor until it has its name."""
_ERASED_UNITS = 1 << 15
_LOOKED_AT_UNITS = 204


class SyncFailedError(StrataError):
    """The disk did not take what was written. Nothing may be written again before a new start."""


@dataclass(frozen=True, slots=True)
class QueueWrite:
    """What one queue wants: the units [start, start + data) in its files, nothing stale behind."""

    key: QueueKey
    version: int
    first_unit: int
    start: int
    data: bytes
    fill_from: int
    erase: int

    @property
    def end(self) -> int:
        return self.start + len(self.data) // QUEUE_UNIT_BYTES


@dataclass(frozen=True, slots=True)
class FlushJob:
    writes: list[QueueWrite]
    before: DispatchState | None = None
    """Stored first: the files are about to change."""
    after: DispatchState | None = None
    """Stored last: the watermark."""
    compare: bool = False
    """Leave bytes alone that are right already (the files of another writer keep their times)."""
    keep: bool = False
    """Files may be another program's: what the log does not give is kept (`displaced`)."""


@dataclass(slots=True)
class FlushDone:
    job: FlushJob
    removed: list[str] = field(default_factory=list)
    """Paths that were unlinked: descriptors of them are stale."""
    written_bytes: int = 0


class QueueWriter:
    """The only writer below `consumequeue/`. Everything but the constructor runs on the lane."""

    def __init__(
        self,
        files: Files,
        geometry: QueueGeometry,
        ranges: dict[QueueKey, FileRange],
        state_file: StateFile,
        erasing: Stale | None,
        *,
        listed: bool,
        max_open_files: int,
        window_units: int,
    ) -> None:
        """`listed`: the stored list names exactly `ranges`; `erasing` is what an earlier
        process may have left half erased, None if that record is damaged."""
        self._files = files
        self._geometry = geometry
        self._ranges = ranges
        self._state_file = state_file
        self._open = OpenFiles(files, max_open_files, writable=True)
        self._window = window_units
        self._erasing = erasing or {}
        """Recorded on disk: zeros are being written up to there, whatever the cache shows."""
        self._displaced = Displaced(files)
        self._keep = False
        """`FlushJob.keep` of the job that runs."""
        self._dirty: set[str] = set()
        self._doomed: dict[str, list[str]] = {}
        """Files to unlink before anything is written, by directory, in the order they must go."""
        self._moved: set[str] = set()
        """Those of them that are moved aside instead."""
        self._earlier_removals = True
        """Files may have been unlinked, by an earlier process, without a sync."""
        self._unlisted = not listed
        """Files may be there whose maker died before it had synced their directory."""
        self._unsynced_names = False
        """Whether names of files that were made together are not yet synced."""
        self._list_anew = not listed
        self._listed_changed: set[QueueKey] = set()
        """Queues whose files are not those of the stored list."""
        self._record_damaged = erasing is None

    def run(self, job: FlushJob) -> FlushDone:
        """Everything in `job` is durable on return.

        SyncFailedError when a sync failed; OSError when something could not be written or created,
        in which case the same job may be tried again.
        """
        done = FlushDone(job)
        if job.before is not None:
            self._state_file.store(job.before)
        self._keep = job.keep
        self._forget(job.writes)
        self._remove(done)
        self._find_stale(job.writes)
        self._make_files(job.writes)
        rounds = [_Progress(write) for write in job.writes if write.data or write.erase]
        while rounds:
            rounds = [progress for progress in rounds if self._advance(progress, job, done)]
            self._sync()
        self._store_list()
        self._erased(job.writes)
        if job.after is not None:
            self._state_file.store(job.after)
        return done

    def relist(self) -> None:
        """The engine has taken queues out of the ranges, between jobs: the next list is whole."""
        self._list_anew = True

    def close(self) -> None:
        self._open.close()

    # --- which files there are ---

    def _forget(self, writes: Iterable[QueueWrite]) -> None:
        """Take files that are below a queue's first or beyond its end out of the list."""
        units = self._geometry.units_per_file
        for write in writes:
            known = self._ranges.get(write.key)
            if known is None or (kept := self._kept(known, write)) == known:
                continue
            directory = queue_directory(*write.key)
            begin, end = kept if kept[0] < kept[1] else (known[1], known[1])
            below, behind = (
                [self._geometry.path(directory, first) for first in firsts]
                for firsts in (range(known[0], begin, units), range(end, known[1], units))
            )
            self._doomed.setdefault(directory, []).extend((*below, *reversed(behind)))
            if self._keep:
                # Files below a queue that stays are expired.
                self._moved.update(behind if kept[0] < kept[1] else below)
            self._listed_changed.add(write.key)
            if kept[0] < kept[1]:
                self._ranges[write.key] = kept
            else:
                del self._ranges[write.key]

    def _remove(self, done: FlushDone) -> None:
        """Unlink what was forgotten, now or in a job that failed. The list goes first: a file that
        it names and that is gone counts as damage, one that comes back after a crash is not in it.

        Of each queue one file at a time, and a sync before the next: a power loss that kept the
        later of two removals alone would leave a gap in the queue.
        """
        if not self._doomed:
            return
        self._store_list()
        if self._earlier_removals:
            self._sync_all()
            self._earlier_removals = False
        while self._doomed:
            for paths in self._doomed.values():
                path = paths[0]
                self._open.forget(path)
                self._dirty.discard(path)
                if self._files.entry(path) is not None:
                    self._displaced.move(path) if path in self._moved else self._files.unlink(path)
                self._moved.discard(path)
                done.removed.append(path)
            self._sync_directories(self._doomed)
            for paths in self._doomed.values():
                del paths[0]
            self._doomed = {each: paths for each, paths in self._doomed.items() if paths}

    def _store_list(self) -> None:
        if self._unlisted or self._unsynced_names:
            self._sync_all()
            self._unlisted = self._unsynced_names = False
        if self._list_anew:
            self._state_file.store_ranges(self._geometry, self._ranges, None)
        elif self._listed_changed:
            self._state_file.store_ranges(self._geometry, self._ranges, self._listed_changed)
        self._list_anew = False
        self._listed_changed.clear()

    def _kept(self, known: FileRange, write: QueueWrite) -> FileRange:
        """The files of `known` that stay: from the queue's first one to the one with its end."""
        first, behind = known
        if not first <= write.first_unit <= behind:
            return first, first
        keep_to = behind
        if write.erase:
            last = write.end - 1
            keep_to = self._geometry.file_of(last) + self._geometry.units_per_file
            if last < write.first_unit:
                keep_to = write.first_unit
        return write.first_unit, max(write.first_unit, min(behind, keep_to))

    def _make_files(self, writes: Iterable[QueueWrite]) -> None:
        """The next file of each queue that needs one. One by one each costs five syncs: 20 000 new
        topics held up the watermark for minutes, and a stop until it was killed."""
        missing: dict[str, QueueWrite] = {}
        for write in writes:
            _, behind = self._ranges.get(write.key, (write.first_unit, write.first_unit))
            if write.data and behind < write.end:
                missing[self._geometry.path(queue_directory(*write.key), behind)] = write
        if len(missing) <= FEW_FILES:
            return
        paths, size = list(missing), self._geometry.file_bytes
        for begin in range(0, len(paths), NEW_FILES_AT_ONCE):
            some = paths[begin : begin + NEW_FILES_AT_ONCE]
            self._unsynced_names = True
            for path in self._files.create_many(some, size, self._sync_all):
                self._has_new_file(missing[path])
                self._dirty.add(path)

    def _has_new_file(self, write: QueueWrite) -> None:
        """Behind its others."""
        first, behind = self._ranges.get(write.key, (write.first_unit, write.first_unit))
        self._ranges[write.key] = (first, behind + self._geometry.units_per_file)
        self._listed_changed.add(write.key)

    def _file_for(self, write: QueueWrite, index: int) -> File:
        """The file that holds `index`, made with all that are missing before it."""
        directory = queue_directory(*write.key)
        while index >= (behind := self._ranges.get(write.key, (0, write.first_unit))[1]):
            path = self._geometry.path(directory, behind)
            try:
                self._files.create(path, self._geometry.file_bytes, sparse=True)
            except FileExistsError:
                set_aside(self._files, path)
                continue
            self._has_new_file(write)
        path = self._geometry.path(directory, index)
        self._dirty.add(path)
        return self._open.get(path)

    # --- bytes ---

    def _advance(self, progress: "_Progress", job: FlushJob, done: FlushDone) -> bool:
        """Write one window of one queue; True while there is more."""
        write = progress.write
        begins = progress.index == write.start and write.fill_from != NO_MESSAGE
        if begins and (write.data or self._has_file(write)):
            # Without units yet: an old file of a queue that begins again would tell RocketMQ to go
            # on behind its last unit.
            self._fill(write, job.compare)
        stop = min(progress.index + self._window, write.end)
        data = memoryview(write.data)
        while progress.index < stop:
            count = min(stop, self._next_file(progress.index)) - progress.index
            begin = (progress.index - write.start) * QUEUE_UNIT_BYTES
            piece = data[begin : begin + count * QUEUE_UNIT_BYTES]
            self._put(write, progress.index, piece, job.compare)
            done.written_bytes += len(piece)
            progress.index += count
        if progress.index < write.end:
            return True
        if write.erase:
            self._erase(write)
        return False

    def _has_file(self, write: QueueWrite) -> bool:
        """Whether the file is there in which the queue begins."""
        first, behind = self._ranges.get(write.key, (0, 0))
        return first <= write.fill_from < behind

    def _fill(self, write: QueueWrite, compare: bool) -> None:
        """Pre-blank units lie in one file: from its beginning to the queue's first unit."""
        index = write.fill_from
        for piece in pre_blank_fill(write.start - index):
            self._put(write, index, piece, compare)
            index += len(piece) // QUEUE_UNIT_BYTES

    def _put(self, write: QueueWrite, index: int, data: bytes | memoryview, compare: bool) -> None:
        file = self._file_for(write, index)
        position = self._geometry.position(index)
        if compare or self._keep:
            before = file.read(position, len(data))
            if before == data:
                if compare:
                    return
            elif self._keep:
                self._displaced.keep(file.path, file.size, position, before)
        file.write(position, data)

    def _next_file(self, index: int) -> int:
        return self._geometry.file_of(index) + self._geometry.units_per_file

    # --- what is stale behind a queue's end ---

    def _find_stale(self, writes: Iterable[QueueWrite]) -> None:
        """Record how far there is something to erase, before any of it is.

        Were a sync to fail then, the cache would show zeros that the disk does not have, and a
        start that looks for what is stale would find nothing.
        """
        found = False
        for write in writes:
            upto = self._stale_end(write)
            if upto > self._erasing.get(write.key, 0):
                self._erasing[write.key] = upto
                found = True
        if found:
            self._state_file.store_stale(self._erasing)

    def _stale_end(self, write: QueueWrite) -> int:
        """The index up to which something may be stale behind the queue's end; 0 for none.

        After a crash that is what had been synced since the watermark, without a gap, and at most a
        window more: so the search goes on until a whole window is zero.
        """
        known = self._ranges.get(write.key)
        found = 0
        if write.erase and known is not None:
            low = max(write.end, known[0])
            while last := self._last_stale(write, low, min(known[1], low + write.erase)):
                found = low = last
        return found

    def _last_stale(self, write: QueueWrite, low: int, high: int) -> int:
        """The index behind the last piece of [low, high) that is not zero; 0 if all is.

        Looked for from behind and in small pieces: read forwards, the kernel would fill megabytes
        of cache ahead, for every queue, with zeros.
        """
        most = _LOOKED_AT_UNITS if write.erase <= self._window else _ERASED_UNITS
        while high > low:
            start = max(low, high - most, self._geometry.file_of(high - 1))
            length = (high - start) * QUEUE_UNIT_BYTES
            file = self._open.get(self._path(write, start))
            if file.read(self._geometry.position(start), length) != bytes(length):
                return high
            high = start
        return 0

    def _erase(self, write: QueueWrite) -> None:
        """Zeros over what is recorded. Holes behind it stay holes."""
        index = write.end
        stop = min(self._erasing.get(write.key, 0), self._ranges.get(write.key, (0, 0))[1])
        while index < stop:
            end = min(index + _ERASED_UNITS, stop, self._next_file(index))
            path = self._path(write, index)
            file, position = self._open.get(path), self._geometry.position(index)
            length = (end - index) * QUEUE_UNIT_BYTES
            if self._keep:
                self._displaced.keep(path, file.size, position, file.read(position, length))
            file.write(position, bytes(length))
            self._dirty.add(path)
            index = end

    def _erased(self, writes: Iterable[QueueWrite]) -> None:
        """It is durable: forget the record."""
        done = [write.key for write in writes if write.erase and write.key in self._erasing]
        for key in done:
            del self._erasing[key]
        if done or self._record_damaged:
            self._state_file.store_stale(self._erasing)
            self._record_damaged = False

    def _path(self, write: QueueWrite, index: int) -> str:
        return self._geometry.path(queue_directory(*write.key), index)

    # --- durability ---

    def _sync(self) -> None:
        """What was left alone because it was right is synced too: its writer may not have."""
        if self._unsynced_names or len(self._dirty) > FEW_FILES:
            self._sync_all()
            self._unsynced_names = False
        else:
            for path in sorted(self._dirty):
                self._synced(self._open.get(path).flush)
        self._dirty.clear()

    def _sync_directories(self, directories: Collection[str]) -> None:
        if len(directories) > FEW_FILES:
            self._sync_all()
            return
        for directory in directories:
            self._synced(partial(self._files.sync_directory, directory))

    def _sync_all(self) -> None:
        self._synced(self._files.sync_all)

    def _synced(self, sync: Callable[[], None]) -> None:
        try:
            sync()
        except OSError as error:
            raise SyncFailedError(
                f"consume queues could not be synced: {error.strerror}", errno=error.errno
            ) from error


@dataclass(slots=True)
class _Progress:
    write: QueueWrite
    index: int = -1

    def __post_init__(self) -> None:
        self.index = self.write.start
