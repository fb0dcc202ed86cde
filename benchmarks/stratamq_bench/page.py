"""The tables of `docs/performance.md`, made from the JSON of a run and put between two marks.

What more cores would do is computed from the CPU that each process spends on a message. A broker is
a pipeline of processes that run at the same time. Each is bound to about one core (an event loop;
flushes and the wire's threads do not hold its lock, so that it can be a little more): the dearest
one saturates first and bounds the broker. The log is the only one of them that cannot be multiplied
within a broker. A machine holds as many brokers as its cores have CPU for, and topics are spread
over them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stratamq.errors import InvalidRequestError
from stratamq_bench.report import Bar

BEGIN, END = "<!-- made by `stratamq bench draw` from here", "<!-- to here -->"
FORECAST_CASES = ("append-async", "append-sync", "follow-both", "follow-consumer", "follow-small")
CORES = 16

Record = Mapping[str, Any]


def fill(page: str, document: Record, source: str, picture: str) -> str:
    """Replace everything between the page's marks. Raises InvalidRequestError without marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InvalidRequestError(f"the page has no lines {BEGIN!r} and {END!r}")
    machine = document["machine"]
    memory = machine["memory_bytes"] / 2**30
    lines = [
        f"{BEGIN}: {source} -->",
        "",
        f"{machine['cpu']}, {machine['cores']} cores, {memory:.0f} GiB, Linux {machine['kernel']}, "
        f"Python {machine['python']}, grpcio {machine['grpcio']}, NumPy {machine['numpy']}.",
        "",
        f"![Each case beside its bar]({picture})",
        "",
        *cases_table(document["cases"]),
        "",
        *[f"`{failure['case']}` failed: {failure['error']}" for failure in document["failed"]],
        *forecast_table(document["cases"]),
        "",
    ]
    return before + "\n".join(lines) + END + after


def value_of(case: Record, bar: Record) -> float:
    """What a case was found to do, where `bar` holds it."""
    measured = case["measured"]
    return float(measured.get(bar["measure"], case.get(bar["measure"])))


def cases_table(cases: Sequence[Record]) -> list[str]:
    lines = [
        "| case | messages/s | floor/s | ratio | bar | | CPU µs a message | p50 / p99 / p999 ms |",
        "|---|---:|---:|---:|---|---|---|---|",
    ]
    for case in cases:
        floor = case["floor"]
        parts = [_bar_text(case, bar) for bar in case["bars"]]
        cells = (
            f"`{case['case']}`",
            f"{case['messages_per_s']:,.0f}",
            "–" if floor is None else f"{floor['messages_per_s']:,.0f}",
            "–" if case["ratio"] is None else f"{case['ratio']:.2f}",
            "; ".join(parts) or "–",
            {True: "✔", False: "✘", None: ""}[case["met"]],
            _cpu(case["cpu_us_per_message"]),
            _latency(case),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def forecast_table(cases: Sequence[Record]) -> list[str]:
    """What the figures above mean on a machine of `CORES` cores."""
    lines = [
        f"| case | dearest process | one broker at most | {CORES} cores, clients included |",
        "|---|---|---:|---:|",
    ]
    for case in cases:
        if case["case"] in FORECAST_CASES:
            found = forecast(case["cpu_us_per_message"], CORES)
            lines.append(
                f"| `{case['case']}` | {found.dearest}, "
                f"{case['cpu_us_per_message'][found.dearest]:.1f} µs | {found.broker_per_s:,.0f}/s "
                f"| {found.machine_per_s:,.0f}/s with {found.brokers} brokers |"
            )
    return lines


def _bar_text(case: Record, bar: Record) -> str:
    text = str(Bar(bar["measure"], bar["side"], bar["limit"]))
    if bar["measure"] == "ratio" or bar["measure"].startswith("p9"):
        return text  # it stands in a column of its own
    return f"{text} ({value_of(case, bar):.3g})"


def _cpu(by_process: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in by_process.items()) or "–"


def _latency(case: Record) -> str:
    if case["p50_ms"] is None:
        return ""
    return " / ".join(f"{case[name]:.2f}" for name in ("p50_ms", "p99_ms", "p999_ms"))


@dataclass(frozen=True, slots=True)
class Forecast:
    """`broker_per_s`: messages a second of one broker with cores enough, bounded by `dearest`.
    `machine_per_s`: of all brokers of a machine, clients included, with `brokers` of them."""

    dearest: str
    broker_per_s: float
    machine_per_s: float
    brokers: int
    cores: int


CLIENTS = ("client", "consumer")
"""Any number of these can run."""


def forecast(cpu_us_per_message: Mapping[str, float], cores: int) -> Forecast:
    """`cpu_us_per_message` of every process, clients too: they run on the same machine."""
    rooms = {name: us for name, us in cpu_us_per_message.items() if name not in CLIENTS}
    dearest = max(rooms, key=lambda name: rooms[name])
    broker_per_s = 1e6 / rooms[dearest]
    machine_per_s = cores * 1e6 / sum(cpu_us_per_message.values())
    brokers = math.ceil(machine_per_s / broker_per_s)
    return Forecast(dearest, broker_per_s, machine_per_s, brokers, cores)
