"""A follower's view of another process's log segments: read-only, few mappings, no descriptors.

Hot bytes come from shared mappings, cold ones by `pread`, so that a catch-up or a scrub does not
push the hot tail out of the cache. The owner may unlink a segment at any time: what is mapped here
goes on working; what is not answers OffsetOutOfRangeError.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable

from stratamq.errors import OffsetOutOfRangeError
from stratamq.files.port import File, Files, Kind
from stratamq.formats.file_names import offset_name, parse_offset_name


class SegmentReader:
    """Reads segments of `segment_bytes` in `directory`. One thread at a time.

    It holds at most `maximum_maps` mappings; a window that a caller keeps stays valid after its
    mapping has left the list, until the caller lets go.
    """

    def __init__(
        self, files: Files, directory: str, segment_bytes: int, maximum_maps: int = 4
    ) -> None:
        self._files = files
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._maximum_maps = max(1, maximum_maps)
        self._offsets: list[int] = []
        """Known segments in order. May name one that has been unlinked since."""
        self._maps: OrderedDict[int, memoryview] = OrderedDict()
        self._cold: tuple[int, File] | None = None

    def window(self, offset: int, limit: int | None = None) -> memoryview:
        """From `offset` to the end of its segment, at most `limit` bytes, without copying.

        Raises OffsetOutOfRangeError when no segment holds `offset`.
        """
        start = self._segment_of(offset)
        view = self._maps.get(start)
        if view is None:
            view = self._map(start, offset)
        self._maps.move_to_end(start)
        position = offset - start
        if position >= len(view):
            raise self._out_of_range(offset)
        end = len(view) if limit is None else min(len(view), position + limit)
        return view[position:end]

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` by `pread`, across segments; fewer where the log ends.

        Raises OffsetOutOfRangeError when no segment holds `offset`.
        """
        parts: list[bytes] = []
        while length > 0:
            try:
                start = self._segment_of(offset)
                data = self._open_cold(start, offset).read(offset - start, length)
            except OffsetOutOfRangeError:
                if parts:
                    break
                raise
            if not data:
                if parts:
                    break
                raise self._out_of_range(offset)
            parts.append(data)
            offset += len(data)
            length -= len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def drop_cache(self, offset: int, length: int) -> None:
        """Advise the kernel that a range just read by `read` will not be read again soon."""
        if self._cold is not None and self._cold[0] <= offset < self._cold[0] + self._segment_bytes:
            start, file = self._cold
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

        The owner may unlink such a segment and make a new file of the same name; a mapping of the
        old one would show bytes of a history that no longer exists.
        """
        self._release(lambda start: start + self._segment_bytes > offset)

    def close(self) -> None:
        """Let go of everything. The reader may be used again."""
        self._release(lambda start: True)

    def _release(self, gone: Callable[[int], bool]) -> None:
        self._offsets = [start for start in self._offsets if not gone(start)]
        for start in [start for start in self._maps if gone(start)]:
            del self._maps[start]
        if self._cold is not None and gone(self._cold[0]):
            self._cold[1].close()
            self._cold = None

    def _segment_of(self, offset: int) -> int:
        """The start of the segment that holds `offset`, looking at the directory if needed."""
        for attempt in (0, 1):
            index = bisect_right(self._offsets, offset) - 1
            if index >= 0 and offset < self._offsets[index] + self._segment_bytes:
                return self._offsets[index]
            if attempt == 0:
                self._discover()
        raise self._out_of_range(offset)

    def _discover(self) -> None:
        found: list[int] = []
        for entry in self._files.list(self._directory):
            start = parse_offset_name(entry.name)
            if start is not None and entry.kind is Kind.FILE and entry.size:
                found.append(start)
        self._offsets = found

    def _map(self, start: int, offset: int) -> memoryview:
        file = self._open(start, offset)
        try:
            view = file.view()
        finally:
            file.close()
        self._maps[start] = view
        while len(self._maps) > self._maximum_maps:
            self._maps.popitem(last=False)
        return view

    def _open_cold(self, start: int, offset: int) -> File:
        if self._cold is None or self._cold[0] != start:
            file = self._open(start, offset)
            if self._cold is not None:
                self._cold[1].close()
            self._cold = (start, file)
        return self._cold[1]

    def _open(self, start: int, offset: int) -> File:
        try:
            return self._files.open(f"{self._directory}/{offset_name(start)}")
        except FileNotFoundError:
            self._discover()
            raise self._out_of_range(offset) from None

    def _out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        minimum = self._offsets[0] if self._offsets else 0
        end = self._offsets[-1] + self._segment_bytes if self._offsets else 0
        return OffsetOutOfRangeError(
            f"{self._directory} holds [{minimum}, {end}), not {offset}", minimum, end
        )
