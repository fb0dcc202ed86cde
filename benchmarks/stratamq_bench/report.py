"""What a benchmark found: one record for each case, as a table for people or JSON for programs.

`measured` makes the record of one round, in the process that did it; `compared` makes a case of the
rounds and of its floor's.
"""

import json
import math
import os
import platform
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from stratamq_bench.plan import percentiles, ratio_of

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

    case: str = ""
    messages_per_s: float = 0.0
    bytes_per_s: float = 0.0
    floor: Floor | None = None
    ratio: float | None = None
    cpu_us_per_message: Mapping[str, float] = field(default_factory=dict)
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
class Measured:
    """One round of a case or of its floor."""

    messages: float
    seconds: float
    messages_per_s: float
    cpu_us_per_message: Mapping[str, float]
    """Processor time of each process."""
    p50_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    worst_ms: float | None = None
    more: Mapping[str, float] = field(default_factory=dict)
    """What only this kind of round looks at."""

    def as_case(self, body: int, messages: int, pss_mb: float, **more: float) -> Case:
        """A case of this one round, of `messages` with bodies of `body` bytes."""
        return Case(
            messages_per_s=self.messages_per_s,
            bytes_per_s=self.messages_per_s * body,
            cpu_us_per_message=self.cpu_us_per_message,
            p50_ms=self.p50_ms,
            p99_ms=self.p99_ms,
            p999_ms=self.p999_ms,
            pss_mb=pss_mb,
            measured={"worst_ms": self.worst_ms or 0.0, **more},
            messages=messages,
        )


def measured(
    messages: float, seconds: float, cpu_s: Mapping[str, float], took_ms: Sequence[float] = ()
) -> Measured:
    """`took_ms`: how long each message took, where that is measured."""
    cpu_us = {name: used / messages * 1e6 for name, used in cpu_s.items()}
    took = sorted(took_ms)
    latencies = (*percentiles(took), took[-1]) if took else ()
    return Measured(messages, seconds, messages / seconds, cpu_us, *latencies)


def best_of(times: int, process: str, messages: int, work: Callable[[], object]) -> Measured:
    """The shortest of so many times, with the CPU of this process and its ended children."""
    found = []
    for _ in range(times):
        wall, cpu = time.perf_counter(), _own_cpu_s()
        work()
        found.append((time.perf_counter() - wall, _own_cpu_s() - cpu))
    seconds, used = min(found)
    return measured(messages, seconds, {process: used})


def _own_cpu_s() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def compared(
    floor: str,
    floors: Sequence[Measured],
    rounds: Sequence[Measured],
    body: int,
    **more: Any,
) -> Case:
    """Return the medians of rounds that took turns with those of the floor, which has one more.

    `more` are fields of the case that are added, or that stand for what is computed here.
    """
    rates = [one.messages_per_s for one in rounds]
    floor_rates = [one.messages_per_s for one in floors]
    computed: dict[str, Any] = {
        "messages_per_s": median(rates),
        "bytes_per_s": median(rates) * body,
        "floor": Floor(floor, median(floor_rates), cpu_of(floors)),
        "ratio": ratio_of(rates, floor_rates),
        "cpu_us_per_message": cpu_of(rounds),
        "messages": round(sum(one.messages for one in rounds)),
    }
    if rounds[0].p50_ms is not None:
        for name in ("p50_ms", "p99_ms", "p999_ms"):
            computed[name] = median_of(rounds, name)
    return Case(**computed | more)


def median_of(rounds: Sequence[Measured], name: str) -> float:
    return median(getattr(one, name) for one in rounds)


def cpu_of(rounds: Sequence[Measured]) -> dict[str, float]:
    return {
        name: median(one.cpu_us_per_message[name] for one in rounds)
        for name in rounds[0].cpu_us_per_message
    }


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that gave no figures: its results were wrong, or a process ended."""

    case: str
    error: str


def as_json(cases: Sequence[Case], failures: Sequence[Failure] = ()) -> str:
    """One object. `bar` is the limit of a case's first bar; `bars` has them all."""
    document = {
        "machine": asdict(_machine()),
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
    machine = _machine()
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


@dataclass(frozen=True, slots=True)
class Machine:
    """What the figures were measured on."""

    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    python: str
    grpcio: str
    numpy: str


def _machine() -> Machine:
    return Machine(
        cpu=_after_colon("/proc/cpuinfo", "model name") or platform.processor() or "unknown",
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=platform.release(),
        python=platform.python_version(),
        grpcio=version("grpcio"),
        numpy=version("numpy"),
    )


def _after_colon(path: str, key: str) -> str:
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""
