"""The fast stream into the log alone, async flush, beside `floor_stream`."""

from pathlib import Path
from statistics import median

from stratamq_bench.machine import first_touch_bytes_per_s
from stratamq_bench.plan import Plan, alternate, ratio_of
from stratamq_bench.report import Case
from stratamq_bench.streaming import Stream, StreamedBroker, cpu_of, floor_of, stream_floor


def run(place: Path, plan: Plan, *, batch: int = 256) -> Case:
    with StreamedBroker(place, plan, Stream(sync=False, batch=batch)) as broker:
        page_rate = first_touch_bytes_per_s(place)
        floors, rounds = alternate(
            plan.rounds, lambda: stream_floor(place, plan, sync=False), broker.round
        )
        memory_mb = broker.memory_mb()
    rates = [one.rate for one in rounds]
    log_bytes = sum(one.bytes for one in rounds)
    messages = sum(one.messages for one in rounds)
    return Case(
        case="append",
        messages_per_s=median(rates),
        bytes_per_s=median(rates) * plan.body,
        floor=floor_of("floor_stream --record-crc", floors),
        ratio=ratio_of(rates, [floor["messages_per_s"] for floor in floors]),
        cpu_us_per_message=cpu_of(rounds),
        pss_mb=memory_mb,
        measured={
            "segments_rolled": log_bytes / broker.segment_bytes,
            "new_pages_us_per_message": log_bytes / messages / page_rate * 1e6,
        },
        messages=messages,
    )
