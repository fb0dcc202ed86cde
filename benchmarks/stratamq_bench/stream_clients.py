"""The client processes of streams: they send, or read, as fast as they can, and check everything.

Each function is a process of its own (`child.py`). A broker's store directory is `root`.
"""

import asyncio
import json
import os
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from stratamq.client import (
    AsyncClient,
    AsyncConsumer,
    AsyncDelivery,
    AsyncProducer,
    Client,
    connect,
    connect_async,
)
from stratamq_bench.broker import START_TIMEOUT_S
from stratamq_bench.load import Load, Mismatch, Places, SenderState
from stratamq_bench.report import Measured, measured
from stratamq_bench.usage import CpuMeter, cpu_seconds, service_pids

SAMPLE_EVERY = 997  # groups: prime, so that every queue is among them
CHECK_EVERY = 16  # groups
FOLLOWER_POLL_S = 0.005
SAMPLED = 1009  # messages that are read
PIECE_BYTES = 256 << 10
DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class Sent:
    """What one client did. `ended` and `began` are moments of this machine's monotonic clock."""

    messages: int
    began: float
    ended: float
    cpu_s: Mapping[str, float]
    cpu_before_s: Mapping[str, float]
    """What each process had used when the measured time began."""


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


@dataclass(frozen=True, slots=True)
class SendOptions:
    """What `send` is told."""

    root: Path
    state: Path
    """The file that says where the next client continues: there may be ten thousand queues."""
    places: dict[str, int]
    """`Places`."""
    body: int
    uneven: bool = False
    rate: float = 0.0
    """Messages a second; 0: as many as can be."""
    batch: int = 0
    """Messages; 0: the client's default."""
    seconds: float = 10.0
    warm_up: float = 1.0
    """Seconds before the measured ones."""
    count: int = 0
    """Send so many instead."""
    meter: int = 0
    """Another process whose CPU counts."""


async def send(root: str, state: str, **more: Any) -> Sent:
    """Send for a while, check every answer.

    Rates are measured after a warm-up, and until everything is answered and, if followers run,
    applied by them.
    """
    options = SendOptions(Path(root), Path(state), **more)
    places = Places(**options.places)
    pids = service_pids(options.root)
    rooms = list(pids)
    if options.meter:
        pids["consumer"] = options.meter
    before = SenderState.load(options.state, places)
    load = Load(options.body, before.next_number, options.uneven)
    changes = {"batch_messages": options.batch, "batch_bytes": 4 << 20} if options.batch else {}
    async with (
        connect_async(options.root, retry_timeout_s=START_TIMEOUT_S) as client,
        client.producer(unique_keys=False, **changes) as producer,
    ):
        sender = Sender(producer, load, places, before.next_offsets)
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
        SenderState(load.next_number, sender.next_offsets, sender.samples).save(options.state)
        return Sent(sender.answered - answered, began, ended, used, meter.before)


@dataclass(frozen=True, slots=True)
class Consumed:
    messages: int
    ended: float
    """A moment of this machine's monotonic clock."""
    cpu_s: float


class Progress:
    """Where each queue stands, and whether that is where all end."""

    def __init__(self, places: Places) -> None:
        self.next: dict[tuple[str, int], int] = dict.fromkeys(places.in_turn, 0)
        self.messages = 0
        self.all_read = asyncio.Event()
        self.topics = places.topic_names
        self._in_turn = places.in_turn
        self._ends: dict[tuple[str, int], int] | None = None

    def end_at(self, offsets: list[int]) -> None:
        self._ends = dict(zip(self._in_turn, offsets, strict=True))
        self.look()

    def look(self) -> None:
        """To be called when a queue has moved."""
        if self._ends is not None and self.next == self._ends:
            self.all_read.set()


async def _read(client: AsyncClient, topic: str, load: Load, progress: Progress) -> None:
    """Read one topic forever. Mismatch."""
    following = progress.next
    for stored in await client.queues(topic):
        following[topic, stored.queue_id] = stored.min_offset
    async with client.consume(topic, follow=True, max_bytes=PIECE_BYTES) as messages:
        async for message in messages:
            queue, offset = (topic, message.queue_id), message.queue_offset
            if following[queue] != offset:
                raise Mismatch(f"{queue}: {offset} where {following[queue]} was due")
            following[queue] = offset + 1
            progress.messages += 1
            if progress.messages % SAMPLED == 0:
                load.check(message)
            progress.look()


