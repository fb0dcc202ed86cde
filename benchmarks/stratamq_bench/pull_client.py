"""The client process of `stratamq bench pull`: reads a topic again and again, checks every offset.

    python -m stratamq_bench.pull_client --root DIR --topic NAME --messages N --seconds 10

Prints one JSON object. Whole readings of the topic are counted, the first one is the warm-up.
"""

import argparse
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from stratamq.client import Client, connect
from stratamq.rpc import discovery
from stratamq_bench.broker import START_TIMEOUT_S
from stratamq_bench.checks import Mismatch
from stratamq_bench.load import Load
from stratamq_bench.usage import CpuMeter

SAMPLE_EVERY = 1009


@dataclass(frozen=True, slots=True)
class Read:
    messages: int
    seconds: float
    cpu_s: dict[str, float]


def read_all(client: Client, topic: str, expected: int, load: Load, piece_bytes: int) -> None:
    """Once through the topic: every offset follows the one before. Mismatch."""
    next_offsets: dict[int, int] = {}
    count = 0
    with client.consume(topic, max_bytes=piece_bytes) as messages:
        for message in messages:
            queue, offset = message.queue_id, message.queue_offset
            if next_offsets.get(queue, 0) != offset:
                raise Mismatch(f"queue {queue}: {offset} after {next_offsets.get(queue, 0) - 1}")
            next_offsets[queue] = offset + 1
            count += 1
            if count % SAMPLE_EVERY == 0:
                load.check(message)
    if count != expected:
        raise Mismatch(f"{count} messages were read, {expected} are there")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--root", type=Path, required=True, help="the broker's store directory")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--messages", type=int, required=True, help="how many it holds")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--body", type=int, default=1024, help="bytes")
    parser.add_argument("--piece", type=int, default=256 << 10, help="bytes of one response")
    options = parser.parse_args()
    endpoints = {room: discovery.read(options.root, room) for room in ("commitlog", "dispatcher")}
    pids = {room: endpoint.pid for room, endpoint in endpoints.items() if endpoint is not None}
    load = Load(options.body)
    with connect(options.root, retry_timeout_s=START_TIMEOUT_S) as client:
        arguments = (client, options.topic, options.messages, load, options.piece)
        read_all(*arguments)
        start, readings = time.perf_counter(), 0
        meter = CpuMeter({"client": os.getpid(), **pids})
        while time.perf_counter() - start < options.seconds:
            read_all(*arguments)
            readings += 1
        seconds = time.perf_counter() - start
        print(json.dumps(asdict(Read(readings * options.messages, seconds, meter.seconds()))))


if __name__ == "__main__":
    main()
