"""What every trial is run by: its time, its chance, its progress and its report; and work spread
over processes, where any seed or workload does the same wherever it runs."""

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import get_context
from typing import TypeVar

from stratamq.files.clock import SystemClock
from stratamq_torture.report import Report

Task = TypeVar("Task")
Result = TypeVar("Result")

Progress = Callable[[int, int], None]
"""Called with how many (seeds, rounds, …) are done, and how many lines report broken promises."""


class TrialFailedError(Exception):
    """Services, disks or wires of a trial did not do what they were to do; the sentence names what
    that was, and holds what they wrote."""


class Trial:
    """One run. `seconds` 0 or None: without an end; otherwise nothing begins after that."""

    def __init__(
        self, name: str, seconds: float | None, progress: Progress | None, seed: int = 0
    ) -> None:
        self.report = Report(name)
        self.chance = random.Random(seed)
        self.clock = SystemClock()
        self.done = 0
        self.met: Counter[str] = Counter()
        """What was done, and how often."""
        self._seconds = seconds
        self._progress = progress
        self._started_ns = self.clock.monotonic_ns()

    @property
    def in_time(self) -> bool:
        return not self._seconds or self._elapsed_s < self._seconds

    def within(self, tasks: Iterable[Task]) -> Iterator[Task]:
        """Tasks, until the time is over."""
        for task in tasks:
            if not self.in_time:
                return
            yield task

    def count(self, done: int = 1, failed: int | None = None) -> None:
        """So many more are done; `failed`: so many of all have, other than by report."""
        self.done += done
        if self._progress is not None:
            self._progress(self.done, len(self.report.failures) if failed is None else failed)

    @property
    def summary(self) -> str:
        """What was done, for people."""
        return ", ".join(f"{name} {count}" for name, count in sorted(self.met.items()))

    def ended(self) -> Report:
        self.report.seconds = self._elapsed_s
        return self.report

    @property
    def _elapsed_s(self) -> float:
        return (self.clock.monotonic_ns() - self._started_ns) / 1e9


class Deck:
    """Each card once, in a random order, before one comes again."""

    def __init__(self, chance: random.Random, cards: Sequence[str]) -> None:
        self._chance = chance
        self._cards = cards
        self._left: list[str] = []

    def draw(self) -> str:
        if not self._left:
            self._left = self._chance.sample(self._cards, len(self._cards))
        return self._left.pop()


def spread(work: Callable[[Task], Result], tasks: Iterable[Task], jobs: int) -> Iterator[Result]:
    """`work` of every task, in no order. `tasks` is asked for more only while workers are short of
    them, so that it can end early; what has begun is waited for. One job works in this process.

    Workers log nothing: the engines warn about every fault that is planned for them.
    """
    if jobs <= 1:
        yield from map(work, tasks)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=logging.disable) as pool:
        left = iter(tasks)
        running: set[Future[Result]] = set()
        while True:
            for task in islice(left, 2 * jobs - len(running)):
                running.add(pool.submit(work, task))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
