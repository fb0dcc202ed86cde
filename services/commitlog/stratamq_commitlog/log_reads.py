"""Point and range reads of the log, by the process that writes it.

They run where waiting for a disk blocks no other call: on a worker, one after another, by 1 MiB at
most. They show what is *confirmed*, as pulls do: what is above may be on this broker only, and go
with the next promotion.
"""

import errno
from collections.abc import Iterator

import numpy as np

from stratamq.errors import CorruptRecordError, InvalidRequestError, OffsetOutOfRangeError
from stratamq.files.port import Files
from stratamq.formats.columns import columns_at
from stratamq.formats.frame_check import FrameOutcome, check
from stratamq.formats.frame_heads import LENGTH, heads_of
from stratamq.formats.frame_layout import BLANK, I64, PHYSICAL_OFFSET_POSITION
from stratamq.formats.frame_verify import damage_in
from stratamq.formats.log_damage import Places, examine, mark_off
from stratamq.formats.store_paths import COMMIT_LOG as DIRECTORY
from stratamq.store.segment_reader import SegmentReader, UnreadableError
from stratamq_commitlog.log_state import LogOffsets

_PIECE_BYTES = 1 << 20
_FIRST_BYTES = 16 << 10
"""Most frames are no larger, and cost one call."""
_NO_PLACES: Places = np.empty(0, np.int64)


