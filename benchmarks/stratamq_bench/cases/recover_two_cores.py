"""A whole recovery by two processes, one of which walks segments ahead, beside the same by one.

The start of the other process is in it: it imports NumPy, and has walked nothing meanwhile. So the
log is as large as one process walks in some seconds.
"""

from pathlib import Path
from statistics import median
from typing import Any

from stratamq_bench import child
from stratamq_bench.cases.recover import FRAME_OVERHEAD_BYTES, SEGMENT_BYTES
from stratamq_bench.filled import fill
from stratamq_bench.plan import MIB, Plan, alternate, ratio_of
from stratamq_bench.report import Case, Floor

LOG_BYTES = 2048 * MIB
ROUNDS = 3


def run(place: Path, plan: Plan, *, body: int | None = None, log_bytes: int = LOG_BYTES) -> Case:
    body = body or plan.body
    messages = plan.scaled(log_bytes // (body + FRAME_OVERHEAD_BYTES), 16_384)
    store = fill(place, messages, body, plan.segment_bytes(SEGMENT_BYTES))

    def measure(what: str) -> dict[str, Any]:
        where = ["--root", store.root, "--messages", store.messages]
        return child.run("recover_client", *where, "--what", what)

    ones, twos = alternate(ROUNDS, lambda: measure("one"), lambda: measure("two"))
    rates = [store.messages / two["seconds"] for two in twos]
    one_rates = [store.messages / one["seconds"] for one in ones]

    def cpu_us(found: list[dict[str, Any]]) -> float:
        return median(one["cpu_s"] for one in found) / store.messages * 1e6

    return Case(
        case="recover",
        messages_per_s=median(rates),
        bytes_per_s=median(rates) * body,
        floor=Floor("one-core walk", median(one_rates), {"recovery": cpu_us(ones)}),
        ratio=ratio_of(rates, one_rates),
        cpu_us_per_message={"recovery": cpu_us(twos)},
        measured={"log_mb": store.log_bytes / 1e6},
        messages=store.messages,
    )
