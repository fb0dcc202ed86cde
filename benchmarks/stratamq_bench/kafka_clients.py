"""One consumer of ours beside Kafka's: a process of its own (`child.py`)."""

import os
import time
from pathlib import Path

from stratamq.client import Client, connect
from stratamq_bench.broker import START_TIMEOUT_S
from stratamq_bench.load import Mismatch
from stratamq_bench.report import Measured, measured
from stratamq_bench.usage import CpuMeter, service_pids


def read(root: str, topic: str, messages: int, body: int, seconds: float) -> Measured:
    """Read the topic from begin to end repeatedly; the first time is the warm-up.

    As the Java program does, it looks at each message's offset and value.
    """
    with connect(root, retry_timeout_s=START_TIMEOUT_S) as client:
        _read_all(client, topic, messages, body)
        meter = CpuMeter({"client": os.getpid(), **service_pids(Path(root))})
        began, readings = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            _read_all(client, topic, messages, body)
            readings += 1
        return measured(readings * messages, time.perf_counter() - began, meter.seconds())


def _read_all(client: Client, topic: str, expected: int, body: int) -> None:
    due = [0] * len(client.queues(topic))
    size = 0
    with client.consume(topic) as reader:
        for message in reader:
            queue, offset = message.queue_id, message.queue_offset
            if offset != due[queue]:
                raise Mismatch(f"queue {queue}: {offset} where {due[queue]} was due")
            due[queue] = offset + 1
            size += len(message.body)
    if sum(due) != expected or size != expected * body:
        raise Mismatch(f"{due} and {size} bytes, of {expected} messages of {body}")
