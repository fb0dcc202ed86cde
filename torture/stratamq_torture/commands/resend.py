"""`stratamq torture resend`: kills and cut connections under producers that send again."""

from typing import Annotated

import typer

from stratamq_torture.commands.output import Output, OutputOption, finish
from stratamq_torture.commands.progress import counting


def resend(
    rounds: Annotated[int, typer.Option(min=1, help="kills and cuts")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="which messages, and which act when")] = 1,
    seconds: Annotated[
        float, typer.Option(min=0, help="begin no round after that; 0: all rounds")
    ] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Kill the log service and cut connections under load: every message is stored once.

    Producers of every kind send again what was not answered, through a proxy that resets their
    connections, also after it has withheld the answers. At the end the whole log is compared with
    their answers, message by message and sequence by sequence.
    """
    from stratamq_torture.processes.resend import ResendOptions, run_resends

    with counting(rounds, "rounds") as progress:
        report = run_resends(ResendOptions(rounds, seed, seconds or None), progress)
    finish([report], output)
