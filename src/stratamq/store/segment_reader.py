"""A follower's view of another process's log segments: read-only, by `pread`, a few descriptors.

Nothing is mapped: a page of a mapping that the device cannot read, or that was truncated, kills the
process that touches it; `pread` returns an error for these bytes only. The owner may unlink a
segment at any time: open segments stay readable; others raise OffsetOutOfRangeError.
"""

import contextlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable

from stratamq.errors import CorruptionError, OffsetOutOfRangeError
from stratamq.files.port import EntryKind, File, Files
from stratamq.formats.file_names import offset_name, parse_offset_name

_PAGE_BYTES = 4096


class UnreadableError(CorruptionError):
    """The device refuses bytes of the log; others may be read. At `position` of `file`."""


class SegmentReader:
    """Reads segments of `segment_bytes` in `directory`. One thread at a time.

    It holds at most `maximum_files` descriptors.
    """

    def __init__(
        self, files: Files, directory: str, segment_bytes: int, maximum_files: int = 4
    ) -> None:
        self._files = files
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._maximum_files = max(1, maximum_files)
        self._offsets: list[int] = []
        """Known segments in order. May name one that has been unlinked since."""
        self._open: OrderedDict[int, File] = OrderedDict()
        self._windowed: tuple[int, int, File] | None = None
        """[start, end) of the segment of the last window, and its file, one of `_open`: pulls ask
        for many small windows of one segment."""

    def window(self, offset: int, limit: int) -> memoryview:
        """`limit` bytes from `offset`, fewer at the end of its segment; read-only.

        Raises OffsetOutOfRangeError when no segment holds `offset`, UnreadableError.
        """
        windowed = self._windowed
        if windowed is None or not windowed[0] <= offset < windowed[1]:
            start = self._segment_of(offset)
            windowed = start, start + self._segment_bytes, self._file(start, offset)
            self._windowed = windowed
        start, end, file = windowed
        try:
            data = file.read(offset - start, max(0, min(limit, end - offset)))
        except OSError as error:
            raise _unreadable(file, offset - start, limit, error) from error
        if not data and limit > 0:
            raise self._cut_short(start, offset)
        return memoryview(data)

    def readable(self, offset: int, limit: int) -> bytes:
        """Like `window`, up to the first page that the device cannot read, so that the messages
        before it can be read.

        Raises OffsetOutOfRangeError if no segment holds `offset`, UnreadableError if the byte there
        cannot be read.
        """
        limit = min(limit, self._segment_bytes - offset % self._segment_bytes)
        with contextlib.suppress(UnreadableError):
            return self.read(offset, limit)
        data = bytearray()
        while len(data) < limit:
            at = offset + len(data)
            length = min(_PAGE_BYTES - at % _PAGE_BYTES, limit - len(data))
            try:
                data += self.read(at, length)
            except UnreadableError:
                if data:
                    break
                raise
        return bytes(data)

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset`, across segments; fewer where the log ends.

        Raises OffsetOutOfRangeError when no segment holds `offset`, UnreadableError.
        """
        parts: list[bytes] = []
        while length > 0:
            try:
                start = self._segment_of(offset)
                data = self._read(start, offset, length)
            except OffsetOutOfRangeError:
                if parts:
                    break
                raise
            if not data:
                if parts:
                    break
                raise self._cut_short(start, offset)
            parts.append(data)
            offset += len(data)
            length -= len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def drop_cache(self, offset: int, length: int) -> None:
        """Advise the kernel that a range just read will not be read again soon."""
        start = offset - offset % self._segment_bytes
        file = self._open.get(start)
        if file is not None:
            file.drop_cache(offset - start, length)

    def bounds(self) -> tuple[int, int]:
        """(minimum, end) of the segments that exist now, whole segments; (0, 0) if none."""
        self._discover()
        if not self._offsets:
            return 0, 0
        return self._offsets[0], self._offsets[-1] + self._segment_bytes

    def release_below(self, offset: int) -> None:
        """Let go of every segment that ends at or below `offset`."""
        self._release(lambda start: start + self._segment_bytes <= offset)

    def release_from(self, offset: int) -> None:
        """Let go of every segment that ends above `offset`: the log was cut there.

        The owner may unlink such a segment and make a new file of the same name; the old one would
        show bytes of a history that was cut.
        """
        self._release(lambda start: start + self._segment_bytes > offset)

    def close(self) -> None:
        """Let go of everything. The reader may be used again."""
        self._release(lambda start: True)

    def _release(self, gone: Callable[[int], bool]) -> None:
        self._offsets = [start for start in self._offsets if not gone(start)]
        self._windowed = None
        for start in [start for start in self._open if gone(start)]:
            self._open.pop(start).close()

    def _segment_of(self, offset: int) -> int:
        """The start of the segment that holds `offset`, looking at the directory if needed."""
        for attempt in (0, 1):
            index = bisect_right(self._offsets, offset) - 1
            if index >= 0 and offset < self._offsets[index] + self._segment_bytes:
                return self._offsets[index]
            if attempt == 0 and not self._is_followed(offset):
                self._discover()
        raise self._out_of_range(offset)

    def _is_followed(self, offset: int) -> bool:
        """Whether the segment behind the last known one is there and holds `offset`: a log that
        grows is followed without listing all of it for each segment."""
        if not self._offsets:
            return False
        start = self._offsets[-1] + self._segment_bytes
        if not start <= offset < start + self._segment_bytes:
            return False
        entry = self._files.entry(f"{self._directory}/{offset_name(start)}")
        if entry is None or entry.kind is not EntryKind.FILE or not entry.size:
            return False
        self._offsets.append(start)
        return True

    def _discover(self) -> None:
        found: list[int] = []
        for entry in self._files.list(self._directory):
            start = parse_offset_name(entry.name)
            if start is not None and entry.kind is EntryKind.FILE and entry.size:
                found.append(start)
        self._offsets = found

    def _read(self, start: int, offset: int, length: int) -> bytes:
        file = self._file(start, offset)
        try:
            return file.read(offset - start, length)
        except OSError as error:
            raise _unreadable(file, offset - start, length, error) from error

    def _cut_short(self, start: int, offset: int) -> UnreadableError:
        path = f"{self._directory}/{offset_name(start)}"
        return UnreadableError(
            f"{path}: the file ends before {offset - start}, and should have {self._segment_bytes} "
            "bytes. Restore the segment from a replica or a backup",
            path,
            offset - start,
        )

    def _file(self, start: int, offset: int) -> File:
        file = self._open.get(start)
        if file is None:
            try:
                file = self._files.open(f"{self._directory}/{offset_name(start)}")
            except FileNotFoundError:
                self._discover()
                raise self._out_of_range(offset) from None
            self._open[start] = file
            if len(self._open) > self._maximum_files:
                self._windowed = None
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(start)
        return file

    def _out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        minimum = self._offsets[0] if self._offsets else 0
        end = self._offsets[-1] + self._segment_bytes if self._offsets else 0
        return OffsetOutOfRangeError(
            f"{self._directory} holds [{minimum}, {end}), not {offset}", minimum, end
        )


def _unreadable(file: File, position: int, length: int, error: OSError) -> UnreadableError:
    return UnreadableError(
        f"{file.path}: {length} bytes from {position} on cannot be read "
        f"({error.strerror or error}). Restore the segment from a replica or a backup",
        file.path,
        position,
    )
