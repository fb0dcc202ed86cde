"""The log's engine alone, no process and no gRPC: CPU of its passes beside a bare append.

Allocation and flush are no part of the floor, and what they cost depends on how the machine gives
out memory: they are reported, and not held to the bar.
"""

from pathlib import Path

from stratamq_bench.engine_alone import Load, compare
from stratamq_bench.plan import Plan
from stratamq_bench.report import Case, Floor

ROUND_S = 0.7
QUEUES = 16


def run(place: Path, plan: Plan, *, batch: int) -> Case:
    """Short rounds, many of them: CPU hardly depends on what else runs, but caches do."""
    round_s = min(ROUND_S, plan.seconds / 3)
    rounds = max(3, round(plan.seconds / ROUND_S / 2))
    found = compare(place, Load(batch, plan.body, QUEUES), rounds=rounds, seconds=round_s)
    return Case(
        case="engine",
        messages_per_s=found.messages_per_s,
        bytes_per_s=found.messages_per_s * plan.body,
        floor=Floor("floor_append --record-crc", 1e6 / found.floor_us, {"append": found.floor_us}),
        ratio=found.passes_ratio,
        cpu_us_per_message={
            "passes": found.engine_us - found.worker_us,
            "allocation and flush": found.worker_us,
        },
        measured={"times_with_allocation_and_flush": found.ratio},
        messages=found.messages,
    )
