"""How fast a log becomes an Arrow table, beside copying its bytes into Arrow arrays.

A store is filled first, and lies in the page cache; then floor and scan take turns, each in a
process of its own.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

from stratamq_bench import child
from stratamq_bench.append import SEGMENT_BYTES
from stratamq_bench.filled import FilledStore, fill
from stratamq_bench.report import Case, Floor

BAR = 0.5


@dataclass(frozen=True, slots=True)
class ScanOptions:
    rounds: int = 3
    body: int = 1024
    messages: int = 200_000
    times: int = 3
    """Of each round the best of so many counts."""


def run_scan(directory: Path, options: ScanOptions) -> list[Case]:
    """Everything that is written lies below `directory`. Raises StrataError."""
    store = fill(directory, options.messages, options.body, SEGMENT_BYTES)
    found: dict[str, list[dict[str, Any]]] = {"copy": [], "scan": [], "unverified": []}
    for _ in range(options.rounds):
        for what in ("copy", "scan", "unverified"):
            found[what].append(_measure(store, what, options))
    found["copy"].append(_measure(store, "copy", options))
    return [
        _case("scan().to_arrow(), all columns", store, found["scan"], found["copy"], options, BAR),
        _case("the same, verify=False", store, found["unverified"], found["copy"], options, None),
    ]


def _measure(store: FilledStore, what: str, options: ScanOptions) -> dict[str, Any]:
    return child.run(
        "scan_client",
        *("--root", store.root, "--messages", store.messages),
        *("--what", what, "--times", options.times),
    )


def _case(
    name: str,
    store: FilledStore,
    scans: list[dict[str, Any]],
    floors: list[dict[str, Any]],
    options: ScanOptions,
    bar: float | None,
) -> Case:
    rates = [store.messages / scan["seconds"] for scan in scans]
    floor_rates = [store.messages / floor["seconds"] for floor in floors]
    beside = [fmean(pair) for pair in pairwise(floor_rates)]
    return Case(
        case=f"{name}, {options.body} B",
        messages_per_s=median(rates),
        bytes_per_s=median(rates) * options.body,
        floor=Floor(
            name="read, and copy the frames",
            messages_per_s=median(floor_rates),
            cpu_us_per_message={"python": _cpu_us(store, floors)},
        ),
        ratio=median(rate / floor for rate, floor in zip(rates, beside, strict=True)),
        cpu_us_per_message={"python": _cpu_us(store, scans)},
        bar=bar,
        pss_mb=max(scan["peak_mb"] for scan in scans),
        messages=store.messages * len(scans) * options.times,
    )


def _cpu_us(store: FilledStore, found: list[dict[str, Any]]) -> float:
    return median(one["cpu_s"] for one in found) / store.messages * 1e6