async def consume(root: str, places: dict[str, int], body: int, uneven: bool) -> Consumed:
    """Read everything while it is being written, and check every offset, and samples of the bodies.

    Prints `reading` when it reads. The offsets at which queues end (a JSON list in the order of
    `Places.in_turn`) come on its standard input; it ends when it has read up to all of them.
    """
    load, progress = Load(body, uneven=uneven), Progress(Places(**places))
    loop = asyncio.get_running_loop()

    def heard() -> None:
        progress.end_at(json.loads(sys.stdin.readline()))
        loop.remove_reader(sys.stdin)

    loop.add_reader(sys.stdin, heard)
    async with connect_async(root, retry_timeout_s=START_TIMEOUT_S) as client:
        readers = [
            asyncio.ensure_future(_read(client, topic, load, progress)) for topic in progress.topics
        ]
        print("reading", flush=True)
        whole = asyncio.ensure_future(progress.all_read.wait())
        done, _ = await asyncio.wait([*readers, whole], return_when=asyncio.FIRST_COMPLETED)
        ended = time.perf_counter()
        used = cpu_seconds(os.getpid())
        for task in done - {whole}:
            task.result()
        for task in readers:
            task.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    return Consumed(progress.messages, ended, used)


class EndToEnd:
    """What was due when, and what has come back. Every queue's offsets are dense."""

    def __init__(self, client: AsyncClient, load: Load, places: Places) -> None:
        self.took_ms: list[float] = []
        self._client = client
        self._load = load
        self._places = places.in_turn
        self._due: dict[int, float] = {}
        self._next = dict.fromkeys(self._places, 0)
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
            if number % CHECK_EVERY == 1:
                self._load.check(message)
            self._changed.set()


async def end_to_end(
    root: str, *, body: int, rate: float = 1000.0, seconds: float = 10.0, warm_up: float = 1.0
) -> Measured:
    """Send so many messages a second and take each back by a streaming pull.

    A message's time runs from the moment it was due to be sent, so that a stall counts for all that
    waited, to when the consumer has it.
    """
    places, load = Places(), Load(body)
    async with connect_async(root, retry_timeout_s=START_TIMEOUT_S) as client:
        both = EndToEnd(client, load, places)
        readers = [
            asyncio.ensure_future(both.take(await client.consume(topic, follow=True)))
            for topic in places.topic_names
        ]

        async def send_for(limit_s: float) -> None:
            sending = asyncio.ensure_future(both.send(rate, limit_s))
            await asyncio.wait([sending, *readers], return_when=asyncio.FIRST_COMPLETED)
            for reader in readers:
                if reader.done():
                    sending.cancel()
                    reader.result()
            await sending

        await send_for(warm_up)
        meter = CpuMeter({"client": os.getpid(), **service_pids(Path(root))})
        began = time.perf_counter()
        await send_for(seconds)
        took, used = time.perf_counter() - began, meter.seconds()
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    return measured(len(both.took_ms), took, used, both.took_ms)


def pull(
    root: str,
    topics: Sequence[str],
    messages: int,
    body: int,
    piece: int,
    seconds: float,
    uneven: bool = False,
) -> Measured:
    """Read topics of so many messages together repeatedly, one by one, and check every offset.

    Whole readings are counted, the first one is the warm-up. `piece`: bytes of one response.
    """
    load = Load(body, uneven=uneven)
    with connect(root, retry_timeout_s=START_TIMEOUT_S) as client:
        _read_all(client, topics, messages, load, piece)
        start, readings = time.perf_counter(), 0
        meter = CpuMeter({"client": os.getpid(), **service_pids(Path(root))})
        while time.perf_counter() - start < seconds:
            _read_all(client, topics, messages, load, piece)
            readings += 1
        return measured(readings * messages, time.perf_counter() - start, meter.seconds())


def _read_all(
    client: Client, topics: Sequence[str], expected: int, load: Load, piece_bytes: int
) -> None:
    """Read through the topics once: every offset follows the one before. Mismatch."""
    count = 0
    for topic in topics:
        next_offsets: dict[int, int] = {}
        with client.consume(topic, max_bytes=piece_bytes) as messages:
            for message in messages:
                queue, offset = message.queue_id, message.queue_offset
                due = next_offsets.get(queue, 0)
                if due != offset:
                    raise Mismatch(f"queue {queue} of {topic}: {offset} after {due - 1}")
                next_offsets[queue] = offset + 1
                count += 1
                if count % SAMPLED == 0:
                    load.check(message)
    if count != expected:
        raise Mismatch(f"{count} messages were read, {expected} are there")
