"""How fast the files of deleted segments go, so that no append waits for it.

The kernel frees what it has cached of a file while it unlinks it: a third of a second of one core
for 1 GiB, and longer where every freed block is reported to the device (`mount -o discard`).
Appends queue up behind that. So the cache is emptied first, a slice at each tick, and the unlink
has little left to do. `drop_cache` changes no byte, and leaves alone what another process has
mapped.
"""

from stratamq_commitlog.write.segment_set import SegmentSet

LEAST_SLICE_BYTES = 16 << 20
"""One or two milliseconds' work."""
SPREAD_TICKS = 100
"""A tick takes this part of all that waits, ten seconds' worth of a driver's ticks: the more waits
the faster it goes, and a log that is filled at full speed does not outrun it."""


def slice_bytes(waiting_bytes: int, *, refusing: bool) -> int:
    """How much of the cache is emptied in one tick while so much waits to be unlinked.

    `refusing`: the disk is so full that writes are refused. Then room comes first: there is no
    append to be spared.
    """
    if refusing:
        return waiting_bytes
    return max(LEAST_SLICE_BYTES, waiting_bytes // SPREAD_TICKS)


def unlink_step(segments: SegmentSet, base: int, position: int, length: int) -> None:
    """Blocking: empty a slice of the cache; with the last one unlink the file, for good. OSError.

    A slice that is the whole file is not emptied first: the unlink does that.
    """
    size = segments.segment_bytes
    if position < size and length < size:
        segments.drop_cache(base, position, min(length, size - position))
    if position + length >= size:
        segments.unlink(base)
