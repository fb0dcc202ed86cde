"""A new slave reads what its master has, beside the same bytes over recv → gRPC stream → memcpy."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from stratamq_bench import child
from stratamq_bench.plan import MIB, Plan, alternate, ratio_of
from stratamq_bench.replica import LOOK_S, Slave
from stratamq_bench.report import Case
from stratamq_bench.streaming import Stream, StreamedBroker, floor_of
from stratamq_bench.usage import CpuMeter

MESSAGES, LEAST_MESSAGES = 1_500_000, 50_000
MASTER = Stream(role="ASYNC_MASTER", segment_bytes=256 * MIB)


@dataclass(frozen=True, slots=True)
class CaughtUp:
    messages: float
    seconds: float
    cpu_us: dict[str, float]


def run(place: Path, plan: Plan) -> Case:
    with StreamedBroker(place, plan, MASTER) as master:
        stored = master.fill(plan.scaled(MESSAGES, LEAST_MESSAGES))
        with master.broker.client() as client:
            end = client.log_state().appended_offset

        def bare() -> dict[str, Any]:
            what = ["--frame-bytes", round(end / stored), "--dir", place]
            how = ["--seconds", plan.floor_s, "--warm-up", plan.warm_up_s]
            return child.run("floor_replicate", *what, *how)

        floors, found = alternate(plan.rounds, bare, lambda: _catch_up(place, master, stored, end))
    rates = [one.messages / one.seconds for one in found]
    return Case(
        case="replicate",
        messages_per_s=median(rates),
        bytes_per_s=median(rates) * plan.body,
        floor=floor_of("floor_replicate", floors),
        ratio=ratio_of(rates, [floor["messages_per_s"] for floor in floors]),
        cpu_us_per_message={
            name: median(one.cpu_us[name] for one in found) for name in found[0].cpu_us
        },
        measured={"log_mb": end / 1e6},
        messages=stored * len(found),
    )


def _catch_up(place: Path, master: StreamedBroker, stored: int, end: int) -> CaughtUp:
    """One slave from nothing, timed from the first look at it; its bytes are compared.

    Timed with its start when it had everything by then.
    """
    started = time.perf_counter()
    with Slave(place, master) as slave:
        pids = {"master ha": master.broker.pids["ha"]}
        pids |= {f"slave {room}": pid for room, pid in slave.broker.pids.items()}
        first, began, meter = slave.end, time.perf_counter(), CpuMeter(pids)
        if first >= end:
            first, began = 0, started
        while (there := slave.end) < end:
            time.sleep(LOOK_S)
        seconds, used = time.perf_counter() - began, meter.seconds()
        slave.check_bytes()
        root = slave.broker.root
    shutil.rmtree(root)
    messages = stored * (there - first) / end
    return CaughtUp(messages, seconds, {name: s / messages * 1e6 for name, s in used.items()})
