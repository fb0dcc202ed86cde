"""`stratamq torture brokers`: two or three brokers on simulated disks, crashed and promoted."""

import logging
import os
from typing import Annotated

import typer

from stratamq_torture.commands.output import Output, OutputOption, finish
from stratamq_torture.commands.progress import counting


def brokers(
    seeds: Annotated[int, typer.Option(min=1, help="how many random workloads to run")] = 100,
    first_seed: Annotated[int, typer.Option(min=0, help="the first of them")] = 0,
    jobs: Annotated[
        int, typer.Option(min=0, help="worker processes; 0: one for each processor")
    ] = 0,
    operations: Annotated[int, typer.Option(min=1, help="operations of each workload")] = 100,
    seconds: Annotated[
        float, typer.Option(min=0, help="begin no seed after that; 0: run them all")
    ] = 0,
    trace: Annotated[
        bool, typer.Option("--trace", help="show each operation of the seeds that fail")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Crash, cut off, replace and promote two or three brokers of one name, and check that what was
    promised is on the broker that serves.

    Their logs and both machines of replication run in one process, on disks, power supplies and a
    network that fail by chance. In the end all logs are equal, byte for byte.
    """
    # The engines warn about every fault that is planned for them.
    logging.disable()
    from stratamq_torture.brokers.trial import TRIAL
    from stratamq_torture.seeds import SeedsOptions

    options = SeedsOptions(
        seeds=seeds,
        first_seed=first_seed,
        jobs=jobs or os.cpu_count() or 1,
        operations=operations,
        seconds=seconds,
        trace=trace,
    )
    with counting(options.seeds, "seeds") as progress:
        report = TRIAL.simulate(options, progress)
    finish([report], output)
