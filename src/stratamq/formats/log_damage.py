"""Finds damaged stretches in bytes of the log, and where whole frames go on behind them.

A frame states where it lies: a magic number four bytes in, and its own log offset at byte 28.
Twelve bytes that agree with their place are a frame's beginning, whatever is wrong in front of it,
so that damage never hides more than the frames it touched.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
from stratamq.formats.frame_verify import NOWHERE, first_damaged

Places = NDArray[np.int64]

HEAD_BYTES = PHYSICAL_OFFSET_POSITION + I64.size
"""What must be seen of a frame to know that it begins at a place."""
_ALIKE = 8
"""So many frames of one size in a row, and those behind are compared with them at once."""
_MOST_ALIKE = 1 << 14
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
    goes on. `needs`: bytes from the beginning of that frame that must be seen to go on, else 0.
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
    """Look at `data`, which lies at log offset `offset`, where a frame should begin; verify all.

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
    sizes, stop = _sizes(data, segment_end - offset)
    lengths = np.array(sizes, np.int64)
    starts = lengths.cumsum() - lengths
    if sizes:
        raw = np.frombuffer(data, np.uint8)
        stated = windows(raw, 8)[starts + PHYSICAL_OFFSET_POSITION].view(">i8")[:, 0]
        misplaced = stated != starts + offset
        if misplaced.any():
            number = int(misplaced.argmax())
            looked = Examined(int(starts[number]), number, "physical_offset")
            return looked, starts[:number], lengths[:number]
    good = int(lengths.sum())
    if isinstance(stop, str):
        return Examined(good, len(sizes), stop), starts, lengths
    return Examined(good, len(sizes), needs=max(stop, 0), at_end=stop < 0), starts, lengths


def next_frame(data: bytes | memoryview, offset: int, segment_end: int) -> int | None:
    """The first place behind the first byte where a frame or the final blank begins.

    A position in `data`; None when there is none whose beginning (`HEAD_BYTES`) lies in `data`.
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


def _sizes(data: bytes | memoryview, left: int) -> tuple[list[int], int | str]:
    """Sizes of what looks like whole frames, then what stands behind them.

    A word: damage. A number: so many bytes are needed to see the next frame; 0: the bytes are used
    up; −1: the final blank follows.
    """
    sizes: list[int] = []
    position, end = 0, len(data)
    read = BLANK.unpack_from
    raw = np.frombuffer(data, np.uint8)
    alike, enough = 0, _ALIKE
    previous = 0
    while True:
        if end - position < BLANK.size:
            if left - position < BLANK.size:
                return sizes, "length" if left - position else 0
            return sizes, BLANK.size if end > position else 0
        size, magic = read(data, position)
        if magic == MAGIC_BLANK:
            return sizes, -1 if size == left - position else "length"
        if magic != MAGIC_V1 and magic != MAGIC_V2:
            return sizes, "magic"
        if not MIN_FRAME_BYTES <= size <= left - position:
            return sizes, "length"
        if position + size > end:
            return sizes, size
        sizes.append(size)
        position += size
        alike = alike + 1 if size == previous else 0
        previous = size
        if alike >= enough:
            more = _equal_frames(raw[:left], position, size)
            sizes += [size] * more
            position += size * more
            alike, enough = 0, enough if more >= _ALIKE else 2 * enough


def _equal_frames(raw: NDArray[np.uint8], position: int, size: int) -> int:
    """How many frames of the same size and version as the one in front follow, whole."""
    count = min((len(raw) - position) // size, _MOST_ALIKE)
    words = raw[position : position + count * size].reshape(count, size)[:, :8]
    different = (words != raw[position - size : position - size + 8]).any(axis=1)
    return int(different.argmax()) if different.any() else count
