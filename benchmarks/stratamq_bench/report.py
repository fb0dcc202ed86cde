"""What a benchmark found: one record for each case, as a table for people or JSON for programs."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from rich.console import Console
from rich.table import Table

from stratamq_bench.machine import describe


@dataclass(frozen=True, slots=True)
class Floor:
    """The unavoidable work, measured in the same minute."""

    name: str
    messages_per_s: float
    cpu_us_per_message: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    """`ratio` is of rates, or, where `bar_is` is "at most", of CPU per message."""

    case: str
    messages_per_s: float
    bytes_per_s: float
    floor: Floor
    ratio: float
    cpu_us_per_message: Mapping[str, float]
    bar: float | None = None
    bar_is: str = "at least"
    p50_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    pss_mb: float | None = None
    messages: int = 0
    """How many were measured and checked."""
    note: str = ""

    @property
    def cpu_ratio(self) -> float | None:
        """The floor's CPU per message by the case's, all processes together. Where other programs
        share the machine it moves less than `ratio`."""
        floor, case = sum(self.floor.cpu_us_per_message.values()), self.cpu_us_per_message
        return floor / sum(case.values()) if floor and sum(case.values()) else None

    @property
    def met(self) -> bool | None:
        if self.bar is None:
            return None
        return self.ratio <= self.bar if self.bar_is == "at most" else self.ratio >= self.bar


def as_json(cases: Sequence[Case]) -> str:
    document = {
        "machine": asdict(describe()),
        "cases": [
            _tidy(asdict(case) | {"cpu_ratio": case.cpu_ratio, "met": case.met}) for case in cases
        ],
    }
    return json.dumps(document)


def print_table(cases: Sequence[Case], console: Console) -> None:
    machine = describe()
    table = Table(title=f"{machine.cpu}, {machine.cores} cores")
    table.add_column("case")
    for column in ("messages/s", "MB/s", "CPU µs/message", "floor", "floor/s", "floor CPU"):
        table.add_column(column, justify="right")
    for column in ("CPU ratio", "ratio", "bar", "met"):
        table.add_column(column, justify="right")
    for case in cases:
        met = {True: "[green]yes[/]", False: "[red]no[/]", None: "–"}[case.met]
        bar = "–" if case.bar is None else f"{'≤' if case.bar_is == 'at most' else '≥'} {case.bar}"
        table.add_row(
            case.case,
            f"{case.messages_per_s:,.0f}",
            f"{case.bytes_per_s / 1e6:,.0f}",
            _cpu(case.cpu_us_per_message),
            case.floor.name,
            f"{case.floor.messages_per_s:,.0f}",
            _cpu(case.floor.cpu_us_per_message),
            "–" if case.cpu_ratio is None else f"{case.cpu_ratio:.2f}",
            f"{case.ratio:.2f}",
            bar,
            met,
        )
    console.print(table)
    for case in cases:
        if case.note:
            console.print(f"{case.case}: {case.note}")


def _cpu(by_process: Mapping[str, float]) -> str:
    return "\n".join(f"{name} {value:.2f}" for name, value in by_process.items())


def _tidy(value: object) -> object:
    """Four significant digits are more than a measurement has."""
    if isinstance(value, dict):
        return {key: _tidy(item) for key, item in value.items()}
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.4g}")
    return value
