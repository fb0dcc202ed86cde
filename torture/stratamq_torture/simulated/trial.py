"""Many seeds of the simulated broker, spread over worker processes: one report.

A seed is run in one process from its first operation to its last, so that a seed that fails does
so again wherever it runs.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from stratamq_torture.report import Report
from stratamq_torture.simulated.profiles import DEFAULT, Profile
from stratamq_torture.simulated.shrink import kept, shrink
from stratamq_torture.simulated.simulation import Outcome, Simulation
from stratamq_torture.simulated.situations import EACH
from stratamq_torture.simulated.workers import spread, until

SEEDS_OF_A_TASK = 10
LOSSES = frozenset({"lost", "seen", "rocketmq"})
"""Rules whose violation means that a message is gone that somebody relies on."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """`seconds` 0: all seeds, however long it takes; otherwise no seed begins after that."""

    seeds: int = 200
    first_seed: int = 0
    jobs: int = 1
    operations: int = 150
    seconds: float = 0
    shrink: bool = False
    keep: tuple[int, ...] = ()
    """Only these operations of the first seed, by their numbers in its trace; none: all."""
    trace: bool = False


@dataclass(slots=True)
class Tally:
    """What some seeds came to. Crosses process borders, and adds up."""

    seeds: int = 0
    crash_points: int = 0
    kills: int = 0
    power_losses: int = 0
    acknowledged: int = 0
    situations: Counter[str] = field(default_factory=Counter)
    """In how many seeds each of them came up."""
    failed: list[Outcome] = field(default_factory=list)

    def take(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.crash_points += outcome.crash_points
        self.kills += outcome.kills
        self.power_losses += outcome.power_losses
        self.acknowledged += outcome.acknowledged
        self.situations.update(outcome.situations.keys())
        if outcome.violation is not None:
            self.failed.append(outcome)

    def add(self, other: "Tally") -> None:
        self.seeds += other.seeds
        self.crash_points += other.crash_points
        self.kills += other.kills
        self.power_losses += other.power_losses
        self.acknowledged += other.acknowledged
        self.situations.update(other.situations)
        self.failed += other.failed


def run_seeds(seeds: Iterable[int], operations: int, profile: Profile = DEFAULT) -> Tally:
    """In this process, one after the other."""
    tally = Tally()
    for seed in seeds:
        tally.take(Simulation(seed, profile).run(operations))
    return tally


def simulate(options: SimulationOptions, progress: Progress | None = None) -> Report:
    """Run the seeds. `progress` hears how many are done, and how many of them failed."""
    started = time.monotonic()
    if options.keep:
        tally = _run_kept(options)
    else:
        tasks = until(_tasks(options), options.seconds)
        work = partial(run_seeds, operations=options.operations)
        tally = gather(spread(work, tasks, options.jobs), progress)
    report = report_on("sim", tally)
    for outcome in sorted(tally.failed, key=lambda outcome: outcome.seed):
        report.failures.append(f"seed {outcome.seed}: {outcome.violation}")
        report.failures += _how_to_see(options, outcome)
    report.seconds = time.monotonic() - started
    return report


def report_on(trial: str, tally: Tally) -> Report:
    """The numbers; the failures are the caller's to name."""
    lost = sum(o.violation is not None and o.violation.rule in LOSSES for o in tally.failed)
    report = Report(
        trial,
        seeds=tally.seeds,
        crash_points=tally.crash_points,
        kills=tally.kills,
        power_losses=tally.power_losses,
        acknowledged_messages=tally.acknowledged,
        lost=lost,
    )
    report.notes += [f"{tally.situations[each]:,} of them: {each}" for each in EACH]
    return report


def _tasks(options: SimulationOptions) -> Iterator[range]:
    end = options.first_seed + options.seeds
    for first in range(options.first_seed, end, SEEDS_OF_A_TASK):
        yield range(first, min(first + SEEDS_OF_A_TASK, end))


def gather(tallies: Iterable[Tally], progress: Progress | None) -> Tally:
    """The sum of them; `progress` hears how it grows."""
    whole = Tally()
    for tally in tallies:
        whole.add(tally)
        if progress is not None:
            progress(whole.seeds, len(whole.failed))
    return whole


# --- one seed again ---


def _run_kept(options: SimulationOptions) -> Tally:
    """What `--shrink` left of a seed's operations."""
    tally = Tally()
    whole = Simulation(options.first_seed).run(options.operations)
    tally.take(Simulation(options.first_seed).replay(kept(whole, options.keep)))
    return tally


def _how_to_see(options: SimulationOptions, outcome: Outcome) -> Iterator[str]:
    """The command that runs a failing seed again, and what it would show if that was asked for."""
    command = f"stratamq torture sim --seeds 1 --first-seed {outcome.seed}"
    command += f" --operations {options.operations} --trace"
    numbers = options.keep
    if options.shrink and not numbers:
        numbers = tuple(shrink(outcome))
        yield f"  {len(numbers)} of its {len(outcome.operations)} operations are enough:"
    yield "  " + command + (" --keep " + ",".join(map(str, numbers)) if numbers else "")
    if not options.trace:
        return
    whole = Simulation(outcome.seed, trace=True)
    if numbers:
        operations = Simulation(outcome.seed).run(options.operations)
        traced = whole.replay(kept(operations, numbers))
    else:
        traced = whole.run(options.operations)
    yield from ("  " + line for line in traced.trace)
