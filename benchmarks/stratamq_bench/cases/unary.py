"""Calls that carry one message each, sync flush, beside a bare unary echo."""

from pathlib import Path
from statistics import median
from typing import Any

from stratamq_bench import child
from stratamq_bench.load import Load
from stratamq_bench.plan import MIB, Plan, alternate, ratio_of
from stratamq_bench.report import Case
from stratamq_bench.stored import check_stored
from stratamq_bench.streaming import Stream, StreamedBroker, floor_of

SEGMENT_BYTES = {1: 4 * MIB, 64: 16 * MIB}


def run(place: Path, plan: Plan, *, in_flight: int) -> Case:
    """One at a time is held against an echo that waits for the disk as well."""
    one_at_a_time = in_flight == 1
    how = ["--in-flight", in_flight, "--body", plan.body, "--warm-up", plan.warm_up_s]
    stream = Stream(segment_bytes=SEGMENT_BYTES[in_flight])
    with StreamedBroker(place, plan, stream) as broker:
        root = broker.broker.root

        def echo() -> dict[str, Any]:
            sync = ["--sync", "--dir", place] if one_at_a_time else []
            return child.run("floor_unary", *how, *sync, "--seconds", plan.floor_s)

        def append() -> dict[str, Any]:
            where = ["--root", root, "--state", broker.state_file]
            called = child.run("unary_client", *where, *how, "--seconds", plan.round_s)
            with broker.broker.client() as client:
                load = Load(plan.body)
                check_stored(client, broker.state, load, stream.places, followers=False)
            return called

        floors, calls = alternate(plan.rounds, echo, append)
        memory_mb = broker.memory_mb()
        with broker.broker.client() as client:
            log_bytes = client.log_state().appended_offset
    rates = [call["messages"] / call["seconds"] for call in calls]
    return Case(
        case="unary",
        messages_per_s=median(rates),
        bytes_per_s=median(rates) * plan.body,
        floor=floor_of("floor_unary" + " --sync" * one_at_a_time, floors),
        ratio=ratio_of(rates, [floor["messages_per_s"] for floor in floors]),
        cpu_us_per_message={
            name: median(call["cpu_s"][name] / call["messages"] * 1e6 for call in calls)
            for name in ("client", "commitlog")
        },
        p50_ms=median(call["p50_ms"] for call in calls),
        p99_ms=median(call["p99_ms"] for call in calls),
        p999_ms=median(call["p999_ms"] for call in calls),
        pss_mb=memory_mb,
        measured={
            "floor_p50_ms": median(floor["p50_ms"] for floor in floors),
            "floor_p99_ms": median(floor["p99_ms"] for floor in floors),
            "segments_rolled": log_bytes / broker.segment_bytes,
        },
        messages=sum(call["messages"] for call in calls),
    )
