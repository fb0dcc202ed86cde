"""Frames without their bodies and properties: who only counts and chooses by headers needs no more.

    HEADER   the frame up to its body, TOTALSIZE and BODYLENGTH as of the head
    TOPIC    TOPICLENGTH, TOPIC
    0, 0     PROPERTIESLENGTH

A head is a frame of the same version, with an empty body; only BODYCRC is the message's own. The
lengths that the frames have in the log travel beside the heads.
"""

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import CorruptRecordError
from stratamq.formats.columns import FrameColumns, columns_at, windows
from stratamq.formats.frame_layout import TOTAL_SIZE_POSITION
from stratamq.formats.frame_scan import scan_frames

LENGTH = np.dtype(">u4")
"""How lengths stand beside heads."""
_I32, _I16 = 4, 2

Bytes = NDArray[np.uint8]


def heads_of(raw: Bytes, frames: FrameColumns) -> bytes:
    """The heads, one behind the other."""
    if not len(frames):
        return b""
    before = frames.body_start - frames.start
    behind_body = frames.body_start + frames.body_length
    behind = frames.properties_start - behind_body
    sizes = before + behind
    ends = sizes.cumsum()
    starts = ends - sizes
    # Each frame gives two stretches: up to its body, and from there to its properties.
    lengths = np.column_stack((before, behind)).ravel()
    sources = np.column_stack((frames.start, behind_body)).ravel()
    targets = lengths.cumsum() - lengths
    heads = raw[np.repeat(sources - targets, lengths) + np.arange(int(ends[-1]))]
    windows(heads, _I32)[starts + TOTAL_SIZE_POSITION] = _rows(sizes)
    windows(heads, _I32)[starts + before - _I32] = 0
    windows(heads, _I16)[ends - _I16] = 0
    return heads.tobytes()


def columns_of_heads(raw: Bytes, lengths: NDArray[np.integer], base_offset: int) -> FrameColumns:
    """The columns of these heads, with `size` as in the log. CorruptRecordError, also when there
    are not as many heads as lengths."""
    scan = scan_frames(raw.data)
    if scan.end != len(raw) or len(scan.sizes) != len(lengths):
        raise CorruptRecordError(
            f"{len(lengths)} heads at {base_offset}, and {len(scan.sizes)} are there",
            base_offset,
            "length",
        )
    columns = columns_at(raw, scan.sizes.cumsum() - scan.sizes, scan.sizes, base_offset)
    columns.size = lengths.astype(np.int64)
    return columns


def _rows(values: NDArray[np.int64]) -> Bytes:
    return values.astype(LENGTH).view(np.uint8).reshape(-1, _I32)
