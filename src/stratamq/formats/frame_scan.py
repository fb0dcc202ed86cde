"""Where frames lie in bytes of the log, by their heads alone: TOTALSIZE, MAGICCODE. Spec 2.2, 2.5.

What stands in a frame is not looked at: `frame_check`, `columns` and `frame_verify` do that. Who
scans decides what the end of a scan means: recovery, scrubber, replication and dispatch differ.

The kernel goes from frame to frame; without it, frames of one size in a row are found all at once.
The cost is linear in the bytes that are passed.
"""

import sys
from enum import Enum, auto
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stratamq.formats import kernel
from stratamq.formats.frame_layout import (
    BLANK,
    HEAD,
    I64,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_FRAME_BYTES,
    Buffer,
)
from stratamq.formats.hosts import HOST_V6_BYTES
from stratamq.formats.sysflag import host_bytes

_MIN_LOOK, _MAX_LOOK = 32, 1024
"""After so many frames of one size the next are looked for at the same distance, all at once; the
more, the longer sizes have differed."""
_NONE = np.zeros(0, np.int64)
SEGMENT_HEAD_BYTES = HEAD.size + HOST_V6_BYTES + I64.size
"""The first bytes of a segment that hold its first message's store time."""


class ScanEnd(Enum):
    """What ended a scan."""

    END = auto()
    """The bytes are used up."""
    WITHIN = auto()
    """A frame, or its head, continues behind the bytes."""
    BLANK = auto()
    """A blank stands there, whatever length it declares."""
    MAGIC = auto()
    """Neither a frame nor a blank stands there."""
    LENGTH = auto()
    """A frame's head stands there, with a length that no frame has or that leaves the segment."""
    ENOUGH = auto()
    """So many frames as were wanted."""


_ENDS = tuple(ScanEnd)
_ROOM = 1 << 16


class FrameScan(NamedTuple):
    """`sizes` of the frames in [`start`, `end`), one behind the other, as int64.

    `size` and `magic` are the head at `end`, 0 and 0 when it is not there whole.
    """

    sizes: NDArray[np.int64]
    end: int
    stop: ScanEnd
    size: int = 0
    magic: int = 0


def scan_frames(
    data: Buffer, start: int = 0, *, limit: int | None = None, most: int | None = None
) -> FrameScan:
    """Whole frames in `data` from `start` on, where a frame should begin; at most `most` of them.

    `limit`: where the segment, or whatever frames may not leave, ends, as a position in `data`; it
    can lie behind the bytes that are there. None: unknown to the scan.
    """
    parts: list[NDArray[np.int64]] = []
    position, wanted = start, sys.maxsize if most is None else most
    there = len(data) if limit is None else min(len(data), limit)
    if kernel.NATIVE is not None and 0 <= start <= there:
        return _scan_by_kernel(kernel.NATIVE, data, start, there, limit, wanted)
    look = _MIN_LOOK
    while True:
        sizes, scan = _scan_singly(data, position, there, limit, min(wanted, look))
        parts.append(np.array(sizes, np.int64))
        position, wanted = scan.end, wanted - len(sizes)
        if scan.stop is not ScanEnd.ENOUGH or not wanted:
            return scan._replace(sizes=parts[0] if len(parts) == 1 else np.concatenate(parts))
        size, look = sizes[-1], min(2 * look, _MAX_LOOK)
        if sizes.count(size) == len(sizes):
            look = _MIN_LOOK
            alike = _count_alike(data, position, there, size, wanted)
            parts.append(np.full(alike, size, np.int64))
            position, wanted = position + alike * size, wanted - alike


def _scan_by_kernel(
    native: ModuleType, data: Buffer, position: int, there: int, limit: int | None, wanted: int
) -> FrameScan:
    parts: list[NDArray[np.int64]] = []
    while True:
        room = np.empty(min(wanted, (there - position) // MIN_FRAME_BYTES + 1, _ROOM), np.int64)
        count, position, stop, size, magic = native.scan(
            data, position, -1 if limit is None else limit, len(room), room
        )
        parts.append(room[:count])
        wanted -= count
        if _ENDS[stop] is not ScanEnd.ENOUGH or not wanted:
            sizes = parts[0] if len(parts) == 1 else np.concatenate(parts)
            return FrameScan(sizes, position, _ENDS[stop], size, magic)


def _scan_singly(
    data: Buffer, position: int, there: int, limit: int | None, wanted: int
) -> tuple[list[int], FrameScan]:
    """Some frames' sizes, and how the scan of them ended."""
    sizes: list[int] = []
    found, read = sizes.append, BLANK.unpack_from
    last = there - BLANK.size
    stop, size, magic = ScanEnd.ENOUGH, 0, 0
    for _ in range(wanted):
        if position > last:
            stop, size, magic = ScanEnd.END if position == there else ScanEnd.WITHIN, 0, 0
            break
        size, magic = read(data, position)
        if magic != MAGIC_V1 and magic != MAGIC_V2:
            stop = ScanEnd.BLANK if magic == MAGIC_BLANK else ScanEnd.MAGIC
            break
        if size < MIN_FRAME_BYTES or (limit is not None and size > limit - position):
            stop = ScanEnd.LENGTH
            break
        if position + size > there:
            stop = ScanEnd.WITHIN
            break
        position += size
        found(size)
    else:
        size, magic = 0, 0
    return sizes, FrameScan(_NONE, position, stop, size, magic)


def _count_alike(data: Buffer, position: int, there: int, size: int, wanted: int) -> int:
    """How many whole frames with the head of the one in front of `position` follow. As many heads
    are looked at as were found before, so that the cost stays linear."""
    head = np.frombuffer(data, ">u8", 1, position - size)[0]
    found, count = 0, _MIN_LOOK
    while True:
        count = min(count, (there - position) // size, wanted - found)
        if not count:
            return found
        alike = np.ndarray(count, ">u8", data, position, (size,)) == head
        if not alike.all():
            return found + int(alike.argmin())
        found, position, count = found + count, position + count * size, 2 * count


def first_store_time(head: bytes, start: int) -> int | None:
    """Store time, ms, of the frame at log offset `start` that `head` begins with; None when there
    is none, or fewer than `SEGMENT_HEAD_BYTES`.

    Store times never go back in a log, so that the first bytes of each segment order its messages
    by time without reading them.
    """
    if len(head) < SEGMENT_HEAD_BYTES:
        return None
    _, magic, _, _, _, _, physical_offset, sys_flag, _ = HEAD.unpack_from(head)
    if magic not in (MAGIC_V1, MAGIC_V2) or physical_offset != start:
        return None
    born_bytes, _ = host_bytes(sys_flag)
    return int(I64.unpack_from(head, HEAD.size + born_bytes)[0])
