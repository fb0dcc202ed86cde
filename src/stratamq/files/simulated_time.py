"""Virtual time and virtual threads: a clock that moves, and workers that run, by explicit calls."""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from stratamq.files.port import T

_START_MS = 1_700_000_000_000


class SimulatedClock:
    """`Clock` whose hands a test moves."""

    def __init__(self, wall_ms: int = _START_MS, monotonic_ns: int = 0) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ns = monotonic_ns

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_ns(self) -> int:
        return self._monotonic_ns

    def advance_ms(self, milliseconds: int) -> None:
        """Let time pass on both clocks."""
        if milliseconds < 0:
            raise ValueError("time that passes goes forward: set_wall_ms sets a clock back")
        self._wall_ms += milliseconds
        self._monotonic_ns += milliseconds * 1_000_000

    def set_wall_ms(self, wall_ms: int) -> None:
        """What an operator or NTP does: only the wall clock jumps."""
        self._wall_ms = wall_ms


class SimulatedScheduler:
    """Runs the work of several workers in a seeded order.

    A worker's tasks run in order, and so do its completions; a completion may come long after its
    task ran, and after tasks that were submitted behind it: that is the gap in which real processes
    die between a flush and its acknowledgement.
    """

    def __init__(self, chance: random.Random) -> None:
        self._random = chance
        self._workers: list[SimulatedWorker] = []

    def worker(self) -> "SimulatedWorker":
        """A new lane of this scheduler."""
        return SimulatedWorker(self._random, self)

    @property
    def pending(self) -> int:
        """Tasks and completions that wait, of all workers."""
        return sum(worker.pending for worker in self._workers)

    def run_one(self) -> bool:
        """One task or one completion of a random worker; False if nothing waits."""
        steps = [step for worker in self._workers for step in worker.steps()]
        if not steps:
            return False
        self._random.choice(steps)()
        return True

    def run_until_idle(self, limit: int = 1_000_000) -> int:
        """Run until nothing waits; the number of steps. RuntimeError after `limit` of them."""
        count = 0
        while self.run_one():
            count += 1
            if count >= limit:
                raise RuntimeError(f"still not idle after {limit} steps")
        return count

    def discard(self) -> None:
        """The process died: nothing that waits will run."""
        for worker in self._workers:
            worker.discard()

    def add(self, worker: "SimulatedWorker") -> None:
        self._workers.append(worker)


class SimulatedWorker:
    """`Worker` as a seeded queue. Alone it is its own scheduler; see `SimulatedScheduler`."""

    def __init__(self, chance: random.Random, scheduler: SimulatedScheduler | None = None) -> None:
        self._scheduler = scheduler or SimulatedScheduler(chance)
        self._scheduler.add(self)
        self._tasks: deque[tuple[Callable[[], Any], Callable[..., None]]] = deque()
        self._completions: deque[Callable[[], None]] = deque()

    def submit(
        self, task: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        self._tasks.append((task, on_done))

    @property
    def pending(self) -> int:
        return len(self._tasks) + len(self._completions)

    def run_one(self) -> bool:
        return self._scheduler.run_one()

    def run_until_idle(self, limit: int = 1_000_000) -> int:
        return self._scheduler.run_until_idle(limit)

    def discard(self) -> None:
        self._tasks.clear()
        self._completions.clear()

    def steps(self) -> list[Callable[[], None]]:
        """What this worker could do next."""
        ready: list[Callable[[], None]] = []
        if self._tasks:
            ready.append(self._run_task)
        if self._completions:
            ready.append(lambda: self._completions.popleft()())
        return ready

    def _run_task(self) -> None:
        task, on_done = self._tasks.popleft()
        try:
            result = task()
        except Exception as error:  # noqa: BLE001 - the port hands every error to on_done
            failure = error
            self._completions.append(lambda: on_done(None, failure))
        else:
            self._completions.append(lambda: on_done(result, None))
