"""Many seeds of simulated brokers, spread over worker processes: one report."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from stratamq_torture.brokers.simulation import Outcome, Simulation
from stratamq_torture.report import Report
from stratamq_torture.seeds import Seeds, Tally, ranges
from stratamq_torture.trial import Progress

SEEDS_OF_A_TASK = 5
LOSSES = frozenset({"lost", "seen", "replaced"})
"""Rules whose violation means that a message is gone that somebody relies on."""


@dataclass(frozen=True, slots=True)
class BrokersOptions:
    """`seconds` 0: all seeds, however long it takes; otherwise no seed begins after that."""

    seeds: int = 100
    first_seed: int = 0
    jobs: int = 1
    operations: int = 100
    seconds: float = 0
    trace: bool = False


def run_seeds(seeds: Iterable[int], operations: int) -> Tally:
    """In this process, one after the other."""
    tally = Tally()
    for seed in seeds:
        tally.take(Simulation(seed).run(operations))
    return tally


def simulate(options: BrokersOptions, progress: Progress | None = None) -> Report:
    """Run the seeds. `progress` is called with how many are done, and how many of them failed."""
    trial = Seeds("brokers", LOSSES, options.seconds, progress)
    tasks = ranges(options.first_seed, options.seeds, SEEDS_OF_A_TASK)
    work = partial(run_seeds, operations=options.operations)
    tally = trial.gather(work, tasks, options.jobs)
    trial.sum_up(tally)
    report = trial.report
    report.notes += [f"{count:,} times: {what}" for what, count in sorted(tally.situations.items())]
    for outcome in sorted(tally.failed, key=lambda outcome: outcome.seed):
        report.failures.append(f"seed {outcome.seed}, {outcome.settings}: {outcome.violation}")
        report.failures += _how_to_see(options, outcome)
    return trial.ended()


def _how_to_see(options: BrokersOptions, outcome: Outcome) -> Iterator[str]:
    """The command that runs a failing seed again, and what it would show if that was asked for."""
    command = f"stratamq torture brokers --seeds 1 --first-seed {outcome.seed}"
    yield f"  {command} --operations {options.operations} --trace"
    if options.trace:
        whole = Simulation(outcome.seed, trace=True).run(options.operations)
        yield from ("  " + line for line in whole.trace)
