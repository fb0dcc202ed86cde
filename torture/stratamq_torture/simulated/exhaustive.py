"""The enumerated workloads as a trial: all of them, spread over worker processes."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from stratamq_torture.report import Report
from stratamq_torture.seeds import Seeds, Tally
from stratamq_torture.simulated.enumeration import (
    Case,
    cases,
    run_case,
    workloads,
)
from stratamq_torture.simulated.simulation import Outcome
from stratamq_torture.simulated.trial import LOSSES, situations_of
from stratamq_torture.trial import Progress

WORKLOADS_OF_A_TASK = 4


@dataclass(frozen=True, slots=True)
class EnumerationOptions:
    """`crashed` ≤ `operations`: workloads of up to so many have a case for each crash point of
    their last operation. Crashes between operations are operations themselves."""

    operations: int = 3
    crashed: int = 2
    jobs: int = 1
    seconds: float = 0
    case: str = ""
    """Only this one, as a failure names it."""
    trace: bool = False


def run_workloads(words: list[tuple[str, ...]], crashed: int) -> Tally:
    """All cases of some workloads, in this process."""
    tally = Tally()
    for each in words:
        for case in cases(each) if len(each) <= crashed else (Case(each),):
            _take(tally, case)
    return tally


def enumerate_all(options: EnumerationOptions, progress: Progress | None = None) -> Report:
    """Run the cases. `progress` is called with how many are done, and how many of them failed."""
    trial = Seeds("sim, enumerated", LOSSES, options.seconds, progress)
    if options.case:
        tally = Tally()
        shown = _take(tally, Case.parse(options.case), trace=options.trace).trace
    else:
        work = partial(run_workloads, crashed=options.crashed)
        tally = trial.gather(work, _tasks(options.operations), options.jobs)
        shown = []
    trial.sum_up(tally)
    report = trial.report
    report.notes += situations_of(tally)
    for outcome in tally.failed:
        report.failures.append(f"{outcome.name}: {outcome.violation}")
        report.failures.append(f"  stratamq torture sim --case {outcome.name} --trace")
    report.notes.insert(0, f"{tally.seeds:,} cases; the column of seeds counts them")
    report.notes += shown
    return trial.ended()


def _take(tally: Tally, case: Case, *, trace: bool = False) -> Outcome:
    outcome = run_case(case, trace=trace)
    outcome.name = str(case)
    tally.take(outcome)
    return outcome


def _tasks(operations: int) -> Iterator[list[tuple[str, ...]]]:
    task: list[tuple[str, ...]] = []
    for words in workloads(operations):
        task.append(words)
        if len(task) == WORKLOADS_OF_A_TASK:
            yield task
            task = []
    if task:
        yield task
