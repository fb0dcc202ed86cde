"""`stratamq torture kill`: the real processes, killed and paused at random and at named points."""

from typing import Annotated

import typer

from stratamq_torture.commands.output import Output, OutputOption, finish
from stratamq_torture.commands.progress import counting


def kill(
    rounds: Annotated[int, typer.Option(min=1, help="rounds of load, kill, restart, check")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="which messages, and which kills when")] = 1,
    seconds: Annotated[
        float, typer.Option(min=0, help="begin no round after that; 0: all rounds")
    ] = 0,
    point: Annotated[str, typer.Option(help="only this point; `list` shows them all")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Kill the real services under load, start them again, and check every promise.

    Producers and consumers run over small files while services are killed with SIGKILL, paused
    with SIGSTOP and started in every order: at a segment roll, during a flush, a recovery, a
    rebuild, a stop. A round takes two to three seconds. Every third store runs under ASYNC_FLUSH,
    which a killed process survives as well.
    """
    from stratamq_torture.processes.kill import KillOptions, run_kills
    from stratamq_torture.processes.kill_points import POINTS

    if point == "list":
        for name, function in POINTS.items():
            typer.echo(f"{name:24}{function.__doc__}")
        return
    if point and point not in POINTS:
        raise typer.BadParameter(f"there is no point {point!r}: `--point list` shows them all")
    options = KillOptions(rounds, seed, seconds or None, point)
    with counting(rounds, "rounds") as progress:
        report = run_kills(options, progress)
    finish([report], output)
