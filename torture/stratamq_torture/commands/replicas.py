"""`stratamq torture replicas`: a real master and its slave; the master is lost, again and again."""

from typing import Annotated

import typer

from stratamq_torture.commands.output import Output, OutputOption, finish
from stratamq_torture.commands.progress import counting


def replicas(
    rounds: Annotated[
        int, typer.Option(min=1, help="rounds of load, loss, promotion, return, check")
    ] = 20,
    seed: Annotated[int, typer.Option(min=0, help="which messages, and which losses when")] = 1,
    seconds: Annotated[
        float, typer.Option(min=0, help="begin no round after that; 0: all rounds")
    ] = 0,
    loss: Annotated[str, typer.Option(help="only this loss; `list` shows them all")] = "",
    async_master: Annotated[
        bool, typer.Option("--async-master", help="must fail: shows that the trial can see it")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Lose the master of two real brokers under load, promote its slave, and check every promise.

    A SYNC_MASTER and its slave, all their services; producers and consumers run while the master is
    killed with SIGKILL, paused, or cut off from its slave. The slave is promoted and takes
    messages; the old master comes back, steps down, keeps aside what was never promised, and
    follows. Every acknowledged message is there then, once, byte for byte, at its place, on both;
    queue offsets are dense; what consumers saw is still there; both logs are the same bytes. A
    round takes some ten seconds.
    """
    from stratamq.client import Role
    from stratamq_torture.replicas.losses import LOSSES
    from stratamq_torture.replicas.trial import ReplicasOptions, run_replicas

    if loss == "list":
        for name, one in LOSSES.items():
            typer.echo(f"{name:12}{one.doc}")
        return
    if loss and loss not in LOSSES:
        raise typer.BadParameter(f"there is no loss {loss!r}: `--loss list` shows them all")
    role = Role.ASYNC_MASTER if async_master else Role.SYNC_MASTER
    options = ReplicasOptions(rounds, seed, seconds or None, loss, role)
    with counting(rounds, "rounds") as progress:
        report = run_replicas(options, progress)
    finish([report], output)
