"""How fast recovery walks a log, every checksum verified, beside a bare loop over the frames."""

from pathlib import Path
from statistics import median
from typing import Any

from stratamq_bench import child
from stratamq_bench.filled import fill
from stratamq_bench.plan import MIB, Plan, alternate, ratio_of
from stratamq_bench.report import Case, Floor

LOG_BYTES = 640 * MIB
SEGMENT_BYTES = 128 * MIB
FRAME_OVERHEAD_BYTES = 180
ROUNDS = 4


def run(place: Path, plan: Plan, *, body: int | None = None) -> Case:
    body = body or plan.body
    messages = plan.scaled(LOG_BYTES // (body + FRAME_OVERHEAD_BYTES), 4096)
    store = fill(place, messages, body, plan.segment_bytes(SEGMENT_BYTES))

    def measure(what: str) -> dict[str, Any]:
        where = ["--root", store.root, "--messages", store.messages]
        return child.run("recover_client", *where, "--what", what)

    floors, walks = alternate(ROUNDS, lambda: measure("loop"), lambda: measure("walk"))
    rates = [store.messages / walk["seconds"] for walk in walks]
    floor_rates = [store.messages / floor["seconds"] for floor in floors]

    def cpu_us(found: list[dict[str, Any]]) -> float:
        return median(one["cpu_s"] for one in found) / store.messages * 1e6

    return Case(
        case="recover",
        messages_per_s=median(rates),
        bytes_per_s=median(rates) * body,
        floor=Floor("bare loop", median(floor_rates), {"recovery": cpu_us(floors)}),
        ratio=ratio_of(rates, floor_rates),
        cpu_us_per_message={"recovery": cpu_us(walks)},
        measured={"log_mb": store.log_bytes / 1e6},
        messages=store.messages,
    )
