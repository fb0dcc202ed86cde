"""The log read in pieces that are small enough for the event loop, as columns."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import OffsetOutOfRangeError
from stratamq.formats.dispatch import DispatchColumns, dispatch_columns
from stratamq.formats.frame import Frame, decode
from stratamq.formats.frame_layout import BLANK, BORN_HOST_POSITION, I32, I64, SYS_FLAG_POSITION
from stratamq.formats.properties import TAGS
from stratamq.formats.sysflag import host_bytes
from stratamq.store.frame_windows import next_frames
from stratamq.store.segment_reader import SegmentReader, UnreadableError

PIECE_MEMBERS = 1024
"""Frames per step: about 1.5 ms with one key each."""
_STORE_TIME_REACH = 20 + I64.size


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole frames of [start, end), and perhaps a blank at its end."""

    start: int
    end: int
    columns: DispatchColumns


class LogPieces:
    """Reads ranges of the log that are known to be there. One thread at a time.

    CorruptRecordError for what is no frame, OffsetOutOfRangeError for what was deleted meanwhile,
    UnreadableError for what the device refuses.
    """

    def __init__(self, reader: SegmentReader, segment_bytes: int) -> None:
        self._reader = reader
        self._segment_bytes = segment_bytes

    def read(
        self, start: int, end: int, lengths: NDArray[np.uint32] | None = None
    ) -> Iterator[Piece]:
        """`start` and `end` are frame boundaries; `lengths` (within one segment) mark them off."""
        done = 0
        while start < end:
            stop = min(end, start - start % self._segment_bytes + self._segment_bytes)
            if lengths is None:
                window, some = next_frames(self._reader.window, start, stop, PIECE_MEMBERS)
            else:
                some = lengths[done : done + PIECE_MEMBERS]
                done += len(some)
                window = self._reader.window(start, int(some.sum(dtype=np.int64)))
            piece_end = start + int(some.sum(dtype=np.int64))
            columns = dispatch_columns(window[: piece_end - start], start, some)
            yield Piece(start, piece_end, columns)
            start = piece_end

    def store_time(self, offset: int) -> int | None:
        """Of the message at `offset`; None when the log does not have it, or it cannot be read."""
        try:
            head = self._reader.read(offset, BORN_HOST_POSITION + _STORE_TIME_REACH)
        except (OffsetOutOfRangeError, UnreadableError):
            return None
        if len(head) < BORN_HOST_POSITION + _STORE_TIME_REACH:
            return None
        (flags,) = I32.unpack_from(head, SYS_FLAG_POSITION)
        born_bytes, _ = host_bytes(flags)
        return I64.unpack_from(head, BORN_HOST_POSITION + born_bytes)[0]

    def tags(self, offset: int) -> tuple[str, str] | None:
        """(topic, TAGS) of the message at `offset`, None without tags. It is known to be whole."""
        head = self._reader.window(offset, BLANK.size)
        size, _ = BLANK.unpack_from(head)
        frame = decode(self._reader.window(offset, size), 0, verify_body=False)
        tags = frame.properties.get(TAGS) if isinstance(frame, Frame) else None
        return (frame.topic, tags) if isinstance(frame, Frame) and tags else None
