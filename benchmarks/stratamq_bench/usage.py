"""What processes have used of the machine, read from /proc."""

import os
from collections.abc import Mapping
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME = 11, 12  # after the command's closing parenthesis: fields 14 and 15


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads, in steps of a clock tick (10 ms)."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    fields = stat.rpartition(")")[2].split()
    return (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_S


def pss_mb(pid: int) -> float:
    """Proportional set size: shared pages count by the number of processes that share them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


class CpuMeter:
    """CPU of several processes since it was made."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._before = {name: cpu_seconds(pid) for name, pid in pids.items()}

    def seconds(self) -> dict[str, float]:
        return {name: cpu_seconds(pid) - self._before[name] for name, pid in self._pids.items()}
