"""How fast recovery goes, every checksum verified: one way beside another, over one log.

A walk beside a bare loop over the frames; or a whole recovery by two processes, one of which walks
segments ahead, beside the same by one. The start of the other process is in it: it imports NumPy,
and has walked nothing meanwhile. So that log is as large as one process walks in some seconds.
"""

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from stratamq_bench import child
from stratamq_bench.filled import fill
from stratamq_bench.plan import MIB, Plan, alternate, ratio_of
from stratamq_bench.report import Case, Floor

SEGMENT_BYTES = 128 * MIB
FRAME_OVERHEAD_BYTES = 180


@dataclass(frozen=True, slots=True)
class Comparison:
    """Work of `recover_client` that is measured, and the work that is its floor."""

    work: str
    floor_work: str
    floor: str
    log_bytes: int
    least_messages: int
    rounds: int


WALK = Comparison("walk", "loop", "bare loop", 640 * MIB, 4096, rounds=4)
TWO_CORES = Comparison("two", "one", "one-core walk", 2048 * MIB, 16_384, rounds=3)


def run(
    place: Path,
    plan: Plan,
    *,
    body: int | None = None,
    compared: Comparison = WALK,
    log_bytes: int | None = None,
) -> Case:
    body = body or plan.body
    wanted = (log_bytes or compared.log_bytes) // (body + FRAME_OVERHEAD_BYTES)
    messages = plan.scaled(wanted, compared.least_messages)
    store = fill(place, messages, body, plan.segment_bytes(SEGMENT_BYTES))

    def measure(what: str) -> dict[str, Any]:
        where = ["--root", store.root, "--messages", store.messages]
        return child.run("recover_client", *where, "--what", what)

    floors, found = alternate(
        compared.rounds, lambda: measure(compared.floor_work), lambda: measure(compared.work)
    )
    rates = [store.messages / one["seconds"] for one in found]
    floor_rates = [store.messages / one["seconds"] for one in floors]

    def cpu_us(ones: list[dict[str, Any]]) -> float:
        return median(one["cpu_s"] for one in ones) / store.messages * 1e6

    return Case(
        case="recover",
        messages_per_s=median(rates),
        bytes_per_s=median(rates) * body,
        floor=Floor(compared.floor, median(floor_rates), {"recovery": cpu_us(floors)}),
        ratio=ratio_of(rates, floor_rates),
        cpu_us_per_message={"recovery": cpu_us(found)},
        measured={"log_mb": store.log_bytes / 1e6},
        messages=store.messages,
    )


def run_two_cores(
    place: Path, plan: Plan, *, body: int | None = None, log_bytes: int | None = None
) -> Case:
    return run(place, plan, body=body, compared=TWO_CORES, log_bytes=log_bytes)
