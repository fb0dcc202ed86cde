"""The frames behind queue units, gathered with as few copies as there can be, and checked.

A unit that points at anything but the frame of its message (a damaged queue file), and a frame that
is not as it was written (`formats.frame_verify`), raise DamagedFrameError: a consumer never gets
wrong bytes. Frames that lie side by side in the log come as one piece.
"""

from collections import deque
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import CorruptionError, OffsetOutOfRangeError
from stratamq.files.segment_reader import SegmentReader, UnreadableError
from stratamq.formats import frame_layout as layout
from stratamq.formats.frame_layout import I16, I32, MAGIC_V1, MAGIC_V2
from stratamq.formats.frame_verify import NOWHERE, first_damaged
from stratamq.formats.properties import find_property
from stratamq.formats.sysflag import host_bytes

Piece = memoryview | bytes

_HEAD = np.dtype(
    {
        "names": ["size", "magic", "queue_offset", "physical_offset"],
        "formats": [">i4", ">u4", ">i8", ">i8"],
        "offsets": [
            layout.TOTAL_SIZE_POSITION,
            layout.MAGIC_POSITION,
            layout.QUEUE_OFFSET_POSITION,
            layout.PHYSICAL_OFFSET_POSITION,
        ],
        "itemsize": layout.PHYSICAL_OFFSET_POSITION + 8,
    }
)
_STORE_TIME_SPAN = layout.BORN_HOST_POSITION + 20 + 8 - layout.SYS_FLAG_POSITION
"""From SYSFLAG to the end of STORETIMESTAMP behind an IPv6 host; every frame is longer."""
_COLD_GAP_BYTES = 16 << 10
"""Reading over a gap of this size costs less than another call."""
_HOT_GAP_BYTES = 64 << 10
"""To copy so much of the page cache costs as much as one more call and its checks."""


_NOT_THERE = "where its frame is not"


class DamagedFrameError(CorruptionError):
    """The frame of the unit `queue_offset` cannot be given; `position` is its log offset."""

    def __init__(self, where: str, queue_offset: int, position: int, why: str) -> None:
        sentence = f"{where}: unit {queue_offset} points at log offset {position}, {why}"
        super().__init__(sentence, where, position)
        self.queue_offset = queue_offset


class LogBytes(Protocol):
    """Where bytes of the log come from."""

    gap_bytes: int
    """Frames that lie no further apart are read by one call."""
    sealed_from: int
    """From this log offset on every record has a checksum of its own."""

    def window(self, offset: int, limit: int) -> memoryview | bytes:
        """`limit` bytes from `offset`, fewer at the end of the segment.

        Raises OffsetOutOfRangeError when no segment holds `offset`, UnreadableError.
        """


class HotLog:
    """From the page cache: what was written lately is in memory anyway."""

    gap_bytes = _HOT_GAP_BYTES

    def __init__(self, segments: SegmentReader, sealed_from: int = NOWHERE) -> None:
        self._segments = segments
        self.sealed_from = sealed_from

    def window(self, offset: int, limit: int) -> memoryview:
        return self._segments.window(offset, limit)


class ColdLog:
    """Of old messages next to nothing is read that nobody asked for."""

    gap_bytes = _COLD_GAP_BYTES

    def __init__(
        self, segments: SegmentReader, segment_bytes: int, sealed_from: int = NOWHERE
    ) -> None:
        self._segments = segments
        self.sealed_from = sealed_from
        self._segment_bytes = segment_bytes

    def window(self, offset: int, limit: int) -> bytes:
        left = self._segment_bytes - offset % self._segment_bytes
        return self._segments.read(offset, min(limit, left))


def read_frames(
    log: LogBytes,
    physical: NDArray[np.int64],
    sizes: NDArray[np.int64],
    queue_offsets: NDArray[np.int64],
    segment_bytes: int,
    where: str,
    *,
    joined: bool = True,
) -> list[Piece]:
    """The frames of these units, in their order; neighbours as one piece if `joined`.

    Raises DamagedFrameError for the first that cannot be given, and OffsetOutOfRangeError when a
    segment is gone; `minimum` of it is that segment's end.
    """

    def damaged(row: int, why: str) -> DamagedFrameError:
        return DamagedFrameError(where, int(queue_offsets[row]), int(physical[row]), why)

    if int(physical.min()) < 0:
        raise damaged(int((physical < 0).argmax()), "before the log begins")
    pieces: list[Piece] = []
    spans = deque(_spans(physical, sizes, segment_bytes, log.gap_bytes))
    while spans:
        first, stop = spans.popleft()
        base = int(physical[first])
        length = int(physical[stop - 1] + sizes[stop - 1]) - base
        try:
            window = log.window(base, length)
        except OffsetOutOfRangeError as error:
            if base >= error.maximum:
                raise damaged(first, "behind the log's end") from error
            end = base - base % segment_bytes + segment_bytes
            raise OffsetOutOfRangeError(error.message, end, end) from error
        except UnreadableError as error:
            if stop - first == 1:
                raise damaged(first, f"which cannot be read: {error}") from error
            # Only the frame that lies there is lost: each by itself.
            spans.extendleft((row, row + 1) for row in reversed(range(first, stop)))
            continue
        starts = physical[first:stop] - base
        fault = _first_fault(
            window, starts, sizes[first:stop], queue_offsets[first:stop], base, log.sealed_from
        )
        if fault is not None:
            raise damaged(first + fault[0], fault[1])
        pieces += _pieces(window, starts, starts + sizes[first:stop], joined)
    return pieces


