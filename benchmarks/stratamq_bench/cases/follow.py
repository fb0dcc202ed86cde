"""The fast stream into a whole broker: queues and index are built, perhaps someone reads along."""

from dataclasses import replace
from pathlib import Path
from statistics import median

from stratamq_bench.plan import MIB, Plan, alternate, ratio_of
from stratamq_bench.report import Case
from stratamq_bench.streaming import Stream, StreamedBroker, cpu_of, floor_of, stream_floor

BROKER = Stream(followers=True)
SMALL_SEGMENT_BYTES = 64 * MIB


def run(place: Path, plan: Plan, *, consumer: bool = False, body: int | None = None) -> Case:
    stream = replace(BROKER, consumer=consumer, body=body)
    if body is not None:
        stream = replace(stream, segment_bytes=SMALL_SEGMENT_BYTES)
    return followed(place, plan, stream)


def followed(place: Path, plan: Plan, stream: Stream) -> Case:
    """Beside `floor_stream` with the same bodies and flush, at 256 per batch."""
    with StreamedBroker(place, plan, stream) as broker:
        floors, rounds = alternate(
            plan.rounds,
            lambda: stream_floor(place, plan, sync=stream.sync, body=stream.body),
            broker.round,
        )
        memory_mb = broker.memory_mb()
    rates = [one.rate for one in rounds]
    return Case(
        case="follow",
        messages_per_s=median(rates),
        bytes_per_s=median(rates) * broker.body,
        floor=floor_of("floor_stream --record-crc" + " --sync" * stream.sync, floors),
        ratio=ratio_of(rates, [floor["messages_per_s"] for floor in floors]),
        cpu_us_per_message=cpu_of(rounds),
        pss_mb=memory_mb,
        measured={
            "dispatch_age_ms": max(one.worst_age_ms for one in rounds),
            "dispatcher_descriptors": max(one.descriptors for one in rounds),
            "segments_rolled": sum(one.bytes for one in rounds) / broker.segment_bytes,
        },
        messages=sum(one.messages for one in rounds),
    )
