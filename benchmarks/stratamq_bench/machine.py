"""What the figures were measured on."""

import mmap
import os
import platform
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

_POPULATE_WRITE = 23
PROBE_BYTES = 128 << 20


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


def _after_colon(path: str, key: str) -> str:
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""
