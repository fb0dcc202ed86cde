"""The segments of the log that is written: which exist, the one in use, and the next one ahead.

A segment is made whole, allocated and its directory synced before a byte is stored in it, by a
worker, while the one before is being filled. Bytes go in by `pwrite`, not through a mapping: the
kernel then takes whole new pages without zeroing them or asking the file system once for each, a
flush write-protects none, and where it makes a writer wait it does so without the interpreter's
lock (0.4 instead of 1 to 2.3 µs of CPU for each message of 1 KiB, flush included).
"""

import errno
import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from stratamq.files.paths import base_name
from stratamq.files.port import EntryKind, File, Files, Worker
from stratamq.formats.file_names import offset_name
from stratamq.formats.store_paths import ASIDE_DIRECTORY
from stratamq.formats.store_paths import COMMIT_LOG as DIRECTORY
from stratamq_commitlog.recovery.aside import aside_path, last_used

log = logging.getLogger(__name__)


@dataclass(slots=True)
class OpenSegment:
    """A segment open for writing."""

    base: int
    file: File


class SegmentSet:
    """Single-threaded, but for the tasks it gives to the worker."""

    def __init__(
        self,
        files: Files,
        worker: Worker,
        segment_bytes: int,
        offsets: list[int],
        end: int,
        refuse_ratio: float = 1.0,
        *,
        on_allocated: Callable[[], None],
    ) -> None:
        """`on_allocated` hears that an attempt to allocate has ended, well or not."""
        self.segment_bytes = segment_bytes
        self.offsets = offsets
        """Starts of the segments that belong to the log, in order; not the one ahead."""
        self.active: OpenSegment | None = None
        self.ahead: OpenSegment | None = None
        """Made and open, and not yet of the log."""
        self.allocation_error: OSError | None = None
        """Why the last attempt to allocate failed; a level: None once one succeeds."""
        self._files = files
        self._worker = worker
        self._on_allocated = on_allocated
        self._refuse_ratio = refuse_ratio
        """No segment is made that would fill more of the volume than this."""
        self._end = end
        self._allocating = False
        self._unflushed: list[OpenSegment] = []
        base = end - end % segment_bytes
        if base in offsets:
            self.active = self._open(base)
            self._unflushed.append(self.active)

    @property
    def minimum(self) -> int:
        """The first byte that exists; the end if there is no segment."""
        return self.offsets[0] if self.offsets else self._end

    def remaining(self, end: int) -> int:
        """Bytes left in the active segment behind `end`; 0 when there is none."""
        if self.active is None:
            return 0
        return max(0, self.active.base + self.segment_bytes - end)

    def roll(self, end: int) -> bool:
        """Make the segment that begins at `end` the active one; False: it is not there yet."""
        following = self.ahead
        if following is None or following.base != end:
            self.allocate_ahead(end)
            return False
        self.ahead = None
        self.active = following
        self.offsets.append(following.base)
        self._unflushed.append(following)
        self._end = end
        return True

    def allocate_ahead(self, base: int) -> None:
        """Have the segment at `base` made, unless that is under way or done."""
        if self._allocating or (self.ahead is not None and self.ahead.base == base):
            return
        self._allocating = True
        path = f"{DIRECTORY}/{offset_name(base)}"

        def allocate() -> OpenSegment:
            self._clear(path)
            self._require_room()
            self._files.create(path, self.segment_bytes)
            return self._open(base)

        def done(segment: OpenSegment | None, error: BaseException | None) -> None:
            self._allocating = False
            if error is not None and not isinstance(error, OSError):
                raise error
            self.allocation_error = error
            if segment is not None:
                self.ahead = segment
            self._on_allocated()

        self._worker.submit(allocate, done)

    def allocate_again(self, end: int) -> None:
        """An attempt failed: perhaps there is room now."""
        if self.active is None:
            self.allocate_ahead(end)
        else:
            self.keep_ahead(end)

    def _clear(self, path: str) -> None:
        """A file in the way is an attempt that failed after the rename, or a left-over of a lost
        race: whole, and empty. One with bytes is not ours, and moved aside; what is no file stays
        in the way."""
        entry = self._files.entry(path)
        if entry is None or entry.kind is not EntryKind.FILE:
            return
        with closing(self._files.open(path)) as file:
            empty = last_used(file, 0) == 0
        if empty:
            self._files.unlink(path)
            return
        self._files.make_directory(ASIDE_DIRECTORY)
        target = aside_path(self._files, int(base_name(path)), "in-the-way")
        self._files.replace(path, target)
        self._files.sync_directory(ASIDE_DIRECTORY)
        log.error("file in a segment's place moved", extra={"path": path, "to": target})

    def _require_room(self) -> None:
        space = self._files.space(DIRECTORY)
        used = space.total_bytes - space.available_bytes + self.segment_bytes
        if used > self._refuse_ratio * space.total_bytes:
            raise OSError(
                errno.ENOSPC,
                f"one of {self.segment_bytes} bytes would fill {used / space.total_bytes:.1%} of "
                f"the disk, and {self._refuse_ratio:.0%} is the limit "
                "(commitlog.disk_refuse_ratio)",
            )

    def keep_ahead(self, end: int) -> None:
        """Called after each pass: have the next segment made in time."""
        active = self.active
        if active is None:
            return
        position = end - active.base
        if position * 2 >= self.segment_bytes:
            self.allocate_ahead(active.base + self.segment_bytes)

    def flush_task(self, start: int, end: int) -> Callable[[], None]:
        """A task for another thread that makes [start, end) durable, oldest segment first."""
        size = self.segment_bytes
        parts = []
        for segment in self._unflushed:
            low, high = max(start, segment.base), min(end, segment.base + size)
            if low < high:
                parts.append((segment.file, low - segment.base, high - low))

        def flush() -> None:
            for file, position, length in parts:
                file.flush(position, length)

        return flush

    def flushed(self, end: int) -> None:
        """Let go of the segments that are full and durable."""
        for segment in list(self._unflushed):
            if segment is not self.active and segment.base + self.segment_bytes <= end:
                self._unflushed.remove(segment)
                segment.file.close()

    def remove_first(self, count: int) -> list[int]:
        """Take the first segments out of the log; their files are the caller's to unlink."""
        removed, self.offsets[:count] = self.offsets[:count], []
        return removed

    def drop_cache(self, base: int, position: int, length: int) -> None:
        """Take a range of a removed segment out of the page cache; fine if it is gone already."""
        path = f"{DIRECTORY}/{offset_name(base)}"
        if self._files.entry(path) is None:
            return
        with closing(self._files.open(path)) as file:
            file.drop_cache(position, length)

    def unlink(self, base: int) -> None:
        """Remove a segment's file for good; fine if it is gone already."""
        path = f"{DIRECTORY}/{offset_name(base)}"
        if self._files.entry(path) is not None:
            self._files.unlink(path)
        self._files.sync_directory(DIRECTORY)

    def close(self) -> None:
        """Release everything; the segment ahead, which is empty, is removed."""
        for segment in self._unflushed:
            segment.file.close()
        self._unflushed.clear()
        self.active = None
        if self.ahead is not None:
            base, self.ahead = self.ahead.base, None
            self.unlink(base)

    def _open(self, base: int) -> OpenSegment:
        file = self._files.open(f"{DIRECTORY}/{offset_name(base)}", writable=True)
        return OpenSegment(base, file)
