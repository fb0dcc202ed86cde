"""`stratamq torture sim`: the whole broker on a simulated disk, crashed by chance."""

import logging
import os
from typing import Annotated

import typer

from stratamq_torture.commands.output import Output, OutputOption, finish
from stratamq_torture.commands.progress import counting


def sim(
    seeds: Annotated[int, typer.Option(min=1, help="how many random workloads to run")] = 200,
    first_seed: Annotated[int, typer.Option(min=0, help="the first of them")] = 0,
    jobs: Annotated[
        int, typer.Option(min=0, help="worker processes; 0: one for each processor")
    ] = 0,
    operations: Annotated[int, typer.Option(min=1, help="operations of each workload")] = 150,
    seconds: Annotated[
        float, typer.Option(min=0, help="begin no seed after that; 0: run them all")
    ] = 0,
    shrink: Annotated[
        bool, typer.Option("--shrink", help="leave out of a failing seed what it does not need")
    ] = False,
    keep: Annotated[
        str, typer.Option(help="run only these operations of the first seed: 1,2,17")
    ] = "",
    trace: Annotated[
        bool, typer.Option("--trace", help="show each operation of the seeds that fail")
    ] = False,
    enumerate_: Annotated[
        bool,
        typer.Option("--enumerate", help="instead of seeds: every workload of a few operations"),
    ] = False,
    depth: Annotated[
        int, typer.Option(min=1, max=3, help="with --enumerate: operations of a workload, at most")
    ] = 3,
    crashed: Annotated[
        int,
        typer.Option(
            min=0, max=3, help="with --enumerate: up to so many, each crash point of the last one"
        ),
    ] = 2,
    case: Annotated[str, typer.Option(help="with --enumerate: only this workload")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Crash the whole broker on a simulated disk, and check every promise after each start.

    Commit log, dispatcher and index run in one process on a disk, a kernel and a power supply that
    fail by chance. A seed decides everything: it fails again wherever it is run.
    """
    # The engines warn about every fault that is planned for them.
    logging.disable()
    jobs = jobs or os.cpu_count() or 1
    if enumerate_ or case:
        _enumerate(depth, min(crashed, depth), jobs, seconds, case, trace, output)
        return
    from stratamq_torture.simulated.trial import SimulationOptions, simulate

    options = SimulationOptions(
        seeds=1 if keep else seeds,
        first_seed=first_seed,
        jobs=jobs,
        operations=operations,
        seconds=seconds,
        shrink=shrink,
        keep=_numbers(keep),
        trace=trace,
    )
    with counting(options.seeds, "seeds") as progress:
        report = simulate(options, progress)
    finish([report], output)


def _enumerate(
    depth: int, crashed: int, jobs: int, seconds: float, case: str, trace: bool, output: Output
) -> None:
    from stratamq_torture.simulated.enumeration import Case
    from stratamq_torture.simulated.exhaustive import EnumerationOptions, enumerate_all

    try:
        case = str(Case.parse(case)) if case else ""
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--case") from None
    options = EnumerationOptions(depth, crashed, jobs, seconds, case, trace)
    with counting(None, "cases") as progress:
        report = enumerate_all(options, progress)
    finish([report], output)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(word) for word in text.split(",") if word)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of numbers", param_hint="--keep") from None
    if numbers and min(numbers) < 1:
        raise typer.BadParameter("operations are numbered from 1", param_hint="--keep")
    return numbers
