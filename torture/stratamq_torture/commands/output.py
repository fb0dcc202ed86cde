"""How every trial ends: the table or the JSON object, and the exit code."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from stratamq.cli.dump_output import Output

if TYPE_CHECKING:
    from stratamq_torture.report import Report


OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="a table, or one JSON object as the last line")
]


def finish(reports: "Sequence[Report]", output: Output) -> None:
    """Show what was found; exit code 1 when a promise was broken."""
    from rich.console import Console

    from stratamq_torture.report import as_json, print_table

    if output is Output.JSON:
        sys.stdout.write(as_json(reports) + "\n")
    else:
        print_table(reports, Console(width=None if sys.stdout.isatty() else 160))
    if not all(report.passed for report in reports):
        raise typer.Exit(1)
