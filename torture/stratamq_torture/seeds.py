"""Trials of many seeds or workloads in worker processes: what they came to, as one report.

Each is run in one process from its first operation to its last, so that one that fails does so
again wherever it runs.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from stratamq_torture.report import Report
from stratamq_torture.simulated.model import Violation
from stratamq_torture.trial import Progress, Task, Trial, spread

COUNTED = ("crash_points", "kills", "power_losses", "promotions", "acknowledged")


@dataclass(slots=True)
class Outcome:
    """What one seed came to. Crosses process borders. `settings`: what the seed chose, for people;
    `situations`: how often each came up."""

    seed: int
    violation: Violation | None = None
    settings: str = ""
    crash_points: int = 0
    kills: int = 0
    power_losses: int = 0
    promotions: int = 0
    acknowledged: int = 0
    situations: Counter[str] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Tally:
    """What some seeds came to. Crosses process borders, and adds up."""

    seeds: int = 0
    crash_points: int = 0
    kills: int = 0
    power_losses: int = 0
    promotions: int = 0
    acknowledged: int = 0
    situations: Counter[str] = field(default_factory=Counter)
    """How often each of them came up."""
    seeds_that_met: Counter[str] = field(default_factory=Counter)
    """In how many seeds each of them came up."""
    failed: list[Any] = field(default_factory=list)
    """Outcomes with a violation."""

    def take(self, outcome: Any) -> None:
        self.seeds += 1
        self._sum(outcome)
        self.seeds_that_met.update(outcome.situations.keys())
        if outcome.violation is not None:
            self.failed.append(outcome)

    def add(self, other: "Tally") -> None:
        self.seeds += other.seeds
        self._sum(other)
        self.seeds_that_met.update(other.seeds_that_met)
        self.failed += other.failed

    def _sum(self, other: Any) -> None:
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name, 0))
        self.situations.update(other.situations)


class Seeds(Trial):
    """`losses`: rules whose violation means that a message that a client relies on is lost."""

    def __init__(
        self, name: str, losses: frozenset[str], seconds: float, progress: Progress | None
    ) -> None:
        super().__init__(name, seconds, progress)
        self._losses = losses

    def gather(self, work: Callable[[Task], Tally], tasks: Iterable[Task], jobs: int) -> Tally:
        """The sum of all tasks that begin in time."""
        whole = Tally()
        for tally in spread(work, self.within(tasks), jobs):
            whole.add(tally)
            self.count(tally.seeds, len(whole.failed))
        return whole

    def sum_up(self, tally: Tally) -> None:
        """The report's numbers; the failures are the caller's to name."""
        report = self.report
        report.seeds = tally.seeds
        report.acknowledged_messages = tally.acknowledged
        for name in ("crash_points", "kills", "power_losses", "promotions"):
            setattr(report, name, getattr(tally, name))
        report.lost = sum(outcome.violation.rule in self._losses for outcome in tally.failed)


def ranges(first: int, count: int, size: int) -> Iterator[range]:
    """`count` seeds from `first` on, `size` to a task."""
    for begin in range(first, first + count, size):
        yield range(begin, min(begin + size, first + count))


@dataclass(frozen=True, slots=True)
class SeedsOptions:
    """`seconds` 0: all seeds, however long it takes; otherwise no seed begins after that.
    `without`: names of rules that do not hold."""

    seeds: int = 100
    first_seed: int = 0
    jobs: int = 1
    operations: int = 60
    seconds: float = 0
    trace: bool = False
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SeedsTrial:
    """A trial `stratamq torture NAME` of simulations by their seeds.

    `new(seed, trace=…, without=…)` makes one, whose `run(operations)` returns an `Outcome`; it
    crosses process borders. `losses`: rules whose violation means that a message that a client
    relies on is lost. `at_once`: seeds of a task of a worker.
    """

    name: str
    new: Callable[..., Any]
    losses: frozenset[str]
    at_once: int = 20

    def simulate(self, options: SeedsOptions, progress: Progress | None = None) -> Report:
        """Run the seeds. `progress` is called with how many are done, and how many failed."""
        trial = Seeds(self.name, self.losses, options.seconds, progress)
        tasks = ranges(options.first_seed, options.seeds, self.at_once)
        tally = trial.gather(partial(self._run, options=options), tasks, options.jobs)
        trial.sum_up(tally)
        report = trial.report
        situations = sorted(tally.situations.items())
        report.notes += [f"{count:,} times: {what}" for what, count in situations]
        for outcome in sorted(tally.failed, key=lambda outcome: outcome.seed):
            report.failures.append(f"seed {outcome.seed}, {outcome.settings}: {outcome.violation}")
            report.failures += self._how_to_see(options, outcome.seed)
        return trial.ended()

    def _run(self, seeds: Iterable[int], options: SeedsOptions) -> Tally:
        """In this process, one after the other."""
        tally = Tally()
        for seed in seeds:
            tally.take(self._one(seed, options, trace=False))
        return tally

    def _one(self, seed: int, options: SeedsOptions, *, trace: bool) -> Outcome:
        rules = {"without": frozenset(options.without)} if options.without else {}
        outcome: Outcome = self.new(seed, trace=trace, **rules).run(options.operations)
        return outcome

    def _how_to_see(self, options: SeedsOptions, seed: int) -> Iterator[str]:
        """The command that runs a failing seed again, and what it would show if that was asked."""
        command = f"stratamq torture {self.name} --seeds 1 --first-seed {seed}"
        rules = "".join(f" --without {name}" for name in options.without)
        yield f"  {command} --operations {options.operations}{rules} --trace"
        if options.trace:
            yield from ("  " + line for line in self._one(seed, options, trace=True).trace)
