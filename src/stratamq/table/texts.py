"""Arrow arrays of byte strings that lie scattered in one buffer."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

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
    if width and (lengths == width).all():
        data: memoryview | bytes = windows(raw, width)[starts].reshape(-1).data
    else:
        view = raw.data
        ends = (starts + lengths).tolist()
        data = b"".join([view[a:b] for a, b in zip(starts.tolist(), ends, strict=True)])
    return offsets.astype(np.int32), data


def binaries(raw: Bytes, starts: I64, lengths: I64) -> pa.Array:
    """A binary array. The bytes are copied; at most 2 GiB together."""
    offsets, data = gather(raw, starts, lengths)
    return _array(pa.binary(), offsets, data)


def ascii_rows(matrix: Bytes) -> pa.Array:
    """A string array of equally long ASCII rows."""
    count, width = matrix.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    return _array(pa.string(), offsets, np.ascontiguousarray(matrix).reshape(-1).data)


def _array(kind: pa.DataType, offsets: NDArray[np.int32], data: memoryview | bytes) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)
