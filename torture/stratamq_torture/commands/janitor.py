"""`stratamq torture janitor`: retention under a wall clock that jumps, simulated."""

import logging
import os
from typing import Annotated

import typer

from stratamq_torture.commands.output import Output, OutputOption, finish
from stratamq_torture.commands.progress import counting


def janitor(
    seeds: Annotated[int, typer.Option(min=1, help="how many random workloads to run")] = 100,
    first_seed: Annotated[int, typer.Option(min=0, help="the first of them")] = 0,
    jobs: Annotated[
        int, typer.Option(min=0, help="worker processes; 0: one for each processor")
    ] = 0,
    operations: Annotated[int, typer.Option(min=1, help="operations of each workload")] = 60,
    seconds: Annotated[
        float, typer.Option(min=0, help="begin no seed after that; 0: run them all")
    ] = 0,
    without: Annotated[
        list[str] | None,
        typer.Option(help="switch this rule off, and see what it is for; may be repeated"),
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="show each operation of the seeds that fail")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Put the wall clock forward and back, between looks and within them, and check that nothing
    expires by a time that the clock has shown for less than the grace.

    The janitor's own looks and the log's own engine run in a simulated time.
    """
    # The watch reports every jump that is planned for it.
    logging.disable()
    from stratamq_torture.janitor.simulation import RULES
    from stratamq_torture.janitor.trial import TRIAL
    from stratamq_torture.seeds import SeedsOptions

    unknown = [name for name in without or () if name not in RULES]
    if unknown:
        raise typer.BadParameter(
            f"{', '.join(unknown)}: the rules are {', '.join(RULES)}", param_hint="--without"
        )
    workers = jobs or os.cpu_count() or 1
    options = SeedsOptions(
        seeds, first_seed, workers, operations, seconds, trace, tuple(without or ())
    )
    with counting(options.seeds, "seeds") as progress:
        report = TRIAL.simulate(options, progress)
    finish([report], output)
