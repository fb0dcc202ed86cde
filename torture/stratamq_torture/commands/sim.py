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
    output: OutputOption = Output.TABLE,
) -> None:
    """Crash the whole broker on a simulated disk, and check every promise after each start.

    Commit log, dispatcher and index run in one process on a disk, a kernel and a power supply that
    fail by chance. A seed decides everything: it fails again wherever it is run.
    """
    from stratamq_torture.simulated.trial import SimulationOptions, simulate

    # The engines warn about every fault that is planned for them.
    logging.disable()
    options = SimulationOptions(
        seeds=1 if keep else seeds,
        first_seed=first_seed,
        jobs=jobs or os.cpu_count() or 1,
        operations=operations,
        seconds=seconds,
        shrink=shrink,
        keep=_numbers(keep),
        trace=trace,
    )
    with counting(options.seeds, "seeds") as progress:
        report = simulate(options, progress)
    finish([report], output)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(word) for word in text.split(",") if word)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of numbers", param_hint="--keep") from None
    if numbers and min(numbers) < 1:
        raise typer.BadParameter("operations are numbered from 1", param_hint="--keep")
    return numbers
