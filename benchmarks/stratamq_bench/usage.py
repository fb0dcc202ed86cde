"""What processes have used of the machine, read from /proc, and how far followers are behind."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from stratamq.rpc import discovery
from stratamq_bench.broker import FOLLOWERS

LOOK_S = 0.05
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME = 11, 12  # after the command's closing parenthesis: fields 14 and 15


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads, in steps of a clock tick (10 ms)."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    fields = stat.rpartition(")")[2].split()
    return (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_S


def pss_mb(pid: int) -> float:
    """Proportional set size: shared pages count by the number of processes that share them."""
    return kibibytes(f"/proc/{pid}/smaps_rollup", "Pss") / 1024


def kibibytes(file: str, name: str) -> int:
    """Return the value of a line `name: … kB` of a file of /proc; 0 when it has none."""
    for line in Path(file).read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0


class CpuMeter:
    """CPU of several processes since it was made."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self.before = {name: cpu_seconds(pid) for name, pid in pids.items()}

    def seconds(self) -> dict[str, float]:
        return {name: cpu_seconds(pid) - self.before[name] for name, pid in self._pids.items()}


def used_while_idle(pids: Mapping[str, int], seconds: float) -> dict[str, float]:
    """Each process's share of a CPU during so many seconds, and its memory afterwards."""
    meter, began = CpuMeter(pids), time.perf_counter()
    time.sleep(seconds)
    took_s, used_s = time.perf_counter() - began, meter.seconds()
    shares = {f"{name}_cpu_percent": one / took_s * 100 for name, one in used_s.items()}
    return shares | {f"{name}_mb": pss_mb(pid) for name, pid in pids.items()}


def service_pids(root: Path) -> dict[str, int]:
    """The processes of the log and its followers that run over this directory."""
    found = {room: discovery.read(root, room) for room in ("commitlog", *FOLLOWERS, "delivery")}
    return {room: endpoint.pid for room, endpoint in found.items() if endpoint is not None}


def descriptors(pid: int) -> int:
    """How many a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def children(pid: int) -> list[int]:
    """Processes that it has started and that run, their own children included. Of threads and
    processes that end meanwhile, none."""
    found = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                for child in (task / "children").read_text().split():
                    found += [int(child), *children(int(child))]
    return found


def room_of(pid: int) -> str:
    """Which service a Python process runs, by the module on its command line; or its program."""
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    rooms = [word for word in words if word.startswith("stratamq_")]
    return rooms[0].replace("stratamq_", "") if rooms else os.path.basename(words[0])


class LagWatch:
    """Watch how old the newest message is that a follower has not applied; to be left by `with`.

    `ends()`: (where the leader ends, how far the follower is). The age is read off one clock: when
    the leader's end was first seen at or beyond what the follower has applied by now. `worst_s`
    errs on the long side: what is seen at one look may be as old as the look before.
    """

    def __init__(self, ends: Callable[[], tuple[int, int]], pid: int | None = None) -> None:
        self.worst_s = 0.0
        self.most_descriptors = 0
        self._ends = ends
        self._pid = pid
        self._stopped = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        seen: deque[tuple[int, float]] = deque()
        before = time.perf_counter()
        try:
            while not self._stopped.wait(LOOK_S):
                leader, follower = self._ends()
                now = time.perf_counter()
                if not seen or leader > seen[-1][0]:
                    seen.append((leader, before))
                while seen and seen[0][0] <= follower:
                    seen.popleft()
                before = now
                if seen:
                    # A follower that is behind lacks what the first look it has not reached showed.
                    self.worst_s = max(self.worst_s, now - seen[0][1])
                if self._pid is not None:
                    self.most_descriptors = max(self.most_descriptors, descriptors(self._pid))
        except Exception as error:  # noqa: BLE001 - the top of a thread: raised at the block's end
            self._failure = error

    def __enter__(self) -> "LagWatch":
        self._thread.start()
        return self

    def __exit__(self, error_type: object, error: BaseException | None, _: object) -> None:
        self._stopped.set()
        self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure
