"""What a benchmark found: one record for each case, as a table for people or JSON for programs."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from rich.console import Console
from rich.table import Table

from stratamq_bench.machine import describe

_SIGNS = {"at least": "≥", "at most": "≤", "below": "<"}


@dataclass(frozen=True, slots=True)
class Floor:
    """The unavoidable work, measured in the same minute."""

    name: str
    messages_per_s: float
    cpu_us_per_message: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bar:
    """What a case is held to. `measure`: a field of `Case`, or a name of its `measured`."""

    measure: str
    side: str
    limit: float

    def __post_init__(self) -> None:
        if self.side not in _SIGNS:
            raise ValueError(f"a bar is {', '.join(_SIGNS)}, not {self.side!r}")

    def __str__(self) -> str:
        name = "" if self.measure == "ratio" else f"{self.measure} "
        return f"{name}{_SIGNS[self.side]} {self.limit:g}"

    def met_by(self, value: float) -> bool:
        if self.side == "at least":
            return value >= self.limit
        return value <= self.limit if self.side == "at most" else value < self.limit


def at_least(ratio: float) -> tuple[Bar, ...]:
    """The commonest bar: a share of the floor's rate."""
    return (Bar("ratio", "at least", ratio),)


@dataclass(frozen=True, slots=True)
class Case:
    """`ratio` is of rates, or, where its bar is "at most", of CPU per message.

    `measured` holds what only this case looks at, each with its unit in the name.
    """

    case: str
    messages_per_s: float
    bytes_per_s: float
    floor: Floor | None
    ratio: float | None
    cpu_us_per_message: Mapping[str, float]
    bars: tuple[Bar, ...] = ()
    title: str = ""
    p50_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    pss_mb: float | None = None
    measured: Mapping[str, float] = field(default_factory=dict)
    messages: int = 0
    """How many were measured and checked."""
    note: str = ""

    @property
    def cpu_ratio(self) -> float | None:
        """The floor's CPU per message by the case's, all processes together. Where other programs
        share the machine it moves less than `ratio`."""
        if self.floor is None:
            return None
        floor, case = sum(self.floor.cpu_us_per_message.values()), self.cpu_us_per_message
        return floor / sum(case.values()) if floor and sum(case.values()) else None

    def value_of(self, bar: Bar) -> float:
        """KeyError when the case has not measured what it is held to."""
        if bar.measure in self.measured:
            return self.measured[bar.measure]
        value = getattr(self, bar.measure, None)
        if value is None:
            raise KeyError(f"{self.case} measured no {bar.measure}")
        return float(value)

    @property
    def met(self) -> bool | None:
        """All of its bars; None when there are none."""
        if not self.bars:
            return None
        return all(bar.met_by(self.value_of(bar)) for bar in self.bars)


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that gave no figures: its results were wrong, or a process ended."""

    case: str
    error: str


def as_json(cases: Sequence[Case], failures: Sequence[Failure] = ()) -> str:
    """One object. `bar` is the limit of a case's first bar; `bars` has them all."""
    document = {
        "machine": asdict(describe()),
        "cases": [_record(case) for case in cases],
        "failed": [asdict(failure) for failure in failures],
    }
    return json.dumps(document)


def _record(case: Case) -> object:
    bars = [asdict(bar) | {"met": bar.met_by(case.value_of(bar))} for bar in case.bars]
    derived = {
        "cpu_ratio": case.cpu_ratio,
        "bar": case.bars[0].limit if case.bars else None,
        "bars": bars,
        "met": case.met,
    }
    return _tidy(asdict(case) | derived)


def print_table(cases: Sequence[Case], console: Console, failures: Sequence[Failure] = ()) -> None:
    machine = describe()
    table = Table(title=f"{machine.cpu}, {machine.cores} cores")
    table.add_column("case", overflow="fold")
    for column in ("messages/s", "MB/s", "CPU µs/message", "floor", "floor/s", "floor CPU"):
        table.add_column(column, justify="right")
    for column in ("p50 / p99 ms", "ratio", "bar", "met"):
        table.add_column(column, justify="right")
    for case in cases:
        table.add_row(*_cells(case))
    console.print(table)
    for case in cases:
        parts = [f"{name} {value:.4g}" for name, value in case.measured.items()]
        parts += [case.note] if case.note else []
        if parts:
            console.print(f"{case.case}: {', '.join(parts)}", highlight=False)
    for failure in failures:
        console.print(f"[red]{failure.case} failed[/]: {failure.error}", highlight=False)


def _cells(case: Case) -> list[str]:
    floor = case.floor
    latency = "–" if case.p50_ms is None else f"{case.p50_ms:.2f} / {case.p99_ms:.2f}"
    return [
        f"{case.case}\n{case.title}" if case.title else case.case,
        f"{case.messages_per_s:,.0f}",
        f"{case.bytes_per_s / 1e6:,.0f}",
        _cpu(case.cpu_us_per_message),
        floor.name if floor else "–",
        f"{floor.messages_per_s:,.0f}" if floor else "–",
        _cpu(floor.cpu_us_per_message) if floor else "–",
        latency,
        "–" if case.ratio is None else f"{case.ratio:.2f}",
        "\n".join(map(str, case.bars)) or "–",
        {True: "[green]yes[/]", False: "[red]no[/]", None: "–"}[case.met],
    ]


def _cpu(by_process: Mapping[str, float]) -> str:
    return "\n".join(f"{name} {value:.2f}" for name, value in by_process.items())


def _tidy(value: object) -> object:
    """Four significant digits are more than a measurement has."""
    if isinstance(value, dict):
        return {key: _tidy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_tidy(item) for item in value]
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.4g}")
    return value
