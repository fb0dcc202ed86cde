"""`Walkers` as processes of their own, started afresh, for one recovery.

They are started by `exec`, not forked, so that none inherits a thread or a lock, and not by
`multiprocessing`, whose workers live on when their parent is killed: these end when their pipe
does. Segments go round in turn. Each walker has a few tasks waiting, so that it does not wait for
recovery to take what it found; answers wait in the pipe, a few kilobytes for each segment.
"""

import contextlib
import logging
import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from stratamq_commitlog.recovery.walk_ahead import Task, WalkedSegment

log = logging.getLogger(__name__)

WALKER = "stratamq_commitlog.recovery.walker_process"
MAX_PROCESSES = 4
"""More would only wait for the disk, and for recovery, which reads their results in order."""
_WAITING = 2
"""Tasks that a walker has at most, the one under way included: few enough for a pipe to hold."""


def processes_for(setting: int) -> int:
    """How many processes a setting means; 0: one for each processor that this process may use."""
    return min(setting or len(os.sched_getaffinity(0)), MAX_PROCESSES)


class WalkerPool:
    """`Walkers` over a real directory, one less than `processes`. Not thread-safe, except
    `interrupt`."""

    least_bytes = 256 << 20
    """What one process walks in the quarter of a second that a Python with NumPy takes to start."""

    def __init__(self, root: Path, processes: int) -> None:
        self._root = root
        self.count = processes - 1
        self._lanes: list[_Lane] = []
        self._lane_of: dict[int, _Lane] = {}
        self._interrupted = False

    @property
    def pids(self) -> list[int]:
        return [lane.pid for lane in self._lanes]

    def begin(self, tasks: Sequence[Task]) -> None:
        count = min(self.count, len(tasks))
        for number in range(count):
            try:
                lane = _Lane(self._root, tasks[number::count])
            except OSError as error:
                log.warning("no walker process", extra={"reason": str(error)})
                break
            self._lanes.append(lane)
            if self._interrupted:
                lane.interrupt()
            self._lane_of |= {task.base: lane for task in tasks[number::count]}

    def take(self, base: int) -> WalkedSegment | None:
        lane = self._lane_of.pop(base, None)
        return lane.take(base) if lane is not None else None

    def interrupt(self) -> None:
        """For good: the walks end, and a `take` that waits returns."""
        self._interrupted = True
        for lane in list(self._lanes):
            lane.interrupt()

    def close(self) -> None:
        for lane in self._lanes:
            lane.close()
        self._lanes, self._lane_of = [], {}


class _Lane:
    """One process and the segments it walks, in order. OSError when it cannot be started."""

    def __init__(self, root: Path, tasks: Sequence[Task]) -> None:
        command = [sys.executable, "-m", WALKER, os.fspath(root)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe)
        self._left = deque(tasks)
        self._given: deque[int] = deque()
        self._dead = False
        for _ in range(_WAITING):
            self._give()

    @property
    def pid(self) -> int:
        return self._process.pid

    def take(self, base: int) -> WalkedSegment | None:
        """The answer for this segment; earlier ones that were not taken are passed over."""
        while not self._dead and self._given and self._given[0] <= base:
            answered = self._given.popleft()
            found = self._answer()
            self._give()
            if answered == base:
                return found
        return None

    def _give(self) -> None:
        if self._dead or not self._left:
            return
        task = self._left.popleft()
        assert self._process.stdin is not None
        try:
            pickle.dump(task, self._process.stdin, pickle.HIGHEST_PROTOCOL)
            self._process.stdin.flush()
        except OSError:
            self._died()
        else:
            self._given.append(task.base)

    def _answer(self) -> WalkedSegment | None:
        assert self._process.stdout is not None
        try:
            found = pickle.load(self._process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            self._died()
            return None
        return found if isinstance(found, WalkedSegment) else None

    def _died(self) -> None:
        self._dead = True
        log.warning("a walker process ended early", extra={"pid": self._process.pid})

    def interrupt(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._process.kill()
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(OSError):  # a task that it had not read
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
