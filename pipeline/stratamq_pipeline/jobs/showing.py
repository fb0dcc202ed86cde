"""What a job prints: each step while it works, and then what was done."""

import sys
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from stratamq_pipeline.jobs.summary import Progress, Summary


class JobOutput(StrEnum):
    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[
    JobOutput,
    typer.Option("--output", "-o", help="Print a table, or one JSON object as the last line."),
]


def show(work: "Callable[[Progress], Summary]", output: JobOutput) -> None:
    """Show each step on standard error, with the time since the start, and then what was done; exit
    code 1 when the job requires it."""
    from rich.console import Console

    from stratamq.files.clock import SystemClock
    from stratamq_pipeline.jobs.summary import as_json, print_table

    errors, clock = Console(stderr=True), SystemClock()
    start = clock.monotonic_ns()

    def progress(what: str) -> None:
        if errors.is_terminal or output is JobOutput.TABLE:
            seconds = (clock.monotonic_ns() - start) / 1e9
            errors.print(f"{seconds:7.1f} s  {what}", markup=False, highlight=False)

    summary = work(progress)
    if output is JobOutput.JSON:
        sys.stdout.write(as_json(summary) + "\n")
    else:
        print_table(summary, Console(width=None if sys.stdout.isatty() else 160))
    if summary.failed:
        raise typer.Exit(1)
