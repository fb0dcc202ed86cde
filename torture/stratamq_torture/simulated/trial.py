"""Many seeds of the simulated broker, spread over worker processes: one report.

A seed is run in one process from its first operation to its last, so that a seed that fails does
so again wherever it runs.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from stratamq_torture.report import Report
from stratamq_torture.seeds import Seeds, Tally, ranges
from stratamq_torture.simulated.profiles import DEFAULT, Profile
from stratamq_torture.simulated.shrink import kept, shrink
from stratamq_torture.simulated.simulation import Outcome, Simulation
from stratamq_torture.simulated.situations import EACH
from stratamq_torture.trial import Progress

SEEDS_OF_A_TASK = 10
LOSSES = frozenset({"lost", "seen", "rocketmq"})
"""Rules whose violation means that a message that a client relies on is lost."""


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


def run_seeds(seeds: Iterable[int], operations: int, profile: Profile = DEFAULT) -> Tally:
    """In this process, one after the other."""
    tally = Tally()
    for seed in seeds:
        tally.take(Simulation(seed, profile).run(operations))
    return tally


def simulate(options: SimulationOptions, progress: Progress | None = None) -> Report:
    """Run the seeds. `progress` is called with how many are done, and how many of them failed."""
    trial = Seeds("sim", LOSSES, options.seconds, progress)
    if options.keep:
        tally = _run_kept(options)
    else:
        tasks = ranges(options.first_seed, options.seeds, SEEDS_OF_A_TASK)
        work = partial(run_seeds, operations=options.operations)
        tally = trial.gather(work, tasks, options.jobs)
    trial.sum_up(tally)
    report = trial.report
    report.notes += situations_of(tally)
    for outcome in sorted(tally.failed, key=lambda outcome: outcome.seed):
        report.failures.append(f"seed {outcome.seed}: {outcome.violation}")
        report.failures += _how_to_see(options, outcome)
    return trial.ended()


def situations_of(tally: Tally) -> list[str]:
    """For people."""
    return [f"{tally.seeds_that_met[each]:,} of them: {each}" for each in EACH]


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
