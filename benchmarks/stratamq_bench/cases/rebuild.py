"""Delete queues and index and rebuild them from the log, while single appends continue.

The rebuild's rate is measured between two readings of what both followers have applied: their
start, in which nothing is read, is not part of it, unless everything was done by the first reading.
The appends, 200 a second, are timed before and during the rebuild.
"""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from stratamq.client import Client
from stratamq_bench import child
from stratamq_bench.broker import FOLLOWERS
from stratamq_bench.checks import Mismatch
from stratamq_bench.load import Load
from stratamq_bench.plan import MIB, Plan
from stratamq_bench.report import Case
from stratamq_bench.stored import check_stored
from stratamq_bench.streaming import Stream, StreamedBroker, floor_of, stream_floor
from stratamq_bench.usage import CpuMeter

MESSAGES = 1_000_000
APPENDS_PER_S = 200
IN_FLIGHT = 4
LOOK_S = 0.02
DIRECTORIES = ("consumequeue", "index")


@dataclass(frozen=True, slots=True)
class Rebuilt:
    messages: float
    seconds: float
    cpu_s: dict[str, float]


def run(place: Path, plan: Plan) -> Case:
    with StreamedBroker(place, plan, Stream(followers=True, segment_bytes=128 * MIB)) as broker:
        stored = broker.fill(plan.scaled(MESSAGES, 20_000))
        floors = [stream_floor(place, plan, sync=True)]
        quiet = _appends(broker, plan, "--seconds", plan.round_s).finish()
        for room in FOLLOWERS:
            broker.broker.stop_room(room)
        for name in DIRECTORIES:
            shutil.rmtree(broker.broker.root / name)
        with _appends(broker, plan, "--until-told") as appends:
            if appends.line() != "calling":
                raise Mismatch("the appender does not report that it appends")
            with broker.broker.client() as client:
                rebuilt = _rebuild(broker, client, stored)
            busy = appends.finish("\n")
        floors.append(stream_floor(place, plan, sync=True))
        with broker.broker.client() as client:
            check_stored(
                client, broker.state, Load(plan.body), broker.stream.places, followers=True
            )
        memory_mb = broker.memory_mb()
    rate = rebuilt.messages / rebuilt.seconds
    return Case(
        case="rebuild",
        messages_per_s=rate,
        bytes_per_s=rate * plan.body,
        floor=floor_of("floor_stream --record-crc --sync", floors),
        ratio=rate / fmean(floor["messages_per_s"] for floor in floors),
        cpu_us_per_message={
            room: used / rebuilt.messages * 1e6 for room, used in rebuilt.cpu_s.items()
        },
        p50_ms=busy["p50_ms"],
        p99_ms=busy["p99_ms"],
        p999_ms=busy["p999_ms"],
        pss_mb=memory_mb,
        measured={
            "quiet_p99_ms": quiet["p99_ms"],
            "p99_times": busy["p99_ms"] / quiet["p99_ms"],
            "appends": busy["messages"],
        },
        messages=stored,
    )


def _appends(broker: StreamedBroker, plan: Plan, *arguments: object) -> child.Child:
    how = ["--in-flight", IN_FLIGHT, "--rate", APPENDS_PER_S, "--warm-up", plan.warm_up_s]
    where = ["--root", broker.broker.root, "--state", broker.state_file, "--body", plan.body]
    return child.Child("unary_client", *where, *how, *arguments)


def _rebuild(broker: StreamedBroker, client: Client, stored: int) -> Rebuilt:
    """From the first look at both followers until both have applied what was stored before."""
    end = client.log_state().confirmed_offset
    first, began = 0, time.perf_counter()
    for room in FOLLOWERS:
        broker.broker.start(room)
    if (seen := _applied(client)) < end:
        first, began = seen, time.perf_counter()
    meter = CpuMeter(broker.broker.pids)
    while (applied := _applied(client)) < end:
        time.sleep(LOOK_S)
    seconds = time.perf_counter() - began
    return Rebuilt(stored * (applied - first) / end, seconds, meter.seconds())


def _applied(client: Client) -> int:
    states: list[Any] = [client.admin.dispatch_state(), client.admin.index_state()]
    return min(state.applied_offset for state in states)