def _spans(
    physical: NDArray[np.int64], sizes: NDArray[np.int64], segment_bytes: int, gap_bytes: int
) -> list[tuple[int, int]]:
    """Ranges of units that are read together: of one segment, without large gaps."""
    if len(physical) == 1:
        return [(0, 1)]
    gap = physical[1:] - (physical[:-1] + sizes[:-1])
    segment = physical // segment_bytes
    apart = (segment[1:] != segment[:-1]) | (gap < 0) | (gap > gap_bytes)
    cuts = (np.flatnonzero(apart) + 1).tolist()
    return list(zip([0, *cuts], [*cuts, len(physical)], strict=True))


def _first_fault(
    window: Piece,
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    queue_offsets: NDArray[np.int64],
    base: int,
    sealed_from: int,
) -> tuple[int, str] | None:
    """The first unit whose frame is not there or not as it was written, and a clause that says so.

    Every frame says the same size and queue offset as its unit, and lies where it says.
    """
    fits = (sizes >= layout.MIN_FRAME_BYTES) & (starts + sizes <= len(window))
    count = len(fits) if fits.all() else int(np.argmin(fits))
    fault = (count, _NOT_THERE) if count < len(fits) else None
    if not count:
        return fault
    starts, sizes = starts[:count], sizes[:count]
    # A head at every byte of the window, of which only those of the frames are looked at.
    everywhere = np.ndarray(len(window) - _HEAD.itemsize, _HEAD, window, strides=(1,))
    heads = everywhere[starts]
    magic = heads["magic"]
    good = (heads["size"] == sizes) & ((magic == MAGIC_V1) | (magic == MAGIC_V2))
    good &= (heads["queue_offset"] == queue_offsets[:count]) & (
        heads["physical_offset"] == starts + base
    )
    if not good.all():
        count = int(np.argmin(good))
        fault = (count, _NOT_THERE)
    damaged = first_damaged(window, starts[:count], sizes[:count], sealed_from - base)
    if damaged is not None:
        return damaged[0], f"where its frame is damaged ({damaged[1]})"
    return fault


def _pieces(
    window: Piece, starts: NDArray[np.int64], ends: NDArray[np.int64], joined: bool
) -> list[Piece]:
    if joined and len(starts) > 1:
        cuts = np.flatnonzero(starts[1:] != ends[:-1]) + 1
        starts = starts[np.concatenate(([0], cuts))]
        ends = ends[np.append(cuts, len(ends)) - 1]
    if len(starts) == 1 and ends[0] == len(window):
        return [window]
    view = memoryview(window)
    return [view[begin:end] for begin, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def store_timestamp(log: LogBytes, physical_offset: int) -> int:
    """STORETIMESTAMP of the frame at an offset. Raises OffsetOutOfRangeError, CorruptionError."""
    data = log.window(physical_offset + layout.SYS_FLAG_POSITION, _STORE_TIME_SPAN)
    if len(data) < _STORE_TIME_SPAN:
        raise CorruptionError(f"no frame at log offset {physical_offset}", position=physical_offset)
    (sys_flag,) = I32.unpack_from(data)
    at = layout.BORN_HOST_POSITION - layout.SYS_FLAG_POSITION + host_bytes(sys_flag)[0]
    return int.from_bytes(data[at : at + 8], "big", signed=True)


def tags_of(frame: Piece) -> bytes | None:
    """The TAGS property of a whole frame, as bytes."""
    (magic,) = layout.BLANK.unpack_from(frame)[1:]
    (sys_flag,) = I32.unpack_from(frame, layout.SYS_FLAG_POSITION)
    at = layout.FIXED_BYTES_WITHOUT_HOSTS + sum(host_bytes(sys_flag))
    (body_length,) = I32.unpack_from(frame, at - I32.size)
    at += max(body_length, 0)
    if magic == MAGIC_V1:
        at += layout.I8.size + frame[at]
    else:
        at += I16.size + I16.unpack_from(frame, at)[0]
    (length,) = I16.unpack_from(frame, at)
    at += I16.size
    return find_property(bytes(frame[at : at + max(length, 0)]), b"TAGS")
