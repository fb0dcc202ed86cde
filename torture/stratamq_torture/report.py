"""What a trial found: the same few numbers for every trial, as a table or as one JSON object."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(slots=True)
class Report:
    """One trial. Numbers of things that were done, and `lost`, which must stay 0."""

    trial: str
    seeds: int = 0
    rounds: int = 0
    crash_points: int = 0
    kills: int = 0
    power_losses: int = 0
    promotions: int = 0
    damaged_files: int = 0
    acknowledged_messages: int = 0
    lost: int = 0
    duplicates: int = 0
    """Copies of messages beyond the first: there are none."""
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    """Each broken promise in a sentence with the command that repeats it."""
    skipped: str = ""
    """Why this trial did not run here; empty when it did."""
    notes: list[str] = field(default_factory=list)
    """What a reader should know beside the numbers."""

    @property
    def passed(self) -> bool:
        return not self.failures and self.lost == 0


COUNTS = tuple(each.name for each in fields(Report) if each.type in (int, "int"))


def total(reports: Iterable[Report]) -> dict[str, Any]:
    """The object that every `stratamq torture` command prints last: sums, and each trial."""
    trials = list(reports)
    sums: dict[str, Any] = {name: sum(getattr(t, name) for t in trials) for name in COUNTS}
    sums["passed"] = all(trial.passed for trial in trials)
    sums["trials"] = [asdict(trial) for trial in trials]
    return sums


def as_json(reports: Iterable[Report]) -> str:
    """One line."""
    return json.dumps(total(reports), separators=(",", ":"))


def print_table(reports: Iterable[Report], console: Console) -> None:
    """A row for each trial, then what failed, was skipped, or should be known."""
    table = Table(title="Nothing acknowledged is ever lost")
    table.add_column("trial")
    for name in COUNTS:
        table.add_column(name.replace("_", " "), justify="right")
    table.add_column("seconds", justify="right")
    table.add_column("result")
    remarks: list[str] = []
    for trial in reports:
        numbers = [f"{getattr(trial, name):,}" if not trial.skipped else "" for name in COUNTS]
        result = "skipped" if trial.skipped else "passed" if trial.passed else "[bold red]FAILED"
        table.add_row(trial.trial, *numbers, f"{trial.seconds:.0f}", result)
        if trial.skipped:
            remarks.append(f"{trial.trial}: skipped: {trial.skipped}")
        remarks += [f"{trial.trial}: {line}" for line in (*trial.failures, *trial.notes)]
    console.print(table)
    for remark in remarks:
        console.print(remark, markup=False, highlight=False, soft_wrap=True)
