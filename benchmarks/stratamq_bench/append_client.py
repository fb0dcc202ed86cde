"""The client process of the append cases: sends for a while, checks every answer.

    python -m stratamq_bench.append_client --root DIR --state FILE --seconds 10
                                           [--batch 256] [--body 1024] [--rate 0]

Prints one JSON object. Rates are measured after a warm-up, and until everything is answered and,
if followers run, applied by them. FILE holds where the next client continues: there may be ten
thousand queues.
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
from stratamq.rpc import discovery
from stratamq_bench.broker import FOLLOWERS, START_TIMEOUT_S
from stratamq_bench.checks import Mismatch
from stratamq_bench.load import Load, Places
from stratamq_bench.usage import CpuMeter

SAMPLE_EVERY = 997  # groups: prime, so that every queue is among them
CHECK_EVERY = 16  # groups
FOLLOWER_POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class Sent:
    """What one client did. `ended` and `began` are moments of this machine's monotonic clock."""

    messages: int
    began: float
    ended: float
    cpu_s: Mapping[str, float]
    cpu_before_s: Mapping[str, float]
    """What each process had used when the measured time began."""

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@dataclass(slots=True)
class SenderState:
    """Where a client ended: the next one continues there. `next_offsets` as `Places.in_turn`."""

    next_number: int
    next_offsets: list[int]
    samples: list[tuple[int, int]]
    """(physical offset, message number) of some of the last client's."""


class Sender:
    """Sends groups of messages to the queues in turn and holds every answer against the last."""

    def __init__(
        self, producer: AsyncProducer, load: Load, places: Places, next_offsets: list[int]
    ) -> None:
        self.answered = 0
        self.samples: list[tuple[int, int]] = []
        self._producer = producer
        self._load = load
        self._run_messages = places.run_messages
        self._places = places.in_turn
        self._turns = cycle(self._places)
        self._next = dict(zip(self._places, next_offsets, strict=True))
        self._waiting: deque[tuple[tuple[str, int], int, AsyncDelivery, AsyncDelivery]] = deque()
        self._groups = 0

    @property
    def next_offsets(self) -> list[int]:
        return [self._next[place] for place in self._places]

    async def send_until(self, moment: float, rate: float = 0.0) -> None:
        """Send as fast as possible, or at this rate of messages a second."""
        began, groups = time.perf_counter(), 0
        while time.perf_counter() < moment:
            for _ in range(CHECK_EVERY):
                await self._send_group()
            await self._check_answered()
            groups += CHECK_EVERY
            if rate:
                due = began + groups * self._run_messages / rate
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
        # Every queue has as many turns as the others, so that the next client begins at the first.
        while self._load.next_number % (len(self._places) * self._run_messages):
            await self._send_group()
            await self._check_answered()

    async def send_count(self, messages: int) -> None:
        """At least so many, as many to each queue."""
        left = messages
        while left > 0 or self._load.next_number % (len(self._places) * self._run_messages):
            await self._send_group()
            await self._check_answered()
            left -= self._run_messages

    async def finish(self) -> None:
        await self._producer.flush()
        await self._check_answered()
        if self._waiting:
            raise Mismatch(f"{len(self._waiting)} groups of messages have no answer")

    async def _send_group(self) -> None:
        queue = next(self._turns)
        first = self._load.next_number
        rows = self._load.rows(self._run_messages)
        deliveries = await self._producer.send_rows(queue[0], rows, queue_id=queue[1])
        self._waiting.append((queue, first, deliveries[0], deliveries[-1]))

    async def _check_answered(self) -> None:
        size = self._run_messages
        while self._waiting and self._waiting[0][3].done:
            queue, number, oldest, newest = self._waiting.popleft()
            first, last = await oldest, await newest
            expected = self._next[queue]
            if (first.queue_offset, last.queue_offset) != (expected, expected + size - 1):
                raise Mismatch(
                    f"{queue}: offsets {first.queue_offset} to {last.queue_offset} where "
                    f"{size} from {expected} on were due"
                )
            self._next[queue] = expected + size
            self.answered += size
            self._groups += 1
            if self._groups % SAMPLE_EVERY == 0:
                self.samples.append((first.physical_offset, number))


async def wait_for_followers(client: AsyncClient, rooms: list[str]) -> None:
    """Return when every follower has applied what the log has confirmed so far."""
    end = (await client.log_state()).appended_offset
    states = {"dispatcher": client.admin.dispatch_state, "index": client.admin.index_state}
    for room in rooms:
        while room in states and (await states[room]()).applied_offset < end:
            await asyncio.sleep(FOLLOWER_POLL_S)


async def run(options: argparse.Namespace) -> Sent:
    root, places = Path(options.root), Places(options.topics, options.queues, options.run)
    endpoints = {room: discovery.read(root, room) for room in ("commitlog", *FOLLOWERS)}
    pids = {room: endpoint.pid for room, endpoint in endpoints.items() if endpoint is not None}
    rooms = list(pids)
    if options.meter:
        pids["consumer"] = options.meter
    state = SenderState(0, [0] * len(places.in_turn), [])
    if options.state.exists():
        state = SenderState(**json.loads(options.state.read_text()))
    load = Load(options.body, state.next_number)
    changes = {"batch_messages": options.batch, "batch_bytes": 4 << 20} if options.batch else {}
    async with (
        connect_async(root, retry_timeout_s=START_TIMEOUT_S) as client,
        client.producer(unique_keys=False, **changes) as producer,
    ):
        sender = Sender(producer, load, places, state.next_offsets)
        if options.warm_up and not options.count:
            await sender.send_until(time.perf_counter() + options.warm_up, options.rate)
            await sender.finish()
            await wait_for_followers(client, rooms)
        answered, began = sender.answered, time.perf_counter()
        meter = CpuMeter({"client": os.getpid(), **pids})
        if options.count:
            await sender.send_count(options.count)
        else:
            await sender.send_until(began + options.seconds, options.rate)
        await sender.finish()
        await wait_for_followers(client, rooms)
        ended, used = time.perf_counter(), meter.seconds()
        state = SenderState(load.next_number, sender.next_offsets, sender.samples)
        options.state.write_text(json.dumps(asdict(state)))
        return Sent(sender.answered - answered, began, ended, used, meter.before)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--root", required=True, help="the broker's store directory")
    parser.add_argument("--state", type=Path, required=True, help="where clients go on")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds before the measured")
    parser.add_argument("--count", type=int, default=0, help="send so many instead")
    parser.add_argument("--rate", type=float, default=0.0, help="messages a second; 0: all it can")
    parser.add_argument("--batch", type=int, default=0, help="messages; 0: the client's default")
    parser.add_argument("--body", type=int, default=1024, help="bytes")
    parser.add_argument("--meter", type=int, default=0, help="another process whose CPU counts")
    parser.add_argument("--topics", type=int, default=4)
    parser.add_argument("--queues", type=int, default=4, help="of each topic")
    parser.add_argument("--run", type=int, default=16, help="messages to a queue at a time")
    print(json.dumps(asdict(asyncio.run(run(parser.parse_args())))))


if __name__ == "__main__":
    main()
