"""The client processes of the delivery's cases: workers, transactions, and delayed messages.

Each function is a process of its own (`child.py`). A broker's store directory is `root`.
"""

import asyncio
import os
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from stratamq.client import (
    AsyncClient,
    AsyncSharedMessage,
    AsyncSharedReader,
    Message,
    connect,
    connect_async,
)
from stratamq_bench.broker import START_TIMEOUT_S
from stratamq_bench.load import Load, Mismatch
from stratamq_bench.report import Measured, measured
from stratamq_bench.usage import CpuMeter, service_pids

SAMPLED = 256
INVISIBLE_S = 600.0
"""So long that no message is handed out twice while it is measured."""
WAIT_S = 0.5
BATCH = 256
STORING = 4
"""Batches of delayed messages in flight."""
LAST_WAIT_S = 120.0
PULLED = 32


class Work:
    """What the workers of one group have received, from the first message of each queue on."""

    def __init__(self, load: Load, messages: int) -> None:
        """`messages`: so many are there."""
        self.took_ms: list[float] = []
        self.done = 0
        self.is_over = False
        self._messages = messages
        self._load = load
        self._offsets: dict[int, list[int]] = defaultdict(list)

    async def one(self, messages: AsyncSharedReader) -> None:
        """One worker, until it is over or all messages are acknowledged."""
        while not self.is_over and self.done < self._messages:
            began = time.perf_counter()
            # None is there while others read all queues, too.
            if not (received := await messages.receive(wait_s=WAIT_S)):
                continue
            await messages.ack(received)
            self.took_ms.append((time.perf_counter() - began) * 1e3)
            self.done += len(received)
            self._note(received)
            if self.done % SAMPLED < len(received):
                self._load.check(received[0])

    async def rest(self, client: AsyncClient, topic: str, group: str) -> None:
        """Acknowledge what the client had received ahead of its workers, and has given back. With
        a lease nothing is received ahead."""
        async with client.subscribe(topic, group, leased=True) as messages:
            while await client.held_messages(group):
                received = await messages.receive(BATCH, WAIT_S)
                await messages.ack(received)
                self._note(received)

    def _note(self, received: Iterable[AsyncSharedMessage]) -> None:
        for message in received:
            self._offsets[message.queue_id].append(message.queue_offset)

    def check(self) -> None:
        """Each message was handed out once, and none was left out. Mismatch."""
        for queue_id, offsets in self._offsets.items():
            if sorted(offsets) != list(range(len(offsets))):
                raise Mismatch(f"queue {queue_id}: the offsets that workers got have gaps or twins")


async def work(
    root: str,
    topic: str,
    group: str,
    messages: int,
    body: int,
    batch: int,
    workers: int,
    seconds: float,
) -> Measured:
    """So many workers of a new group, until the time is over or all messages are acknowledged.
    Workers finish what they have received, so that every hand-out is acknowledged."""
    state = Work(Load(body), messages)
    async with connect_async(root, retry_timeout_s=START_TIMEOUT_S) as client:
        meter = CpuMeter({"client": os.getpid(), **service_pids(Path(root))})
        began = time.perf_counter()
        readers = [
            client.subscribe(topic, group, batch=batch, invisible_s=INVISIBLE_S)
            for _ in range(workers)
        ]
        tasks = [asyncio.ensure_future(state.one(reader)) for reader in readers]
        await asyncio.wait(tasks, timeout=seconds)
        state.is_over = True
        await asyncio.gather(*tasks)
        took, used = time.perf_counter() - began, meter.seconds()
        for reader in readers:
            await reader.close()
        await state.rest(client, topic, group)
    state.check()
    return measured(state.done, took, used, state.took_ms)


async def transactions(
    root: str, topic: str, body: int, in_flight: int, seconds: float
) -> Measured:
    """So many tasks, each ends one transaction of one message after the other."""
    load = Load(body)
    async with connect_async(root, retry_timeout_s=START_TIMEOUT_S) as client:

        async def one(number: int) -> None:
            async with client.transaction("bench") as transaction:
                await transaction.send(topic, load.body(number))

        return await _many(root, one, in_flight, seconds)


async def appends(root: str, topic: str, body: int, in_flight: int, seconds: float) -> Measured:
    """The plain appends that transactions are compared with: a call for each message."""
    load = Load(body)
    async with connect_async(root, retry_timeout_s=START_TIMEOUT_S) as client:

        async def one(number: int) -> None:
            (result,) = await client.send_all([Message(topic, load.body(number))])
            result.check()

        return await _many(root, one, in_flight, seconds)


async def _many(
    root: str, one: Callable[[int], Awaitable[None]], in_flight: int, seconds: float
) -> Measured:
    took_ms: list[float] = []
    await one(0)
    meter = CpuMeter({"client": os.getpid(), **service_pids(Path(root))})
    began = time.perf_counter()

    async def task(number: int) -> None:
        while (start := time.perf_counter()) < began + seconds:
            await one(number)
            took_ms.append((time.perf_counter() - start) * 1e3)
            number += in_flight

    await asyncio.gather(*map(task, range(1, in_flight + 1)))
    return measured(len(took_ms), time.perf_counter() - began, meter.seconds(), took_ms)


