"""What a process does with the memory of large buffers that it has freed."""

import ctypes

KEPT_BYTES = 32 << 20
LARGEST_KEPT_BYTES = 8 << 20
"""A larger buffer is the kernel's again as soon as it is freed."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """Let up to 32 MiB of freed memory stay with the process.

    The log, replication and the dispatcher fill and free buffers of megabytes all the time. glibc
    gives such memory back to the kernel each time, and then it comes again one page fault after the
    other, each of which zeroes a page. Another C library than glibc does as it likes.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
