"""`stratamq torture kill`: rounds of load, a kill at a named point, a restart, and the check."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from stratamq.files.clock import SystemClock
from stratamq_torture.processes.checker import Findings
from stratamq_torture.processes.kill_points import POINTS
from stratamq_torture.processes.services import ServiceFailedError
from stratamq_torture.processes.stage import Stage
from stratamq_torture.report import Report

ROUNDS_OF_A_STORE = 10
FLUSH_TYPES = ("SYNC_FLUSH", "SYNC_FLUSH", "ASYNC_FLUSH")
"""A killed process loses nothing under either; every third store flushes asynchronously."""
MESSAGES_BEFORE, MESSAGES_AFTER = 100, 50
LARGEST_SEED = 1 << 31

Progress = Callable[[int, int], None]
"""Told how many rounds are done, and how many lines tell of broken promises."""


@dataclass(frozen=True, slots=True)
class KillOptions:
    """`rounds` or `seconds`, whichever ends first. `point`: this one only."""

    rounds: int = 50
    seed: int = 1
    seconds: float | None = None
    point: str = ""


def run_kills(options: KillOptions, progress: Progress | None = None) -> Report:
    """The trial. The real processes decide what happens when: a seed brings the same acts on the
    same messages, not the same microseconds."""
    return _Trial(options, progress).run()


class _Trial:
    def __init__(self, options: KillOptions, progress: Progress | None) -> None:
        self._options = options
        self._progress = progress
        self._clock = SystemClock()
        self._report = Report("kill")
        self._chance = random.Random(options.seed)
        self._points: list[str] = []
        self._struck: Counter[str] = Counter()
        self._round = 0
        self._started_ns = self._clock.monotonic_ns()

    def run(self) -> Report:
        report = self._report
        stores = 0
        while self._more() and report.passed:
            self._play(stores)
            stores += 1
        report.seeds = stores
        report.rounds = self._round
        report.seconds = self._elapsed_s
        struck = ", ".join(f"{name} {count}" for name, count in sorted(self._struck.items()))
        report.notes.append(f"{self._round} rounds on {stores} stores: {struck}")
        return report

    @property
    def _elapsed_s(self) -> float:
        return (self._clock.monotonic_ns() - self._started_ns) / 1e9

    def _more(self) -> bool:
        limit_s = self._options.seconds
        in_time = limit_s is None or self._elapsed_s < limit_s
        return in_time and self._round < self._options.rounds

    def _play(self, number: int) -> None:
        """One store from its first message to its files."""
        flush = FLUSH_TYPES[number % len(FLUSH_TYPES)]
        settings = (f"commitlog.flush_disk_type={flush}",)
        stage = Stage(self._chance.randrange(LARGEST_SEED), settings)
        point = "the start of the store"
        try:
            with stage:
                for _ in range(ROUNDS_OF_A_STORE):
                    if not self._more():
                        break
                    point = self._next_point()
                    self._strike(stage, point)
                    self._found(stage, stage.check(), f"{point}, {flush}")
                    self._round += 1
                    if self._progress is not None:
                        self._progress(self._round, len(self._report.failures))
                    if not self._report.passed:
                        return
                self._found(stage, stage.finish(), f"the end of the store, {flush}")
        except ServiceFailedError as error:
            self._fail(stage, f"{point}, {flush}", [str(error)])
        finally:
            self._report.kills += stage.services.kills

    def _strike(self, stage: Stage, name: str) -> None:
        stage.grow(MESSAGES_BEFORE)
        POINTS[name](stage)
        stage.restore()
        stage.grow(MESSAGES_AFTER)
        self._struck[name] += 1

    def _next_point(self) -> str:
        """Every point once, in a random order, before one comes again."""
        if self._options.point:
            return self._options.point
        if not self._points:
            self._points = self._chance.sample(sorted(POINTS), len(POINTS))
        return self._points.pop()

    def _found(self, stage: Stage, findings: Findings, where: str) -> None:
        report = self._report
        if where.startswith("the end"):
            report.lost += len(findings.lost)
        else:
            report.acknowledged_messages += findings.acknowledged
            report.lost += len(findings.lost)
            report.duplicates += findings.duplicates
        if findings.sentences:
            self._fail(stage, where, findings.sentences)

    def _fail(self, stage: Stage, where: str, sentences: list[str]) -> None:
        stage.keep = True
        rounds = self._round + 1
        self._report.failures += [f"round {rounds}, {where}: {line}" for line in sentences]
        point = f" --point {self._options.point}" if self._options.point else ""
        self._report.failures.append(
            f"the store and what its services wrote are kept in {stage.directory}; again: "
            f"stratamq torture kill --seed {self._options.seed} --rounds {rounds}{point}"
        )
