"""How cost grows with what there is: one broker filled, stopped, started, asked.

    python -m stratamq_bench.child growth.run topics=10000 queues=100000 directory=/dev/shm/growth

Each queue gets one message; with `segments` as many segments are written as well. `followers` and
`connections` come from one other process, `generations` are starts that nothing followed. Printed:
what filling took, a stop and a start, the memory of each service, the CPU of the idle broker, how
long single appends take one after another, while the queue table is saved, lists and pulls of all
kinds of queues, and what a new slave takes. On `tmpfs` a flush costs nothing, and a queue file no
disk.
"""

import json
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stratamq.client import Client
from stratamq_bench import broker as broker_module
from stratamq_bench.broker import Broker, replica_of, until
from stratamq_bench.child import Child
from stratamq_bench.growth_load import begin_generations
from stratamq_bench.usage import CpuMeter, kibibytes

ROOMS = ("commitlog", "dispatcher")
SEGMENT, SMALL_SEGMENT = 64 << 20, 16 << 10
DEADLINE_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Growth:
    """What there is, and how it is measured."""

    topics: int = 1_000
    queues: int = 10_000
    """In all."""
    segments: int = 0
    """The number of segments in all; each has 16 KiB."""
    followers: int = 0
    """Beside the dispatcher."""
    connections: int = 0
    generations: int = 0
    """Before the last start."""
    idle_seconds: float = 10.0
    append_seconds: float = 12.0
    replicate: bool = False
    """To a new slave, in the end."""


def run(directory: str, **options: Any) -> dict[str, object]:
    """`directory`: an empty one. `options`: `Growth`."""
    arguments, place = Growth(**options), Path(directory)
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
    with Broker(place, ROOMS, settings) as broker:
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
            many = {"connections": arguments.connections, "followers": arguments.followers}
            stack.enter_context(Child("growth_load.hold", root=broker.root, **many)).line()
            for room, pid in broker.pids.items():
                found[f"memory_{room}_mib"] = kibibytes(f"/proc/{pid}/status", "RssAnon") / 1024
            waits = _appends(client, arguments.append_seconds)
            found["append_ms"] = _parts(waits)
            for name in ("list_queues_s", "list_queues_again_s"):
                began = time.monotonic()
                found["listed_queues"] = len(client.queues())
                found[name] = time.monotonic() - began
            found["pull_ms"] = _parts(_pulls(client, arguments.topics, each))
            meter = CpuMeter(broker.pids)
            time.sleep(arguments.idle_seconds)
            for room, used in meter.seconds().items():
                found[f"idle_cpu_{room}_percent"] = 100 * used / arguments.idle_seconds
            print(json.dumps(found), file=sys.stderr, flush=True)
            if arguments.replicate:
                found |= _replicate(broker, client, place, settings)
    return found


def _replicate(
    broker: Broker, client: Client, directory: Path, settings: dict[str, object]
) -> dict[str, object]:
    """A new slave takes over the log, the topics and the queues."""
    broker.start("ha")
    end = client.log_state().appended_offset
    found: dict[str, object] = {}
    began = time.monotonic()
    with (
        replica_of(broker, directory, settings) as slave,
        slave.client() as reader,
    ):
        until(lambda: reader.log_state().appended_offset >= end, "no log at the slave", DEADLINE_S)
        found["slave_log_s"] = time.monotonic() - began
        topics = len(client.topics())
        until(lambda: len(reader.topics()) >= topics, "no topics at the slave", DEADLINE_S)
        found["slave_topics_s"] = time.monotonic() - began
        slave.start("dispatcher")
        _applied(reader)
        found["slave_applied_s"] = time.monotonic() - began
        found["slave_queues"] = len(reader.queues())
        for room, pid in slave.pids.items():
            found[f"memory_slave_{room}_mib"] = kibibytes(f"/proc/{pid}/status", "RssAnon") / 1024
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

    until(reached, "the dispatcher is not there", DEADLINE_S)


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
