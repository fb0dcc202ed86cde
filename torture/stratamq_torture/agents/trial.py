"""Many seeds of agents, spread over worker processes: one report."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from stratamq_torture.agents.simulation import Outcome, Simulation
from stratamq_torture.report import Report
from stratamq_torture.seeds import Seeds, Tally, ranges
from stratamq_torture.trial import Progress

SEEDS_OF_A_TASK = 20
LOSSES = frozenset({"two masters"})
"""What one master has answered PUT_OK the other does not have."""


@dataclass(frozen=True, slots=True)
class AgentsOptions:
    """`seconds` 0: all seeds, however long it takes; otherwise no seed begins after that.
    `without`: names of `RULES`."""

    seeds: int = 100
    first_seed: int = 0
    jobs: int = 1
    operations: int = 60
    seconds: float = 0
    trace: bool = False
    without: tuple[str, ...] = ()


def run_seeds(seeds: Iterable[int], operations: int, without: frozenset[str]) -> Tally:
    """In this process, one after the other."""
    tally = Tally()
    for seed in seeds:
        tally.take(Simulation(seed, without=without).run(operations))
    return tally


def simulate(options: AgentsOptions, progress: Progress | None = None) -> Report:
    """Run the seeds. `progress` is called with how many are done, and how many of them failed."""
    trial = Seeds("agents", LOSSES, options.seconds, progress)
    tasks = ranges(options.first_seed, options.seeds, SEEDS_OF_A_TASK)
    without = frozenset(options.without)
    work = partial(run_seeds, operations=options.operations, without=without)
    tally = trial.gather(work, tasks, options.jobs)
    trial.sum_up(tally)
    report = trial.report
    report.notes += [f"{count:,} times: {what}" for what, count in sorted(tally.situations.items())]
    for outcome in sorted(tally.failed, key=lambda outcome: outcome.seed):
        report.failures.append(f"seed {outcome.seed}, {outcome.settings}: {outcome.violation}")
        report.failures += _how_to_see(options, outcome)
    return trial.ended()


def _how_to_see(options: AgentsOptions, outcome: Outcome) -> Iterator[str]:
    """The command that runs a failing seed again, and what it would show if that was asked for."""
    command = f"stratamq torture agents --seeds 1 --first-seed {outcome.seed}"
    rules = "".join(f" --without {name}" for name in options.without)
    yield f"  {command} --operations {options.operations}{rules} --trace"
    if options.trace:
        whole = Simulation(outcome.seed, trace=True, without=frozenset(options.without))
        yield from ("  " + line for line in whole.run(options.operations).trace)
