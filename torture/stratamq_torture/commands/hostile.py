"""`stratamq torture hostile`: torn messages on the replication port and on append streams."""

from typing import Annotated

import typer

from stratamq_torture.commands.output import Output, OutputOption, finish
from stratamq_torture.commands.progress import counting


def hostile(
    messages: Annotated[int, typer.Option(min=1, help="half to each port")] = 1_000_000,
    seed: Annotated[int, typer.Option(min=0, help="what is torn, and how")] = 1,
    seconds: Annotated[
        float, typer.Option(min=0, help="begin nothing after that; 0: all messages")
    ] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Send nearly valid bytes to the replication port and to append streams: others are not harmed.

    In the end the services are the processes that they were, have not grown, and the log holds what
    was acknowledged, of an honest client beside them and of the torn batches that were taken.
    """
    from stratamq_torture.processes.hostile import HostileOptions, run_hostile

    with counting(messages, "messages") as progress:
        report = run_hostile(HostileOptions(messages, seed, seconds or None), progress)
    finish([report], output)
