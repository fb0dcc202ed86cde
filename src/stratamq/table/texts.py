"""Arrow arrays of byte strings that lie scattered in one buffer."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stratamq.formats import kernel
from stratamq.formats.columns import windows

I64 = NDArray[np.int64]
Bytes = NDArray[np.uint8]


def gather(raw: Bytes, starts: I64, lengths: I64) -> tuple[NDArray[np.int32], memoryview | bytes]:
    """Offsets and data of an Arrow binary array: raw[starts[i] : starts[i] + lengths[i]]."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if not len(starts):
        return offsets.astype(np.int32), b""
    width = int(lengths[0])
    if kernel.NATIVE is not None:
        copied = np.empty(int(offsets[-1]), np.uint8)
        places = np.ascontiguousarray(starts), np.ascontiguousarray(lengths)
        kernel.NATIVE.gather(raw, *places, copied)
        data: memoryview | bytes = copied.data
    elif width and (lengths == width).all():
        data = windows(raw, width)[starts].reshape(-1).data
    else:
        spans = map(slice, starts.tolist(), (starts + lengths).tolist())
        data = b"".join(map(raw.data.__getitem__, spans))
    return offsets.astype(np.int32), data


def binaries(raw: Bytes, starts: I64, lengths: I64) -> pa.Array:
    """A binary array. The bytes are copied; at most 2 GiB together."""
    offsets, data = gather(raw, starts, lengths)
    return _array(pa.binary(), offsets, data)


def strings(raw: Bytes, starts: I64, lengths: I64) -> pa.Array:
    """A string array of well-formed UTF-8."""
    offsets, data = gather(raw, starts, lengths)
    return _array(pa.string(), offsets, data)


def ascii_rows(matrix: Bytes) -> pa.Array:
    """A string array of equally long ASCII rows."""
    if not matrix.flags.c_contiguous:
        return ascii_spans(matrix, [(0, matrix.shape[1])])
    offsets = _row_offsets(len(matrix), np.array([matrix.shape[1]]))
    return _array(pa.string(), offsets, matrix.reshape(-1).data)


def ascii_spans(matrix: Bytes, spans: Sequence[tuple[int, int]]) -> pa.Array:
    """A string array of all these columns of each row, row by row."""
    count = len(matrix)
    widths = np.array([end - begin for begin, end in spans], np.int64)
    ends = widths.cumsum()
    total = int(ends[-1])
    data = np.empty((count, total), np.uint8)
    for (begin, end), width, behind in zip(spans, widths, ends, strict=True):
        data[:, behind - width : behind] = matrix[:, begin:end]
    return _array(pa.string(), _row_offsets(count, ends), data.reshape(-1).data)


def repeated(texts: Sequence[str], count: int) -> pa.Array:
    """A string array of these texts, `count` times over."""
    raw = [text.encode() for text in texts]
    ends = np.array([len(one) for one in raw], np.int64).cumsum()
    return _array(pa.string(), _row_offsets(count, ends), b"".join(raw) * count)


def _row_offsets(count: int, ends: I64) -> NDArray[np.int32]:
    """Where values begin when each of `count` rows has some that end at `ends`."""
    offsets = np.zeros(count * len(ends) + 1, np.int32)
    rows = np.arange(count, dtype=np.int64)[:, None] * int(ends[-1])
    offsets[1:] = (rows + ends).reshape(-1)
    return offsets


def _array(kind: pa.DataType, offsets: NDArray[np.int32], data: memoryview | bytes) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)
