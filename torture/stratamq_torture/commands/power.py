"""`stratamq torture power`: the power goes while the real processes work."""

from typing import Annotated

import typer

from stratamq_torture.commands.output import Output, OutputOption, finish
from stratamq_torture.commands.progress import counting


def power(
    rounds: Annotated[int, typer.Option(min=1, help="rounds of load, power loss, check")] = 20,
    seed: Annotated[
        int, typer.Option(min=0, help="which messages, when the power goes, what the disk keeps")
    ] = 1,
    seconds: Annotated[
        float, typer.Option(min=0, help="begin no round after that; 0: all rounds")
    ] = 0,
    async_flush: Annotated[
        bool, typer.Option("--async-flush", help="lose only what is newer than the flush interval")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take the power away from the real services, start them again, and check every promise.

    The store is on a FUSE file system that forgets what was not synced: nothing, everything or a
    random part of it survives. Under sync flush nothing acknowledged may be missing. With
    --async-flush the loss must be the newest part, bounded by the flush interval, and is reported.
    Needs /dev/fuse, fuse3 and mfusepy; reports that and does nothing where one is missing.
    """
    from stratamq_torture.processes.power import PowerOptions, run_power_losses

    flush = "ASYNC_FLUSH" if async_flush else "SYNC_FLUSH"
    options = PowerOptions(rounds, seed, flush, seconds or None)
    with counting(rounds, "rounds") as progress:
        report = run_power_losses(options, progress)
    finish([report], output)
