"""Many seeds of simulated brokers, spread over worker processes: one report."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from stratamq_torture.brokers.simulation import Outcome, Simulation
from stratamq_torture.report import Report
from stratamq_torture.simulated.workers import spread, until

SEEDS_OF_A_TASK = 5
LOSSES = frozenset({"lost", "seen", "replaced"})
"""Rules whose violation means that a message is gone that somebody relies on."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class BrokersOptions:
    """`seconds` 0: all seeds, however long it takes; otherwise no seed begins after that."""

    seeds: int = 100
    first_seed: int = 0
    jobs: int = 1
    operations: int = 100
    seconds: float = 0
    trace: bool = False


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
    failed: list[Outcome] = field(default_factory=list)

    def take(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.crash_points += outcome.crash_points
        self.kills += outcome.kills
        self.power_losses += outcome.power_losses
        self.promotions += outcome.promotions
        self.acknowledged += outcome.acknowledged
        self.situations.update(outcome.situations)
        if outcome.violation is not None:
            self.failed.append(outcome)

    def add(self, other: "Tally") -> None:
        self.seeds += other.seeds
        self.crash_points += other.crash_points
        self.kills += other.kills
        self.power_losses += other.power_losses
        self.promotions += other.promotions
        self.acknowledged += other.acknowledged
        self.situations.update(other.situations)
        self.failed += other.failed


def run_seeds(seeds: Iterable[int], operations: int) -> Tally:
    """In this process, one after the other."""
    tally = Tally()
    for seed in seeds:
        tally.take(Simulation(seed).run(operations))
    return tally


def simulate(options: BrokersOptions, progress: Progress | None = None) -> Report:
    """Run the seeds. `progress` hears how many are done, and how many of them failed."""
    started = time.monotonic()
    tally = Tally()
    work = partial(run_seeds, operations=options.operations)
    for part in spread(work, until(_tasks(options), options.seconds), options.jobs):
        tally.add(part)
        if progress is not None:
            progress(tally.seeds, len(tally.failed))
    report = Report(
        "brokers",
        seeds=tally.seeds,
        crash_points=tally.crash_points,
        kills=tally.kills,
        power_losses=tally.power_losses,
        promotions=tally.promotions,
        acknowledged_messages=tally.acknowledged,
        lost=sum(o.violation is not None and o.violation.rule in LOSSES for o in tally.failed),
    )
    report.notes += [f"{count:,} times: {what}" for what, count in sorted(tally.situations.items())]
    for outcome in sorted(tally.failed, key=lambda outcome: outcome.seed):
        report.failures.append(f"seed {outcome.seed}, {outcome.settings}: {outcome.violation}")
        report.failures += _how_to_see(options, outcome)
    report.seconds = time.monotonic() - started
    return report


def _tasks(options: BrokersOptions) -> Iterator[range]:
    end = options.first_seed + options.seeds
    for first in range(options.first_seed, end, SEEDS_OF_A_TASK):
        yield range(first, min(first + SEEDS_OF_A_TASK, end))


def _how_to_see(options: BrokersOptions, outcome: Outcome) -> Iterator[str]:
    """The command that runs a failing seed again, and what it would show if that was asked for."""
    command = f"stratamq torture brokers --seeds 1 --first-seed {outcome.seed}"
    yield f"  {command} --operations {options.operations} --trace"
    if options.trace:
        whole = Simulation(outcome.seed, trace=True).run(options.operations)
        yield from ("  " + line for line in whole.trace)
