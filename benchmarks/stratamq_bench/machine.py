"""What the figures were measured on, and memory made ready before anything is measured."""

import mmap
import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

_POPULATE_WRITE = 23
_NO_HUGE_PAGES = 15
WARM_BYTES = 6 << 30


@dataclass(frozen=True, slots=True)
class Machine:
    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    python: str
    grpcio: str
    numpy: str


def describe() -> Machine:
    return Machine(
        cpu=_after_colon("/proc/cpuinfo", "model name") or platform.processor() or "unknown",
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=platform.release(),
        python=platform.python_version(),
        grpcio=version("grpcio"),
        numpy=version("numpy"),
    )


def available_bytes() -> int:
    text = _after_colon("/proc/meminfo", "MemAvailable")
    return int(text.split()[0]) * 1024


def warm_memory(limit_bytes: int = WARM_BYTES) -> int:
    """Touch memory once and give it back; returns how much. Before each measured piece.

    The first touch of a page that a virtual machine does not hold goes through its host and costs
    ten times what the next one does (0.4 against 3.4 GB/s, measured); what is freed goes back to
    the host bit by bit, a sixteenth every two seconds. New segments would pay for that, floors that
    write the same file again would not, and the figures would say how idle the machine had been.
    """
    size = min(limit_bytes, available_bytes() // 2) & ~0xFFFFF
    if size <= 0:
        return 0
    with mmap.mmap(-1, size) as pages:
        pages.madvise(_NO_HUGE_PAGES)
        try:
            pages.madvise(_POPULATE_WRITE)
        except OSError:  # kernels before 5.14
            for position in range(0, size, mmap.PAGESIZE):
                pages[position] = 0
    return size


def _after_colon(path: str, key: str) -> str:
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""
