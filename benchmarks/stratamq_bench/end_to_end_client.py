"""The process that sends so many messages a second and takes each back by a streaming pull.

    python -m stratamq_bench.end_to_end_client --root DIR [--rate 1000] [--seconds 10]

A message's time runs from the moment it was due to be sent, so that a stall counts for all that
waited, to when the consumer has it. Prints one JSON object.
"""

import argparse
import asyncio
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from stratamq.client import AsyncClient, AsyncConsumer, connect_async
from stratamq.rpc import discovery
from stratamq_bench.broker import START_TIMEOUT_S
from stratamq_bench.checks import Mismatch
from stratamq_bench.load import Load, Places
from stratamq_bench.plan import percentiles
from stratamq_bench.usage import CpuMeter

DEADLINE_S = 30.0
CHECK_EVERY = 17


@dataclass(frozen=True, slots=True)
class Delivered:
    messages: int
    seconds: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    worst_ms: float
    cpu_s: dict[str, float]


class EndToEnd:
    """What was due when, and what has come back. Every queue's offsets are dense."""

    def __init__(self, client: AsyncClient, load: Load, places: Places) -> None:
        self.took_ms: list[float] = []
        self._client = client
        self._load = load
        self._places = places.in_turn
        self._due: dict[int, float] = {}
        self._next = dict.fromkeys(self._places, 0)
        self._first_measured = 0
        self._changed = asyncio.Event()

    async def send(self, rate: float, seconds: float) -> None:
        """At a steady rate; returns when all have come back."""
        load, began = self._load, time.perf_counter()
        first = load.next_number
        self.took_ms.clear()
        async with self._client.producer() as producer:
            for number in range(first, first + int(rate * seconds)):
                due = began + (number - first) / rate
                if (early := due - time.perf_counter()) > 0:
                    await asyncio.sleep(early)
                self._due[number] = due
                topic, queue_id = self._places[number % len(self._places)]
                await producer.send(
                    topic,
                    load.body(number),
                    tag="TagA",
                    queue_id=queue_id,
                    unique_key=f"{number:032X}",
                )
                load.next_number = number + 1
            await producer.flush()
        async with asyncio.timeout(DEADLINE_S):
            while self._due:
                self._changed.clear()
                await self._changed.wait()

    async def take(self, messages: AsyncConsumer) -> None:
        async for message in messages:
            now = time.perf_counter()
            queue = (message.topic, message.queue_id)
            number = int(message.unique_key, 16)
            if message.queue_offset != self._next[queue]:
                raise Mismatch(f"{queue}: {message.queue_offset}, not {self._next[queue]}")
            self._next[queue] += 1
            due = self._due.pop(number, None)
            if due is None:
                raise Mismatch(f"message {number} came twice, or was never sent")
            self.took_ms.append((now - due) * 1e3)
            if number % CHECK_EVERY == 0:
                self._load.check(message)
            self._changed.set()


async def run(options: argparse.Namespace) -> Delivered:
    places, load = Places(), Load(options.body)
    endpoints = {
        room: discovery.read(options.root, room) for room in ("commitlog", "dispatcher", "index")
    }
    pids = {room: endpoint.pid for room, endpoint in endpoints.items() if endpoint is not None}
    async with connect_async(options.root, retry_timeout_s=START_TIMEOUT_S) as client:
        both = EndToEnd(client, load, places)
        readers = [
            asyncio.ensure_future(both.take(await client.consume(topic, follow=True)))
            for topic in places.topic_names
        ]

        async def send(seconds: float) -> None:
            sending = asyncio.ensure_future(both.send(options.rate, seconds))
            await asyncio.wait([sending, *readers], return_when=asyncio.FIRST_COMPLETED)
            for reader in readers:
                if reader.done():
                    sending.cancel()
                    reader.result()
            await sending

        await send(options.warm_up)
        meter = CpuMeter({"client": os.getpid(), **pids})
        began = time.perf_counter()
        await send(options.seconds)
        seconds, used = time.perf_counter() - began, meter.seconds()
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    took = sorted(both.took_ms)
    return Delivered(len(took), seconds, *percentiles(took), took[-1], used)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--root", type=Path, required=True, help="the broker's store directory")
    parser.add_argument("--rate", type=float, default=1000.0, help="messages a second")
    parser.add_argument("--body", type=int, default=1024, help="bytes")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds before the measured")
    print(json.dumps(asdict(asyncio.run(run(parser.parse_args())))))


if __name__ == "__main__":
    main()
