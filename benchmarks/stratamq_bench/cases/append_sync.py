"""Sync flush beside async flush: the same client, two brokers in turn."""

from pathlib import Path
from statistics import median

from stratamq_bench.plan import Plan, alternate, ratio_of
from stratamq_bench.report import Case, Floor
from stratamq_bench.streaming import Stream, StreamedBroker, cpu_of


def run(place: Path, plan: Plan) -> Case:
    sync, flushless = Stream(), Stream(sync=False)
    with (
        StreamedBroker(place / "sync", plan, sync) as measured,
        StreamedBroker(place / "async", plan, flushless) as beside,
    ):
        floors, rounds = alternate(plan.rounds, beside.round, measured.round)
        memory_mb = measured.memory_mb()
    rates, floor_rates = [one.rate for one in rounds], [one.rate for one in floors]
    return Case(
        case="append-sync",
        messages_per_s=median(rates),
        bytes_per_s=median(rates) * plan.body,
        floor=Floor("the same, async flush", median(floor_rates), cpu_of(floors)),
        ratio=ratio_of(rates, floor_rates),
        cpu_us_per_message=cpu_of(rounds),
        pss_mb=memory_mb,
        measured={"segments_rolled": sum(one.bytes for one in rounds) / measured.segment_bytes},
        messages=sum(one.messages for one in rounds),
    )
