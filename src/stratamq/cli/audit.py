"""`stratamq audit`: whether a store's files keep what a service promises, without a broker."""

from pathlib import Path
from typing import Annotated

import typer

from stratamq.cli.dump_output import Output
from stratamq.cli.listings import show
from stratamq.cli.options import DEFAULT, OPERATORS, DataOption, OutputOption
from stratamq.service.installed import delivery_audit

FAULT = ("fault",)
COUNT = ("what", "count")


def register(app: typer.Typer) -> None:
    audit = typer.Typer(
        name="audit",
        help="Check what a service did, by the files of a store.",
        no_args_is_help=True,
    )
    audit.callback()(_commands)
    audit.command("delivery")(delivery)
    app.add_typer(audit, rich_help_panel=OPERATORS)


def _commands() -> None:
    """A group, though it has one command."""


def delivery(
    data: DataOption = DEFAULT,
    settled: Annotated[
        bool,
        typer.Option("--settled", help="Report also what was due at the log's end and is owed."),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check every delayed message, transaction and shared group in a log.

    Reports what was delivered early, twice, changed, after a rollback or without a commit, what was
    finished twice, and what was handed out after it was finished or to two workers at once. It
    reads the records of the delivery service, and shares no code with what writes them. `--settled`
    is for a store whose delivery service had nothing more to do when it stopped.

    Exit codes: 0 everything holds, 1 something does not.
    """
    found = delivery_audit().audit(Path(data), settled=settled)
    rows = [{"kind": "fault", "fault": sentence} for sentence in found.faults]
    counted = [
        {"kind": "count", "what": what, "count": count}
        for what, count in sorted(found.counts.items())
    ]
    show(output, COUNT, counted, "nothing was delivered later")
    show(output, FAULT, rows, "no fault")
    if rows:
        raise typer.Exit(1)
