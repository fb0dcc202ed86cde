"""`stratamq torture disk`: the real services on a disk that is full, read-only or failing."""

from typing import Annotated

import typer

from stratamq_torture.commands.output import Output, OutputOption, finish
from stratamq_torture.commands.progress import counting


def disk(
    act: Annotated[str, typer.Option(help="only this act; `list` shows them all")] = "",
    flush: Annotated[str, typer.Option(help="only SYNC_FLUSH or only ASYNC_FLUSH")] = "",
    seed: Annotated[int, typer.Option(min=0, help="which messages")] = 1,
    seconds: Annotated[
        float, typer.Option(min=0, help="begin no act after that; 0: all of them")
    ] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run the real services on a volume that gets full, turns read-only or fails, under load.

    Each act has a small ext4 volume of its own on a loop device. Full is a level: writes are
    refused with the reason, and taken again without a restart. A failed flush is the end: nothing
    more is written, health, metrics and status report why, reads continue, and a restart recovers.
    Errors of single system calls are injected by strace. Needs root; skipped elsewhere.
    """
    from stratamq_torture.disks.acts import ACTS
    from stratamq_torture.disks.trial import FLUSH_TYPES, DiskOptions, run_disks

    if act == "list":
        for name, function in ACTS.items():
            typer.echo(f"{name:36}{' '.join((function.__doc__ or '').split())}")
        return
    if act and act not in ACTS:
        raise typer.BadParameter(f"there is no act {act!r}: `--act list` shows them all")
    if flush and flush not in FLUSH_TYPES:
        raise typer.BadParameter(f"{flush!r} is neither SYNC_FLUSH nor ASYNC_FLUSH")
    options = DiskOptions(act, flush, seed, seconds or None)
    total = (1 if act else len(ACTS)) * (1 if flush else len(FLUSH_TYPES))
    with counting(total, "acts") as progress:
        report = run_disks(options, progress)
    finish([report], output)
