"""The broker's fields written into many frames at once, in private memory."""

import numpy as np
from numpy.typing import NDArray

from stratamq.formats import frame_layout as layout
from stratamq.formats.columns import I64, Bytes, FrameColumns, windows


def patch(
    raw: Bytes,
    frames: FrameColumns,
    *,
    physical_offset: I64,
    queue_id: NDArray[np.int32],
    queue_offset: I64,
    store_timestamp_ms: int,
    store_host: bytes,
) -> None:
    """Write the broker's fields into frames in private memory: ids, offsets, store time and host.

    `store_host` has 8 or 20 bytes, as in every frame's SYSFLAG (the caller checked it).
    """
    stamp = store_timestamp_ms.to_bytes(8, "big", signed=True) + store_host
    if frames.shape is not None:
        _patch_even(raw, frames.shape.size, physical_offset, queue_id, queue_offset, stamp)
        return
    starts = frames.start
    count = len(starts)
    fields = np.empty((count, 20), np.uint8)
    fields[:, :4] = queue_id.astype(">i4").view(np.uint8).reshape(count, 4)
    fields[:, 4:12] = queue_offset.astype(">i8").view(np.uint8).reshape(count, 8)
    fields[:, 12:] = physical_offset.astype(">i8").view(np.uint8).reshape(count, 8)
    scatter(raw, starts + layout.QUEUE_ID_POSITION, fields[:, :4])
    scatter(raw, starts + layout.QUEUE_OFFSET_POSITION, fields[:, 4:])
    scatter(raw, frames.store_timestamp_start, np.frombuffer(stamp, np.uint8))


def _patch_even(
    raw: Bytes,
    size: int,
    physical_offset: I64,
    queue_id: NDArray[np.int32],
    queue_offset: I64,
    stamp: bytes,
) -> None:
    for kind, position, values in (
        (">i4", layout.QUEUE_ID_POSITION, queue_id),
        (">i8", layout.QUEUE_OFFSET_POSITION, queue_offset),
        (">i8", layout.PHYSICAL_OFFSET_POSITION, physical_offset),
    ):
        np.ndarray((len(values),), kind, raw, position, (size,))[:] = values
    stamps = even_stretches(
        raw, len(queue_id), size, layout.STORE_TIMESTAMP_POSITION_V4, len(stamp)
    )
    stamps[:] = np.frombuffer(stamp, np.uint8)


def even_stretches(raw: Bytes, count: int, distance: int, first: int, width: int) -> Bytes:
    """A view of `count` stretches of `width` bytes as rows, `distance` from one to the next."""
    return np.ndarray((count, width), np.uint8, raw, first, (distance, 1))


def scatter(raw: Bytes, starts: I64, rows: Bytes) -> None:
    """Write rows of equal width (or one row for all) at `starts`."""
    windows(raw, rows.shape[-1])[starts] = rows
