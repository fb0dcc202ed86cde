"""How a job ends: the same few facts as a table or as one JSON object."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

Progress = Callable[[str], None]
"""Called with a few words about a job's next stage."""


def silent(what: str) -> None:
    """Progress is not shown."""


@dataclass(slots=True)
class Summary:
    """`facts` are numbers and words by name; `rows` what there is a list of, all alike."""

    job: str
    facts: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    rows_title: str = ""
    notes: list[str] = field(default_factory=list)
    failed: bool = False
    """The command ends with exit code 1."""


def as_json(summary: Summary) -> str:
    """One line."""
    values: dict[str, Any] = {"job": summary.job, **summary.facts}
    if summary.rows_title:
        values[summary.rows_title] = summary.rows
    if summary.notes:
        values["notes"] = summary.notes
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False)


def print_table(summary: Summary, console: Console) -> None:
    table = Table(title=f"pipeline {summary.job}", show_header=False)
    for name, value in summary.facts.items():
        table.add_row(name.replace("_", " "), _text(value))
    console.print(table)
    if summary.rows:
        below = Table(title=summary.rows_title.replace("_", " "))
        for name, value in summary.rows[0].items():
            justify = "right" if isinstance(value, int | float) else "left"
            below.add_column(name.replace("_", " "), justify=justify)  # type: ignore[arg-type]
        for row in summary.rows:
            below.add_row(*(_text(value) for value in row.values()))
        console.print(below)
    for note in summary.notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
