"""Finds damaged stretches in bytes of the log, and where whole frames go on behind them.

A frame states its own offset: a magic number four bytes in, and its own log offset at byte 28.
Twelve bytes that agree with their place are a frame's beginning, whatever is wrong in front of it,
so that damage never hides more than the frames it touched.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stratamq.formats import kernel
from stratamq.formats.columns import windows
from stratamq.formats.frame_layout import (
    BLANK,
    I64,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_FRAME_BYTES,
    PHYSICAL_OFFSET_POSITION,
)
from stratamq.formats.frame_scan import ScanEnd, scan_frames
from stratamq.formats.frame_verify import NOWHERE, first_damaged

Places = NDArray[np.int64]

HEAD_BYTES = PHYSICAL_OFFSET_POSITION + I64.size
"""What must be seen of a frame to decide that it begins at a place."""
_MAGICS = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK))


@dataclass(frozen=True, slots=True, order=True)
class Damage:
    """Log offsets [start, end) in which nothing can be trusted, and a constant word why."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class Examined:
    """`good` bytes from the beginning are whole frames, `frames` of them.

    `reason`: why what follows is damaged; empty when the bytes end there, or within a frame that
    continues. `needs`: bytes from that frame's beginning that must be seen to continue, else 0.
    `at_end`: a blank that fills the segment follows.
    """

    good: int
    frames: int
    reason: str = ""
    needs: int = 0
    at_end: bool = False


def examine(
    data: bytes | memoryview, offset: int, segment_end: int, sealed_from: int = NOWHERE
) -> Examined:
    """Look at `data`, at log offset `offset`, where a frame should begin; verify all.

    From log offset `sealed_from` on every record has a checksum of its own.
    """
    looked, starts, sizes = mark_off(data, offset, segment_end)
    found = first_damaged(data, starts, sizes, sealed_from - offset) if len(starts) else None
    if found is None:
        return looked
    number, reason = found
    return Examined(int(starts[number]), number, reason)


def mark_off(
    data: bytes | memoryview, offset: int, segment_end: int
) -> tuple[Examined, Places, Places]:
    """The same by lengths, magic numbers and places alone; starts and sizes of the good frames."""
    left = segment_end - offset
    scan = scan_frames(data, limit=left)
    lengths = scan.sizes
    starts = lengths.cumsum() - lengths
    if len(lengths):
        number = _first_displaced(data, starts, offset)
        if number < len(starts):
            looked = Examined(int(starts[number]), number, "physical_offset")
            return looked, starts[:number], lengths[:number]
    looked = Examined(scan.end, len(lengths))
    if scan.stop is ScanEnd.BLANK and scan.size == left - scan.end:
        looked = replace(looked, at_end=True)
    elif scan.stop is ScanEnd.MAGIC:
        looked = replace(looked, reason="magic")
    elif scan.stop in (ScanEnd.BLANK, ScanEnd.LENGTH) or 0 < left - scan.end < BLANK.size:
        looked = replace(looked, reason="length")
    elif scan.stop is ScanEnd.WITHIN:
        looked = replace(looked, needs=scan.size or BLANK.size)
    return looked, starts, lengths


def _first_displaced(data: bytes | memoryview, starts: Places, offset: int) -> int:
    """The first frame that is not at its PHYSICALOFFSET, or how many there are."""
    if kernel.NATIVE is not None:
        return int(kernel.NATIVE.first_displaced(data, starts, offset))
    raw = np.frombuffer(data, np.uint8)
    stated = windows(raw, 8)[starts + PHYSICAL_OFFSET_POSITION].view(">i8")[:, 0]
    displaced = stated != starts + offset
    return int(displaced.argmax()) if displaced.any() else len(starts)


def next_frame(data: bytes | memoryview, offset: int, segment_end: int) -> int | None:
    """The first place behind the first byte where a frame or the final blank begins.

    A position in `data`; None when there is none whose beginning (`HEAD_BYTES`) is in `data`.
    """
    view = bytes(data)
    places = []
    for magic in _MAGICS:
        at = view.find(magic, 5)
        while at >= 0:
            if _begins(view, at - 4, offset, segment_end):
                places.append(at - 4)
                break
            at = view.find(magic, at + 1)
    return min(places, default=None)


def _begins(view: bytes, place: int, offset: int, segment_end: int) -> bool:
    size, magic = BLANK.unpack_from(view, place)
    left = segment_end - offset - place
    if magic == MAGIC_BLANK:
        return bool(size == left)
    if place + HEAD_BYTES > len(view) or not MIN_FRAME_BYTES <= size <= left:
        return False
    stated = I64.unpack_from(view, place + PHYSICAL_OFFSET_POSITION)[0]
    return bool(stated == offset + place)