class LogReads:
    """`offsets` are the engine's, and move under it.

    `frame_at`, the pieces of `range` and `let_go` belong to one thread that may wait for the disk,
    everything else to the engine's.
    """

    def __init__(self, files: Files, segment_bytes: int, offsets: LogOffsets) -> None:
        self._reader = SegmentReader(files, DIRECTORY, segment_bytes)
        self._release_below = 0
        """0: nothing."""
        self._tail = SegmentReader(files, DIRECTORY, segment_bytes)
        self._segment_bytes = segment_bytes
        self._offsets = offsets

    def frame_at(self, physical_offset: int) -> bytes:
        """The frame that begins there, verified; all of it if the record has a checksum.

        Raises OffsetOutOfRangeError; InvalidRequestError if no frame begins there;
        CorruptRecordError if one does and is damaged; UnreadableError.
        """
        end = self._offsets.confirmed
        if not self._offsets.minimum <= physical_offset < end:
            raise self._out_of_range(str(physical_offset), end)
        limit = min(
            end - physical_offset,
            self._segment_bytes - physical_offset % self._segment_bytes,
        )
        window: memoryview | bytes = self._readable(physical_offset, min(limit, _FIRST_BYTES))
        if len(window) < BLANK.size <= limit:
            window = self._window(physical_offset, BLANK.size)
        if len(window) >= BLANK.size:
            size, _ = BLANK.unpack_from(window)
            if len(window) < size <= limit:
                window = self._window(physical_offset, size)
                if len(window) < size:
                    raise self._damaged(physical_offset, "the file ends within it", "length")
        outcome, size = check(window, 0, limit=len(window))
        if outcome is FrameOutcome.GOOD:
            frame = bytes(window[:size])
            if I64.unpack_from(frame, PHYSICAL_OFFSET_POSITION)[0] == physical_offset:
                reason = damage_in(frame, sealed=physical_offset >= self._offsets.sealed_from)
                if not reason:
                    return frame
                raise self._damaged(physical_offset, "it does not match its checksum", reason)
        if outcome is FrameOutcome.BODY_CRC:
            raise self._damaged(physical_offset, "its body does not match its checksum", "body_crc")
        raise InvalidRequestError(f"no message begins at log offset {physical_offset}")

    def range(
        self,
        start: int,
        end: int,
        max_bytes: int,
        *,
        verify: bool = False,
        unconfirmed: bool = False,
    ) -> Iterator[tuple[int, bytes]]:
        """Pieces of at most 1 MiB that never cross a segment. They may end where the confirmed
        part of the log does, with `unconfirmed` at the log's end; `end` 0 means that place.
        OffsetOutOfRangeError.

        `verify`: `start` must be a frame's beginning. The pieces hold whole frames (one that is
        larger than 1 MiB by itself), and blanks without what is behind them, up to the last that
        ends below `end`. CorruptRecordError at the first damaged frame.
        """
        end = self._end_of(start, end, max_bytes, unconfirmed)
        if not verify:
            return self._pieces(start, end)
        return ((offset, data) for offset, data, *_ in self._whole(start, end, verify=True))

    def heads(
        self, start: int, end: int, max_bytes: int, *, unconfirmed: bool = False
    ) -> Iterator[tuple[int, bytes, bytes]]:
        """The same pieces of whole frames as heads, each with the frames' packed lengths; of a
        blank the length alone. CorruptRecordError at the first that is no frame."""
        end = self._end_of(start, end, max_bytes, unconfirmed)
        return self._heads(start, end)

    def read_back(self, offset: int, size: int) -> bytes:
        """Read exactly these bytes, which were written a moment ago, from the page cache. Raises
        OSError: the caller, which saves state, retries."""
        try:
            return self._tail.read(offset, size)
        except UnreadableError as error:
            raise OSError(errno.EIO, error.message) from error

    def release_below(self, offset: int) -> None:
        """Segments below `offset` have left the log: the next `let_go` closes them."""
        self._tail.release_below(offset)
        self._release_below = offset

    def let_go(self) -> None:
        """Close segments that have left the log, so that their space comes back. Each read
        begins with it."""
        offset, self._release_below = self._release_below, 0
        if offset:
            self._reader.release_below(offset)

    def close(self) -> None:
        """No read may be under way."""
        self._tail.close()
        self._reader.close()

    def _window(self, offset: int, limit: int) -> memoryview:
        self.let_go()
        return self._reader.window(offset, limit)

    def _readable(self, offset: int, limit: int) -> bytes:
        self.let_go()
        return self._reader.readable(offset, limit)

    def _read(self, offset: int, size: int) -> bytes:
        self.let_go()
        return self._reader.read(offset, size)

    def _pieces(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        while start < end:
            segment_end = (start // self._segment_bytes + 1) * self._segment_bytes
            piece = self._readable(start, min(end, segment_end, start + _PIECE_BYTES) - start)
            yield start, piece
            start += len(piece)

    def _damaged(self, offset: int, what: str, reason: str) -> CorruptRecordError:
        return CorruptRecordError(f"the message at {offset} is damaged: {what}", offset, reason)

    def _end_of(self, start: int, end: int, max_bytes: int, unconfirmed: bool) -> int:
        offsets = self._offsets
        limit = offsets.appended if unconfirmed else offsets.confirmed
        end = limit if end == 0 else end
        if not offsets.minimum <= start <= end <= limit:
            raise self._out_of_range(f"[{start}, {end})", limit)
        return min(end, start + max_bytes) if max_bytes > 0 else end

    def _heads(self, start: int, end: int) -> Iterator[tuple[int, bytes, bytes]]:
        for offset, data, starts, sizes in self._whole(start, end, verify=False):
            raw = np.frombuffer(data, np.uint8)
            heads = heads_of(raw, columns_at(raw, starts, sizes[: len(starts)], offset))
            yield offset, heads, sizes.astype(LENGTH).tobytes()

    def _whole(
        self, start: int, end: int, *, verify: bool
    ) -> Iterator[tuple[int, bytes, Places, Places]]:
        """Pieces of whole frames, and blanks. Without `verify` each with the places and sizes of
        its frames; a blank has a size, and no frame."""
        wanted = _PIECE_BYTES
        while start < end:
            segment_end = (start // self._segment_bytes + 1) * self._segment_bytes
            size = min(end, segment_end, start + wanted) - start
            data = self._readable(start, size)
            starts = sizes = _NO_PLACES
            if verify:
                looked = examine(data, start, segment_end, self._offsets.sealed_from)
            else:
                looked, starts, sizes = mark_off(data, start, segment_end)
            if not looked.good and len(data) < size:
                self._read(start + len(data), 1)  # the frame there is refused
            wanted = _PIECE_BYTES
            if looked.good:
                yield start, data[: looked.good], starts, sizes
            start += looked.good
            if looked.reason:
                raise self._damaged(start, "it does not match its checksum", looked.reason)
            if looked.at_end:
                blank = data[looked.good : looked.good + BLANK.size]
                yield start, blank, _NO_PLACES, np.array([segment_end - start])
                start = segment_end
            elif not looked.good:
                if start + looked.needs > end:
                    return
                wanted = looked.needs

    def _out_of_range(self, what: str, end: int) -> OffsetOutOfRangeError:
        minimum, appended = self._offsets.minimum, self._offsets.appended
        sentence = f"the log holds [{minimum}, {end}), not {what}"
        if end < appended:
            sentence += f"; what it has up to {appended} is not confirmed yet, and is not shown"
        return OffsetOutOfRangeError(sentence, minimum, end)
