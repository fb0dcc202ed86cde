"""The frames behind queue units, gathered with as few copies as there can be, and checked.

A unit that points at anything but the frame of its message (a damaged queue file), and a frame that
is not as it was written (`formats.frame_verify`), raise DamagedFrameError. What one consumer's pull
has verified is not verified again for the next one's (`verified_reads`). Frames that lie side by
side in the log come as one piece.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import CorruptionError, OffsetOutOfRangeError
from stratamq.formats import frame_layout as layout
from stratamq.formats import kernel
from stratamq.formats.frame_layout import I16, I32, MAGIC_V1, MAGIC_V2
from stratamq.formats.frame_verify import NOWHERE, damage_in, first_damaged
from stratamq.formats.light_queues import LIGHT_QUEUE_PREFIX, as_in_light_queue
from stratamq.formats.properties import find_property
from stratamq.formats.queue_unit import QueueUnit
from stratamq.formats.store_paths import CONSUME_QUEUES
from stratamq.formats.sysflag import host_bytes
from stratamq.store.segment_reader import SegmentReader, UnreadableError
from stratamq_dispatcher.verified_reads import VerifiedReads

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
_HEAD_SPAN = layout.SYS_FLAG_POSITION + _STORE_TIME_SPAN
_COLD_GAP_BYTES = 16 << 10
"""Reading over a gap of this size costs less than another call."""
_HOT_GAP_BYTES = 4 << 10
"""To copy so much of the page cache costs as much as one more call."""

_LARGE_BYTES = 8 << 20
"""So large frames are read by themselves, and only once their head agrees."""
CHECKED_BYTES = 16 << 10
"""For a store time only the head of larger frames is read: their bodies cost more than it is
worth."""
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
    verified: VerifiedReads | None
    """What need not be verified again; None: everything is."""

    def window(self, offset: int, limit: int) -> memoryview | bytes:
        """`limit` bytes from `offset`, fewer at the end of the segment.

        Raises OffsetOutOfRangeError when no segment holds `offset`, UnreadableError.
        """


class HotLog:
    """From the page cache: what was written lately is in memory anyway."""

    gap_bytes = _HOT_GAP_BYTES

    def __init__(
        self,
        segments: SegmentReader,
        sealed_from: int = NOWHERE,
        verified: VerifiedReads | None = None,
    ) -> None:
        self.window = segments.window
        self.sealed_from = sealed_from
        self.verified = verified


class ColdLog:
    """Reads next to nothing of old messages that was not asked for."""

    gap_bytes = _COLD_GAP_BYTES
    verified = None
    """The bytes may come from the disk each time."""

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
    spans = _spans(physical, sizes, segment_bytes, log.gap_bytes)
    gathered = _gather(log, physical, sizes, spans)
    window, starts = gathered.data, gathered.starts
    count = len(starts)
    if count:
        indexes = None if is_of_light_queue(where) else queue_offsets[:count]
        frames = _Frames(window, starts, sizes[:count], physical[:count])
        verified = None if indexes is None else log.verified
        known = 0 if verified is None else verified.count(where, indexes, physical)
        fault = _first_fault(frames, indexes, log.sealed_from, known)
        if fault is not None:
            raise damaged(*fault)
        if verified is not None:
            verified.add(where, indexes, physical[:count])
    error = gathered.error
    if isinstance(error, str):
        raise damaged(count, error)
    if error is not None and int(physical[count]) >= error.maximum:
        raise damaged(count, "behind the log's end") from error
    if error is not None:
        end = int(physical[count]) // segment_bytes * segment_bytes + segment_bytes
        raise OffsetOutOfRangeError(error.message, end, end) from error
    return _pieces(window, starts, starts + sizes, joined)


def is_of_light_queue(where: str) -> bool:
    """The directory of a light queue: frames there have their places in queues of their topics."""
    return where.startswith(f"{CONSUME_QUEUES}/{LIGHT_QUEUE_PREFIX}")


def light_frames(
    frames: Sequence[Piece],
    topic: str,
    physical: NDArray[np.int64],
    queue_offsets: Sequence[int],
    where: str,
) -> list[Piece]:
    """Frames of a light queue with their places there. DamagedFrameError for one that does not
    name this place."""
    shown: list[Piece] = []
    for frame, place, offset in zip(frames, physical.tolist(), queue_offsets, strict=True):
        found = as_in_light_queue(bytes(frame), topic, int(offset))
        if found is None:
            raise DamagedFrameError(where, int(offset), place, _NOT_THERE)
        shown.append(found)
    return shown


@dataclass(slots=True)
class _Gathered:
    """Frames that lay in several places, one behind the other. `error`: why there are no more."""

    data: Piece
    starts: NDArray[np.int64]
    error: OffsetOutOfRangeError | str | None = None
    """Why the first missing frame is missing: its segment is gone, or what is wrong with it."""


def _gather(
    log: LogBytes,
    physical: NDArray[np.int64],
    sizes: NDArray[np.int64],
    spans: list[tuple[int, int]],
) -> _Gathered:
    """What these spans hold, up to the first frame that cannot be read."""
    windows: list[Piece] = []
    shifts: list[int] = []
    counts: list[int] = []
    position = 0
    error: OffsetOutOfRangeError | str | None = None
    ends = physical + sizes
    # Numbers of Python: to take each from its array would cost as much as to read the bytes.
    places, sizes_of, ends_of = physical.tolist(), sizes.tolist(), ends.tolist()
    waiting = deque(spans)
    while waiting and error is None:
        first, stop = waiting.popleft()
        base = places[first]
        length = ends_of[stop - 1] - base
        try:
            if sizes_of[first] > _LARGE_BYTES and not _is_so_large(log, base, sizes_of[first]):
                window: Piece = b""
            else:
                window = log.window(base, length)
        except UnreadableError as unreadable:
            if stop - first > 1:
                # Only the frame at that place is lost: each by itself.
                waiting.extendleft((row, row + 1) for row in reversed(range(first, stop)))
                continue
            error = f"which cannot be read: {unreadable}"
            break
        except OffsetOutOfRangeError as gone:
            error = gone
            break
        if len(window) < length:
            error = _NOT_THERE
            stop = first + int((ends[first:stop] <= base + len(window)).argmin())
        windows.append(window)
        shifts.append(position - base)
        counts.append(stop - first)
        position += len(window)
    starts = physical[: sum(counts)] + np.repeat(np.array(shifts, np.int64), counts)
    return _Gathered(windows[0] if len(windows) == 1 else b"".join(windows), starts, error)


def _is_so_large(log: LogBytes, offset: int, size: int) -> bool:
    """Whether a frame of this size begins there: a damaged unit may say anything."""
    head = log.window(offset, layout.I32.size)
    return int.from_bytes(head, "big") == size


def _spans(
    physical: NDArray[np.int64], sizes: NDArray[np.int64], segment_bytes: int, gap_bytes: int
) -> list[tuple[int, int]]:
    """Ranges of units that are read together: of one segment, without large gaps or frames."""
    if len(physical) == 1:
        return [(0, 1)]
    gap = physical[1:] - (physical[:-1] + sizes[:-1])
    segment = physical // segment_bytes
    apart = (segment[1:] != segment[:-1]) | (gap < 0) | (gap > gap_bytes)
    large = sizes > _LARGE_BYTES
    apart |= large[1:] | large[:-1]
    cuts = (np.flatnonzero(apart) + 1).tolist()
    return list(zip([0, *cuts], [*cuts, len(physical)], strict=True))


@dataclass(frozen=True, slots=True)
class _Frames:
    """Frames of `sizes` at `starts` of `window`, as their units say, and at `physical` of the
    log."""

    window: Piece
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    physical: NDArray[np.int64]


def _first_fault(
    frames: _Frames, queue_offsets: NDArray[np.int64] | None, sealed_from: int, known: int
) -> tuple[int, str] | None:
    """The first unit whose frame is not there or not as it was written, and a clause about it.

    The first `known` are not verified again. Without `queue_offsets` the frames stand in other
    queues, and have their places there.
    """
    count = _first_misplaced(frames, queue_offsets)
    if count > known:
        starts, sizes = frames.starts[known:count], frames.sizes[known:count]
        sealed_at = int(starts[0])
        if frames.physical[known] < sealed_from:
            sealed = starts[frames.physical[known:count] >= sealed_from]
            sealed_at = int(sealed.min()) if len(sealed) else NOWHERE
        damaged = first_damaged(frames.window, starts, sizes, sealed_at)
        if damaged is not None:
            return known + damaged[0], f"where its frame is damaged ({damaged[1]})"
    return (count, _NOT_THERE) if count < len(frames.starts) else None


def _first_misplaced(frames: _Frames, queue_offsets: NDArray[np.int64] | None) -> int:
    """The first unit at whose place there is no frame with its size, log offset and queue offset,
    or how many there are."""
    window, starts, sizes = frames.window, frames.starts, frames.sizes
    if kernel.NATIVE is not None:
        indexes = b"" if queue_offsets is None else queue_offsets
        places = starts, sizes, frames.physical
        return int(kernel.NATIVE.first_misplaced(window, *places, indexes))
    fits = (sizes >= layout.MIN_FRAME_BYTES) & (starts + sizes <= len(window))
    count = len(fits) if fits.all() else int(np.argmin(fits))
    if not count:
        return 0
    # A head at every byte of the window, of which only those of the frames are looked at.
    everywhere = np.ndarray(len(window) - _HEAD.itemsize, _HEAD, window, strides=(1,))
    heads = everywhere[starts[:count]]
    magic = heads["magic"]
    good = (heads["size"] == sizes[:count]) & ((magic == MAGIC_V1) | (magic == MAGIC_V2))
    good &= heads["physical_offset"] == frames.physical[:count]
    if queue_offsets is not None:
        good &= heads["queue_offset"] == queue_offsets[:count]
    return count if good.all() else int(np.argmin(good))


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
    return _store_time_in(data, layout.SYS_FLAG_POSITION)


def checked_store_timestamp(log: LogBytes, unit: QueueUnit, queue_offset: int, where: str) -> int:
    """STORETIMESTAMP of the frame that a queue's unit points at, in ms since 1970, not negative.

    The frame has the size, the queue offset and the log offset that the unit names; one of at most
    CHECKED_BYTES is as it was written. Raises OffsetOutOfRangeError, DamagedFrameError, and
    UnreadableError.
    """
    offset, size = unit.physical_offset, unit.size
    whole = layout.MIN_FRAME_BYTES <= size <= CHECKED_BYTES
    wanted = size if whole else _HEAD_SPAN
    data = log.window(offset, wanted)
    why = _NOT_THERE
    if len(data) == wanted:
        total, magic, _, _, _, index, place, _, _ = layout.HEAD.unpack_from(data)
        if is_of_light_queue(where):
            index = queue_offset
        if magic in (MAGIC_V1, MAGIC_V2) and (total, index, place) == (size, queue_offset, offset):
            damage = damage_in(data, sealed=offset >= log.sealed_from) if whole else ""
            store_ms = _store_time_in(data, 0)
            if not damage and store_ms >= 0:
                return store_ms
            why = f"where its frame is damaged ({damage or 'store time'})"
    raise DamagedFrameError(where, queue_offset, offset, why)


def _store_time_in(data: Piece, begin: int) -> int:
    """`data` are a frame's bytes from the position `begin` on, up to its store time at least."""
    (sys_flag,) = I32.unpack_from(data, layout.SYS_FLAG_POSITION - begin)
    at = layout.BORN_HOST_POSITION - begin + host_bytes(sys_flag)[0]
    return int.from_bytes(data[at : at + layout.I64.size], "big", signed=True)


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
