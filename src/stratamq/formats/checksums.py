"""CRC-32 of many stretches of one buffer: each costs a slice and a call, and little beside."""

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from stratamq.formats.crc import CRC_MASK


def crc32_of_each(
    view: memoryview, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The 31-bit checksum (spec 2.7) of each `view[start:end]`."""
    crc32 = isal_zlib.crc32
    places = zip(starts.tolist(), ends.tolist(), strict=True)
    crcs = np.array([crc32(view[start:end]) for start, end in places], np.int64)
    crcs &= CRC_MASK
    return crcs