async def store_delayed(root: str, topic: str, body: int, count: int, level: int) -> Measured:
    """Store so many messages of one level, in batches."""
    load, numbers = Load(body), iter(range(0, count, BATCH))
    async with connect_async(root, retry_timeout_s=START_TIMEOUT_S) as client:

        async def store() -> None:
            for first in numbers:
                last = min(count, first + BATCH)
                rows = [_delayed(topic, load, number, level) for number in range(first, last)]
                for result in await client.send_all(rows):
                    result.check()

        meter = CpuMeter({"client": os.getpid(), **service_pids(Path(root))})
        began = time.perf_counter()
        await asyncio.gather(*(store() for _ in range(STORING)))
        return measured(count, time.perf_counter() - began, meter.seconds())


def _delayed(topic: str, load: Load, number: int, level: int, at_ms: int = 0) -> Message:
    key = f"{number:032X}"
    if at_ms:
        at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms)
        return Message(topic, load.body(number), deliver_at=at, unique_key=key)
    return Message(topic, load.body(number), delay_level=level, unique_key=key)


async def delay_errors(
    root: str, topic: str, body: int, count: int, levels_ms: Mapping[str, int], seconds: float
) -> Measured:
    """Store so many messages in this time, of each level as many as for any time, and take them. A
    message's time is from when it was due, by the broker's clock, until a consumer has it. Mismatch
    for one that is early, lost, or comes twice."""
    load, levels = Load(body), [(int(level), delay) for level, delay in levels_ms.items()]
    times, longest_ms = random.Random(body), max(levels_ms.values())
    due: dict[int, tuple[int, int]] = {}
    """Where each was stored, and when it is due: below 0, so long after it was stored."""
    arrived: dict[int, list[float]] = defaultdict(list)
    all_there = asyncio.Event()
    async with (
        connect_async(root, retry_timeout_s=START_TIMEOUT_S) as client,
        _taking(client, topic, arrived, all_there, count) as taking,
    ):
        meter = CpuMeter({"client": os.getpid(), **service_pids(Path(root))})
        began = time.perf_counter()
        for number in range(count):
            kind = number % (len(levels) + 1)
            level, delay_ms = levels[kind] if kind < len(levels) else (0, 0)
            at_ms = 0
            if not level:
                at_ms = time.time_ns() // 1_000_000 + times.randrange(longest_ms // 10, longest_ms)
            wait_s = began + number * seconds / count - time.perf_counter()
            await asyncio.sleep(max(0.0, wait_s))
            (result,) = await client.send_all([_delayed(topic, load, number, level, at_ms)])
            due[number] = result.check().physical_offset, at_ms or -delay_ms
        done, _ = await asyncio.wait(
            [taking, asyncio.ensure_future(all_there.wait())],
            timeout=LAST_WAIT_S,
            return_when=asyncio.FIRST_COMPLETED,
        )
        for task in done:
            task.result()
        took, used = time.perf_counter() - began, meter.seconds()
        errors = []
        for number, (place, due_ms) in due.items():
            if len(came := arrived[number]) != 1:
                raise Mismatch(f"delayed message {number} has arrived {len(came)} times")
            if due_ms < 0:
                due_ms = (await client.message_at(place)).store_timestamp_ms - due_ms
            error_ms = came[0] - due_ms
            if error_ms < 0:
                raise Mismatch(f"delayed message {number} is {-error_ms:.1f} ms early")
            errors.append(error_ms)
    return measured(count, took, used, errors)


@asynccontextmanager
async def _taking(
    client: AsyncClient,
    topic: str,
    arrived: dict[int, list[float]],
    all_there: asyncio.Event,
    count: int,
) -> AsyncIterator["asyncio.Task[None]"]:
    async def take() -> None:
        async with client.consume(topic, follow=True) as messages:
            async for message in messages:
                arrived[int(message.unique_key, 16)].append(time.time() * 1e3)
                if len(arrived) == count:
                    all_there.set()

    task = asyncio.ensure_future(take())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def pull_newest(root: str, topic: str, seconds: float) -> Measured:
    """Pull the newest messages of a queue, a call at a time."""
    with connect(root, retry_timeout_s=START_TIMEOUT_S) as client:
        newest = max(client.queues(topic), key=lambda queue: queue.max_offset)
        first = max(newest.min_offset, newest.max_offset - PULLED)
        meter = CpuMeter({"client": os.getpid(), **service_pids(Path(root))})
        began, calls = time.perf_counter(), 0
        while (took := time.perf_counter() - began) < seconds:
            found = client.pull(topic, newest.queue_id, first, max_messages=PULLED).messages
            if [one.queue_offset for one in found] != [*range(first, newest.max_offset)]:
                raise Mismatch(f"a pull from {first} on gave {found!r}")
            calls += 1
        return measured(calls, took, meter.seconds())
