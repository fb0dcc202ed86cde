"""`stratamq clock`: whether the log believes the machine's wall clock."""

from typing import Annotated

import typer

from stratamq.cli.options import HERE, OPERATORS, BrokerTarget
from stratamq.option_groups import option_groups


def register(app: typer.Typer) -> None:
    app.command("clock", rich_help_panel=OPERATORS)(clock)


@option_groups
def clock(
    place: BrokerTarget = HERE,
    confirm: Annotated[
        bool,
        typer.Option(
            "--confirm",
            help="Confirm that the wall clock is right; messages are stored under its time.",
        ),
    ] = False,
) -> None:
    """Show whether messages are stored under the wall clock's time or, after it jumped ahead, under
    the log's own time.

    Store times never go back: confirm only a clock that is right. Exit code 1 while the clock is
    doubted.
    """
    with place.client() as client:
        if confirm:
            client.admin.trust_clock()
        doubt = client.log_state().clock_doubt
    typer.echo(doubt or "messages are stored under the wall clock's time")
    if doubt:
        raise typer.Exit(1)
