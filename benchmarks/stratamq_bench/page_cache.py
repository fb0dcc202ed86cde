"""Memory as it is on a machine that has run for a while: nothing free, the page cache full.

A log lives in new pages, a floor writes the same ones again. Where the pages come from then matters
more than the program: those of a full page cache cost a fraction of a microsecond for each KiB, but
a virtual machine whose host hands memory out at the first touch, and takes free memory back, pays
2.5 µs (measured). So before each round free memory is filled with unneeded pages: the hole of a
sparse file, read in order, never twice. It is the first to go when a case needs memory.
"""

import mmap
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PIECE_BYTES = 16 << 20
LEFT_FREE_BYTES = 1 << 30
HOLE_BYTES = 1 << 40
PROBE_BYTES = 128 << 20
_POPULATE_WRITE = 23


def free_bytes() -> int:
    """Memory of this machine that holds nothing at all."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemFree":
            return int(value.split()[0]) * 1024
    raise OSError("/proc/meminfo has no MemFree")


class PageCache:
    """What `filling` gives: fills the page cache by reading a hole of so many bytes."""

    def __init__(self, descriptor: int, free: Callable[[], int], hole: int) -> None:
        self.position = 0
        """How much was read so far."""
        self._descriptor = descriptor
        self._free = free
        self._hole = hole
        self._piece = bytearray(min(PIECE_BYTES, hole))

    def fill(self) -> None:
        """Until little is free, or the cache grows no more (memory may be limited)."""
        limit = self.position + self._free()
        while self._free() > LEFT_FREE_BYTES and self.position < min(limit, self._hole):
            self.position += os.preadv(self._descriptor, [self._piece], self.position)


@contextmanager
def filling(
    directory: Path | None, free: Callable[[], int] = free_bytes, hole: int = HOLE_BYTES
) -> Iterator[PageCache]:
    """`with filling(directory) as cache: cache.fill()`; leaves nothing behind."""
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory) as file:
        os.truncate(file.fileno(), hole)
        yield PageCache(file.fileno(), free, hole)


def first_touch_bytes_per_s(directory: Path) -> float:
    """How fast new pages of an allocated file can be had, per second of CPU.

    A log lives in new pages, a floor writes the same ones again. On bare metal the difference is
    small; a virtual machine that gives free memory back to its host pays ten times as much
    (0.4 against 6 GB/s, measured), and the log's figures with it.
    """
    with tempfile.TemporaryFile(dir=directory) as file:
        os.posix_fallocate(file.fileno(), 0, PROBE_BYTES)
        with mmap.mmap(file.fileno(), PROBE_BYTES) as pages:
            cpu = time.process_time()
            try:
                pages.madvise(_POPULATE_WRITE)
            except OSError:  # kernels before 5.14
                for position in range(0, PROBE_BYTES, mmap.PAGESIZE):
                    pages[position] = 0
            return PROBE_BYTES / (time.process_time() - cpu)
