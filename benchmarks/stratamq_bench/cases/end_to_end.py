"""From the moment a message is due to be sent until a consumer has it, at 1 000 a second."""

from pathlib import Path

from stratamq_bench import child
from stratamq_bench.plan import MIB, Plan
from stratamq_bench.report import Case
from stratamq_bench.streaming import Stream, StreamedBroker

RATE = 1000
SEGMENT_BYTES = 8 * MIB


def run(place: Path, plan: Plan) -> Case:
    """One round: the rate is given, and latencies need all the seconds there are."""
    stream = Stream(followers=True, segment_bytes=SEGMENT_BYTES)
    with StreamedBroker(place, plan, stream) as broker:
        found = child.run(
            "end_to_end_client",
            *("--root", broker.broker.root, "--rate", RATE, "--body", plan.body),
            *("--seconds", plan.seconds, "--warm-up", plan.warm_up_s),
        )
        memory_mb = broker.memory_mb()
        with broker.broker.client() as client:
            log_bytes = client.log_state().appended_offset
    messages, seconds = found["messages"], found["seconds"]
    return Case(
        case="end-to-end",
        messages_per_s=messages / seconds,
        bytes_per_s=messages / seconds * plan.body,
        floor=None,
        ratio=None,
        cpu_us_per_message={name: used / messages * 1e6 for name, used in found["cpu_s"].items()},
        p50_ms=found["p50_ms"],
        p99_ms=found["p99_ms"],
        p999_ms=found["p999_ms"],
        pss_mb=memory_mb,
        measured={
            "worst_ms": found["worst_ms"],
            "segments_rolled": log_bytes / broker.segment_bytes,
        },
        messages=messages,
    )
