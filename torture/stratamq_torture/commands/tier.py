"""`stratamq torture tier`: the tier service's writing over a storage that fails, simulated."""

import logging
import os
from typing import Annotated

import typer

from stratamq_torture.commands.output import Output, OutputOption, finish
from stratamq_torture.commands.progress import counting


def tier(
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
    """Crash, pause and fence the writers of a tier, promote brokers with other histories, lose
    answers and tear writes, and check that the tier equals the log.

    The tier service's own steps run over a simulated storage, one event after the other. In the end
    every message that belongs in the tier is there once, byte for byte, and found by its key.
    """
    # The service warns about every fault that is planned for it.
    logging.disable()
    from stratamq_torture.seeds import SeedsOptions
    from stratamq_torture.tier.rules import RULES
    from stratamq_torture.tier.trial import TRIAL

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
