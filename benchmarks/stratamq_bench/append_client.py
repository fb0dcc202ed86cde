"""The client process of `stratamq bench append`: sends for a while, checks every answer.

    python -m stratamq_bench.append_client --root DIR --seconds 10 [--batch 256] [--body 1024]

Prints one JSON object. Rates are measured after a warm-up, and until everything is answered and,
if followers run, applied by them.
"""

import argparse
import asyncio
import json
import os
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path

from stratamq.client import AsyncClient, AsyncDelivery, AsyncProducer, connect_async
from stratamq.runtime import discovery
from stratamq_bench.broker import ROOM_MODULES, START_PATIENCE_S
from stratamq_bench.checks import Mismatch
from stratamq_bench.load import QUEUE_COUNT, RUN_MESSAGES, Load, queue_places
from stratamq_bench.usage import CpuMeter

SAMPLE_EVERY = 997  # groups of RUN_MESSAGES: prime, so that every queue is among them


@dataclass(frozen=True, slots=True)
class Sent:
    """What one client did. `next_offsets` are those of `load.queue_places`, in that order."""

    messages: int
    seconds: float
    cpu_s: Mapping[str, float]
    next_number: int
    next_offsets: list[int]
    samples: list[tuple[int, int]]
    """(physical offset, message number) of some of them."""


class Sender:
    """Sends groups of messages to the queues in turn and holds every answer against the last."""

    def __init__(
        self, producer: AsyncProducer, load: Load, topics: int, next_offsets: list[int]
    ) -> None:
        self.answered = 0
        self.samples: list[tuple[int, int]] = []
        self._producer = producer
        self._load = load
        self._places = queue_places(topics)
        self._turns = cycle(self._places)
        self._next = dict(zip(self._places, next_offsets, strict=True))
        self._waiting: deque[tuple[tuple[str, int], int, list[AsyncDelivery]]] = deque()
        self._groups = 0

    @property
    def next_offsets(self) -> list[int]:
        return [self._next[place] for place in self._places]

    async def send_until(self, moment: float) -> None:
        while time.perf_counter() < moment:
            for _ in self._places:
                await self._send_group()
            await self._check_answered()

    async def send_count(self, messages: int) -> None:
        while messages > 0:
            await self._send_group()
            await self._check_answered()
            messages -= RUN_MESSAGES

    async def finish(self) -> None:
        await self._producer.flush()
        await self._check_answered()
        if self._waiting:
            raise Mismatch(f"{len(self._waiting)} groups of messages have no answer")

    async def _send_group(self) -> None:
        queue = next(self._turns)
        first = self._load.next_number
        rows = self._load.rows()
        deliveries = await self._producer.send_rows(queue[0], rows, queue_id=queue[1])
        self._waiting.append((queue, first, deliveries))

    async def _check_answered(self) -> None:
        while self._waiting and self._waiting[0][2][-1].done:
            queue, number, deliveries = self._waiting.popleft()
            first, last = await deliveries[0], await deliveries[-1]
            expected = self._next[queue]
            if (first.queue_offset, last.queue_offset) != (expected, expected + RUN_MESSAGES - 1):
                raise Mismatch(
                    f"{queue}: offsets {first.queue_offset} to {last.queue_offset} where "
                    f"{RUN_MESSAGES} from {expected} on were due"
                )
            self._next[queue] = expected + RUN_MESSAGES
            self.answered += RUN_MESSAGES
            self._groups += 1
            if self._groups % SAMPLE_EVERY == 0:
                self.samples.append((first.physical_offset, number))


async def wait_for_followers(client: AsyncClient, rooms: list[str]) -> None:
    """Return when every follower has applied what the log has confirmed so far."""
    end = (await client.log_state()).appended_offset
    states = {"dispatcher": client.dispatch_state, "index": client.index_state}
    for room in rooms:
        while room in states and (await states[room]()).applied_offset < end:
            await asyncio.sleep(0.005)


async def run(options: argparse.Namespace) -> Sent:
    root = Path(options.root)
    endpoints = {room: discovery.read(root, room) for room in ROOM_MODULES}
    pids = {room: endpoint.pid for room, endpoint in endpoints.items() if endpoint is not None}
    rooms = list(pids)
    load = Load(options.body, options.first_number)
    changes = {"batch_messages": options.batch, "batch_bytes": 4 << 20} if options.batch else {}
    async with (
        connect_async(root, patience_s=START_PATIENCE_S) as client,
        client.producer(unique_keys=False, **changes) as producer,
    ):
        next_offsets = options.next_offsets or [0] * QUEUE_COUNT
        sender = Sender(producer, load, options.topics, next_offsets)
        if options.count:
            await sender.send_count(options.count)
            await sender.finish()
            answered, meter, start = 0, CpuMeter({}), time.perf_counter()
        else:
            await sender.send_until(time.perf_counter() + options.warm_up)
            await sender.finish()
            await wait_for_followers(client, rooms)
            answered, start = sender.answered, time.perf_counter()
            meter = CpuMeter({"client": os.getpid(), **pids})
            await sender.send_until(start + options.seconds)
            await sender.finish()
        await wait_for_followers(client, rooms)
        return Sent(
            messages=sender.answered - answered,
            seconds=time.perf_counter() - start,
            cpu_s=meter.seconds(),
            next_number=load.next_number,
            next_offsets=sender.next_offsets,
            samples=sender.samples,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--root", required=True, help="the broker's store directory")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds before the measured")
    parser.add_argument("--count", type=int, default=0, help="send so many, measure nothing")
    parser.add_argument("--batch", type=int, default=0, help="messages; 0: the client's default")
    parser.add_argument("--body", type=int, default=1024, help="bytes")
    parser.add_argument("--first-number", type=int, default=0)
    parser.add_argument("--next-offsets", type=int, nargs=QUEUE_COUNT)
    parser.add_argument("--topics", type=int, default=4)
    print(json.dumps(asdict(asyncio.run(run(parser.parse_args())))))


if __name__ == "__main__":
    main()
