"""How cost grows with topics and queues: one broker filled with them, stopped, started, asked.

    python -m stratamq_bench.growth --topics 10000 --queues 100000 --dir /dev/shm/growth

Each queue gets one message. Printed: what filling took, a stop and a start, the memory of each
service, the CPU of the idle broker, and how long single appends take one after another, while the
queue table is saved. On `tmpfs` a flush costs nothing, and a queue file no disk.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

from stratamq.client import Client
from stratamq.errors import StrataError
from stratamq_bench import broker as broker_module
from stratamq_bench.broker import Broker

ROOMS = ("commitlog", "dispatcher")
DEADLINE_S = 3_600.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--queues", type=int, default=10_000, help="in all")
    parser.add_argument("--segment-bytes", type=int, default=64 << 20)
    parser.add_argument("--idle-seconds", type=float, default=10.0)
    parser.add_argument("--append-seconds", type=float, default=12.0)
    parser.add_argument("--dir", type=Path, required=True, help="an empty directory")
    arguments = parser.parse_args()
    print(json.dumps(run(arguments), indent=2))


def run(arguments: argparse.Namespace) -> dict[str, object]:
    each = -(-arguments.queues // arguments.topics)
    settings = {
        "commitlog.segment_bytes": arguments.segment_bytes,
        "commitlog.followers": "dispatcher",
        "commitlog.default_topic_queues": each,
        "dispatcher.queue_file_bytes": 320,
    }
    found: dict[str, object] = {"topics": arguments.topics, "queues": arguments.topics * each}
    broker_module.START_PATIENCE_S = DEADLINE_S
    with Broker(arguments.dir, ROOMS, settings) as broker:
        with broker.client() as client:
            began = time.monotonic()
            _fill(client, arguments.topics, each)
            found["fill_s"] = time.monotonic() - began
            _applied(client)
            found["applied_s"] = time.monotonic() - began
            _applied(client, durable=True)
            found["durable_s"] = time.monotonic() - began
        for room in ROOMS:
            began = time.monotonic()
            broker.stop_room(room)
            found[f"stop_{room}_s"] = time.monotonic() - began
        began = time.monotonic()
        broker.start("commitlog")
        with broker.client() as client:
            client.log_state()
            found["start_commitlog_s"] = time.monotonic() - began
            began = time.monotonic()
            broker.start("dispatcher")
            _applied(client)
            found["start_dispatcher_s"] = time.monotonic() - began
            for room, pid in broker.pids.items():
                found[f"memory_{room}_mib"] = _memory_mib(pid)
            before = {room: _cpu_s(pid) for room, pid in broker.pids.items()}
            time.sleep(arguments.idle_seconds)
            for room, pid in broker.pids.items():
                used = _cpu_s(pid) - before[room]
                found[f"idle_cpu_{room}_percent"] = 100 * used / arguments.idle_seconds
            waits = _appends(client, arguments.append_seconds)
            found["append_ms"] = {
                name: float(np.percentile(waits, part)) for name, part in PARTS.items()
            } | {"count": len(waits)}
            began = time.monotonic()
            found["listed_queues"] = len(client.queues())
            found["list_queues_s"] = time.monotonic() - began
    return found


PARTS = {"p50": 50, "p99": 99, "longest": 100}


def _fill(client: Client, topics: int, each: int) -> None:
    with client.producer() as producer:
        for topic in range(topics):
            for queue_id in range(each):
                producer.send(f"topic-{topic:06}", b"x", queue_id=queue_id)


def _applied(client: Client, *, durable: bool = False) -> None:
    """Until the dispatcher serves everything that the log holds, or has it in its files."""
    end, deadline = client.log_state().appended_offset, time.monotonic() + DEADLINE_S
    while True:
        try:
            state = client.dispatch_state()
            reached = state.durable_offset if durable else state.applied_offset
            if state.serving and reached >= end:
                return
            if state.stopped_reason:
                raise SystemExit(state.stopped_reason)
        except StrataError:
            pass  # it is on its way
        if time.monotonic() > deadline:
            raise SystemExit("the dispatcher does not catch up")
        time.sleep(0.1)


def _appends(client: Client, seconds: float) -> list[float]:
    """Milliseconds of single calls, one after another."""
    waits = []
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        began = time.monotonic()
        client.send(f"topic-{number % 50:06}", b"y", queue_id=0)
        waits.append((time.monotonic() - began) * 1000)
        number += 1
    return waits


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    main()
