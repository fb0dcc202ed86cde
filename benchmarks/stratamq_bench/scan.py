"""How fast a log becomes an Arrow table, beside copying its bytes into Arrow arrays.

A store is filled first, and is in the page cache; then floor and scan take turns, each in a
process of its own.
"""

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from stratamq_bench import child
from stratamq_bench.filled import FilledStore, fill
from stratamq_bench.plan import MIB, ratio_of
from stratamq_bench.report import Bar, Case, Floor, at_least

BAR = at_least(0.5)
SEGMENT_BYTES = 256 * MIB
FLOORS = {
    "copy": "read, and copy the frames",
    "checked": "read, copy, and check each frame's CRC",
}
WORK = (*FLOORS, "scan", "unverified")


@dataclass(frozen=True, slots=True)
class ScanOptions:
    rounds: int = 3
    body: int = 1024
    messages: int = 200_000
    times: int = 3
    """Of each round the best of so many counts."""


def run_scan(directory: Path, options: ScanOptions) -> list[Case]:
    """Everything that is written is below `directory`. Raises StrataError."""
    store = fill(directory, options.messages, options.body, SEGMENT_BYTES)
    found: dict[str, list[dict[str, Any]]] = {what: [] for what in WORK}
    for _ in range(options.rounds):
        for what in WORK:
            found[what].append(_measure(store, what, options))
    for floor in FLOORS:
        found[floor].append(_measure(store, floor, options))
    return [
        _case("scan().to_arrow(), all columns", store, found, "scan", "copy", options, BAR),
        _case("the same, beside a floor that verifies", store, found, "scan", "checked", options),
        _case("the same, verify=False", store, found, "unverified", "copy", options),
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
    found: dict[str, list[dict[str, Any]]],
    what: str,
    floor: str,
    options: ScanOptions,
    bars: tuple[Bar, ...] = (),
) -> Case:
    scans, floors = found[what], found[floor]
    rates = [store.messages / scan["seconds"] for scan in scans]
    floor_rates = [store.messages / floor["seconds"] for floor in floors]
    return Case(
        case=f"{name}, {options.body} B",
        messages_per_s=median(rates),
        bytes_per_s=median(rates) * options.body,
        floor=Floor(
            name=FLOORS[floor],
            messages_per_s=median(floor_rates),
            cpu_us_per_message={"python": _cpu_us(store, floors)},
        ),
        ratio=ratio_of(rates, floor_rates),
        cpu_us_per_message={"python": _cpu_us(store, scans)},
        bars=bars,
        pss_mb=max(scan["peak_mb"] for scan in scans),
        messages=store.messages * len(scans) * options.times,
    )


def _cpu_us(store: FilledStore, found: list[dict[str, Any]]) -> float:
    return median(one["cpu_s"] for one in found) / store.messages * 1e6
