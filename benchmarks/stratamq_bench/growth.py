"""How cost grows with what there is: one broker filled, stopped, started, asked.

    python -m stratamq_bench.growth --topics 10000 --queues 100000 --dir /dev/shm/growth

Each queue gets one message; with `--segments` as many segments are written as well. `--followers`
and `--connections` come from one other process, `--generations` are starts that nothing followed.
Printed: what filling took, a stop and a start, the memory of each service, the CPU of the idle
broker, how long single appends take one after another, while the queue table is saved, lists and
pulls of all kinds of queues, and what a new slave takes. On `tmpfs` a flush costs nothing, and a
queue file no disk.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from stratamq.client import Client
from stratamq.errors import StrataError
from stratamq_bench import broker as broker_module
from stratamq_bench.broker import Broker
from stratamq_bench.child import Child
from stratamq_bench.growth_load import begin_generations

ROOMS = ("commitlog", "dispatcher")
SEGMENT, SMALL_SEGMENT = 64 << 20, 16 << 10
DEADLINE_S = 3_600.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--queues", type=int, default=10_000, help="in all")
    parser.add_argument("--segments", type=int, default=0, help="of 16 KiB, in all")
    parser.add_argument("--followers", type=int, default=0, help="beside the dispatcher")
    parser.add_argument("--connections", type=int, default=0)
    parser.add_argument("--generations", type=int, default=0, help="before the last start")
    parser.add_argument("--idle-seconds", type=float, default=10.0)
    parser.add_argument("--append-seconds", type=float, default=12.0)
    parser.add_argument("--replicate", action="store_true", help="to a new slave, in the end")
    parser.add_argument("--dir", type=Path, required=True, help="an empty directory")
    arguments = parser.parse_args()
    print(json.dumps(run(arguments), indent=2))


def run(arguments: argparse.Namespace) -> dict[str, object]:
    each = -(-arguments.queues // arguments.topics)
    settings = {
        "commitlog.segment_bytes": SMALL_SEGMENT if arguments.segments else SEGMENT,
        "commitlog.followers": "dispatcher",
        "commitlog.default_topic_queues": each,
        "dispatcher.queue_file_bytes": 320,
        "ha.replication_address": "127.0.0.1:0",
    }
    found: dict[str, object] = {"topics": arguments.topics, "queues": arguments.topics * each}
    broker_module.START_TIMEOUT_S = broker_module.STOP_TIMEOUT_S = DEADLINE_S
    with Broker(arguments.dir, ROOMS, settings) as broker:
        with broker.client() as client:
            began = time.monotonic()
            _fill(client, arguments.topics, each)
            _fill_segments(client, arguments.segments)
            found["fill_s"] = time.monotonic() - began
            _applied(client)
            found["applied_s"] = time.monotonic() - began
            _applied(client, durable=True)
            found["durable_s"] = time.monotonic() - began
        for room in ROOMS:
            began = time.monotonic()
            broker.stop_room(room)
            found[f"stop_{room}_s"] = time.monotonic() - began
        if arguments.generations:
            found["generations"] = begin_generations(broker.root, arguments.generations)
        began = time.monotonic()
        broker.start("commitlog")
        with broker.client() as client, ExitStack() as stack:
            client.log_state()
            found["start_commitlog_s"] = time.monotonic() - began
            began = time.monotonic()
            broker.start("dispatcher")
            _applied(client)
            found["start_dispatcher_s"] = time.monotonic() - began
            beside = Child("growth_load", broker.root, arguments.connections, arguments.followers)
            stack.enter_context(beside).line()
            for room, pid in broker.pids.items():
                found[f"memory_{room}_mib"] = _memory_mib(pid)
            waits = _appends(client, arguments.append_seconds)
            found["append_ms"] = _parts(waits)
            for name in ("list_queues_s", "list_queues_again_s"):
                began = time.monotonic()
                found["listed_queues"] = len(client.queues())
                found[name] = time.monotonic() - began
            found["pull_ms"] = _parts(_pulls(client, arguments.topics, each))
            before = {room: _cpu_s(pid) for room, pid in broker.pids.items()}
            time.sleep(arguments.idle_seconds)
            for room, pid in broker.pids.items():
                used = _cpu_s(pid) - before[room]
                found[f"idle_cpu_{room}_percent"] = 100 * used / arguments.idle_seconds
            print(json.dumps(found), file=sys.stderr, flush=True)
            if arguments.replicate:
                found |= _replicate(broker, client, arguments.dir, settings)
    return found


def _replicate(
    broker: Broker, client: Client, directory: Path, settings: dict[str, object]
) -> dict[str, object]:
    """A new slave takes over the log, the topics and the queues."""
    broker.start("ha")
    address = client.admin.replication_state().replication_address
    end = client.log_state().appended_offset
    of_slave = settings | {
        "commitlog.role": "SLAVE",
        "commitlog.broker_id": 1,
        "commitlog.followers": "",
        "ha.master": address,
    }
    found: dict[str, object] = {}
    began = time.monotonic()
    with (
        Broker(directory, ("commitlog", "ha"), of_slave, "slave") as slave,
        slave.client() as reader,
    ):
        _until(lambda: reader.log_state().appended_offset >= end, "the slave's log")
        found["slave_log_s"] = time.monotonic() - began
        topics = len(client.topics())
        _until(lambda: len(reader.topics()) >= topics, "the slave's topics")
        found["slave_topics_s"] = time.monotonic() - began
        slave.start("dispatcher")
        _applied(reader)
        found["slave_applied_s"] = time.monotonic() - began
        found["slave_queues"] = len(reader.queues())
        for room, pid in slave.pids.items():
            found[f"memory_slave_{room}_mib"] = _memory_mib(pid)
        slave.kill("dispatcher")  # its files are not waited for
    return found


PULLS = 500
PARTS = {"p50": 50, "p99": 99, "longest": 100}


def _parts(waits: list[float]) -> dict[str, float]:
    return {name: float(np.percentile(waits, part)) for name, part in PARTS.items()} | {
        "count": len(waits)
    }


def _fill(client: Client, topics: int, each: int) -> None:
    with client.producer() as producer:
        for topic in range(topics):
            for queue_id in range(each):
                producer.send(f"topic-{topic:06}", b"x", queue_id=queue_id)


def _fill_segments(client: Client, count: int) -> None:
    """One message for each, in the queues that there are."""
    with client.producer() as producer:
        for _ in range(count):
            producer.send("topic-000000", bytes(SMALL_SEGMENT * 2 // 3), queue_id=0)


def _applied(client: Client, *, durable: bool = False) -> None:
    """Until the dispatcher serves everything that the log holds, or has it in its files."""
    end = client.log_state().appended_offset

    def reached() -> bool:
        state = client.admin.dispatch_state()
        if state.stopped_reason:
            raise SystemExit(state.stopped_reason)
        return state.serving and (state.durable_offset if durable else state.applied_offset) >= end

    _until(reached, "the dispatcher")


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            if condition():
                return
        except StrataError:
            pass  # it is on its way
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} does not catch up")
        time.sleep(0.1)


def _pulls(client: Client, topics: int, each: int) -> list[float]:
    """Milliseconds of single pulls, each of another queue; each gives a message."""
    waits = []
    for number in range(PULLS):
        topic, queue_id = number * topics // PULLS, number % each
        began = time.monotonic()
        pulled = client.pull(f"topic-{topic:06}", queue_id, 0)
        waits.append((time.monotonic() - began) * 1000)
        if next(iter(pulled.messages)).queue_offset != 0:
            raise SystemExit("a pull gave another message")
    return waits


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
