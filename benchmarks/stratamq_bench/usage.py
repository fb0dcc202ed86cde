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
        self.before = {name: cpu_seconds(pid) for name, pid in pids.items()}

    def seconds(self) -> dict[str, float]:
        return {name: cpu_seconds(pid) - self.before[name] for name, pid in self._pids.items()}


def descriptors(pid: int) -> int:
    """How many a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def children(pid: int) -> list[int]:
    """Processes that it has started and that run, their own children included."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *children(int(child))]
    return found


def room_of(pid: int) -> str:
    """Which service a Python process runs, by the module on its command line; or its program."""
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    rooms = [word for word in words if word.startswith("stratamq_")]
    return rooms[0].replace("stratamq_", "") if rooms else os.path.basename(words[0])
