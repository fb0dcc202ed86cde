"""`stratamq torture protocol`: every state of a small model of replication and promotion."""

import os
from typing import Annotated

import typer

from stratamq_torture.commands.output import Output, OutputOption, finish
from stratamq_torture.commands.progress import counting


def protocol(
    without: Annotated[
        list[str] | None,
        typer.Option(help="switch this rule off, and see what it is for; may be repeated"),
    ] = None,
    short: Annotated[bool, typer.Option("--short", help="only what takes seconds")] = False,
    jobs: Annotated[
        int, typer.Option(min=0, help="worker processes; 0: one for each processor")
    ] = 0,
    seconds: Annotated[
        float, typer.Option(min=0, help="begin no scope after that; 0: search them all")
    ] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Search every state of two and three members that append, acknowledge, crash, lose and restore
    disks, are promoted and removed, and check that no acknowledged message is ever missing.

    It is the protocol of docs/decisions/009, and none of the production code. A rule that is
    switched off shows the shortest way to a loss.
    """
    from stratamq_torture.protocol_model.rules import RULES
    from stratamq_torture.protocol_model.trial import LONG, SHORT, ProtocolOptions, check

    unknown = [name for name in without or () if name not in RULES]
    if unknown:
        raise typer.BadParameter(
            f"{', '.join(unknown)}: the rules are {', '.join(RULES)}", param_hint="--without"
        )
    scopes = SHORT if short else LONG
    options = ProtocolOptions(scopes, tuple(without or ()), jobs or os.cpu_count() or 1, seconds)
    with counting(len(scopes), "scopes") as progress:
        report = check(options, progress)
    finish([report], output)
