"""The client processes of single messages: so many in flight, each waited for and checked.

Each function is a process of its own (`child.py`). A broker's store directory is `root`; `way` is
`call` for a call of its own, `send`, or `producer` for a producer's delivery.
"""

import asyncio
import math
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from stratamq.client import (
    AsyncClient,
    AsyncProducer,
    Client,
    Message,
    Producer,
    SendResult,
    connect,
    connect_async,
)
from stratamq_bench.broker import START_TIMEOUT_S
from stratamq_bench.load import Load, Mismatch, Places, SenderState
from stratamq_bench.report import Measured, measured
from stratamq_bench.usage import CpuMeter, service_pids

SAMPLES = 64
Results = list[tuple[int, SendResult]]
Storing = Callable[[Message], SendResult]
AsyncStoring = Callable[[Message], Awaitable[SendResult]]


class Session:
    """What a client process begins with and leaves behind, and what it has measured."""

    def __init__(
        self, root: str, state: str, body: int, beside: Mapping[str, int] | None = None
    ) -> None:
        """`beside`: other processes whose CPU is measured, by name."""
        self._beside = beside or {}
        self.places = Places().in_turn
        self.results: Results = []
        self.took_ms: list[float] = []
        self._root, self._file = Path(root), Path(state)
        self._state = SenderState.load(self._file, Places())
        self._load = Load(body)
        self._numbers = count(self._state.next_number)
        self._warmed, self._meter = 0, CpuMeter({})

    def next_message(self) -> tuple[int, Message]:
        """The next one's number, and the message; threads may call it at the same time."""
        number = next(self._numbers)
        topic, queue_id = self.places[number % len(self.places)]
        key = f"{number:032X}"
        body = self._load.body(number)
        return number, Message(topic, body, "TagA", queue_id=queue_id, unique_key=key)

    def stored(self, number: int, began: float, result: SendResult) -> None:
        self.took_ms.append((time.perf_counter() - began) * 1e3)
        self.results.append((number, result))

    def begin(self) -> None:
        """What follows is measured: CPU of this process and the services that run, and times."""
        self._warmed = len(self.took_ms)
        self._meter = CpuMeter({"client": os.getpid(), **service_pids(self._root), **self._beside})

    def end(self, seconds: float) -> Measured:
        """Check all results, and note where clients go on. Mismatch."""
        used, took_ms = self._meter.seconds(), self.took_ms[self._warmed :]
        offsets = check_dense(self.results, Places(), self._state.next_offsets)
        some = self.results[:: max(1, len(self.results) // SAMPLES)]
        samples = [(result.physical_offset, number) for number, result in some]
        SenderState(next(self._numbers), offsets, samples).save(self._file)
        return measured(len(took_ms), seconds, used, took_ms)


def check_dense(results: Results, places: Places, next_offsets: list[int]) -> list[int]:
    """Where each queue continues, if all offsets that came back follow each other. Mismatch."""
    found: dict[tuple[str, int], list[int]] = {place: [] for place in places.in_turn}
    for _, result in results:
        found[result.topic, result.queue_id].append(result.queue_offset)
    following = []
    for place, first in zip(places.in_turn, next_offsets, strict=True):
        if sorted(found[place]) != list(range(first, first + len(found[place]))):
            raise Mismatch(f"the offsets of {place} are not dense from {first} on")
        following.append(first + len(found[place]))
    return following


async def by_tasks(
    root: str,
    state: str,
    *,
    body: int,
    in_flight: int,
    way: str = "call",
    seconds: float | None = 10.0,
    warm_up: float = 1.0,
    rate: float = 0.0,
    beside: Mapping[str, int] | None = None,
) -> Measured:
    """So many tasks, each stores one message at a time.

    `rate`: calls a second, about; 0: as many as can be. `seconds` None: it prints `calling`, and
    ends with a line, or the end, on its standard input. `beside` as of `Session`.
    """
    session = Session(root, state, body, beside)
    pause_s = in_flight / rate if rate else 0.0
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()

    async def store_until(end: float, store: AsyncStoring) -> None:
        while (began := time.perf_counter()) < end and not stopped.done():
            number, message = session.next_message()
            session.stored(number, began, await store(message))
            if pause_s:
                await asyncio.sleep(pause_s)

    async def all_for(limit_s: float, store: AsyncStoring) -> float:
        """The seconds it took."""
        began = time.perf_counter()
        await asyncio.gather(*(store_until(began + limit_s, store) for _ in range(in_flight)))
        return time.perf_counter() - began

    async with (
        connect_async(root, retry_timeout_s=START_TIMEOUT_S) as client,
        client.producer() as producer,
    ):
        store = _async_storing(client, producer, way)
        await all_for(warm_up, store)
        session.begin()
        if seconds is None:
            loop.add_reader(sys.stdin, lambda: stopped.done() or stopped.set_result(None))
            print("calling", flush=True)
        took = await all_for(math.inf if seconds is None else seconds, store)
        return session.end(took)


def _async_storing(client: AsyncClient, producer: AsyncProducer, way: str) -> AsyncStoring:
    async def call(message: Message) -> SendResult:
        (result,) = await client.send_all([message])
        return result.check()

    async def produce(message: Message) -> SendResult:
        return await (await producer.send_message(message))

    return {"call": call, "send": client.send_message, "producer": produce}[way]


def by_threads(
    root: str, state: str, *, body: int, in_flight: int, way: str, seconds: float, warm_up: float
) -> Measured:
    """So many threads, each stores one message at a time."""
    session = Session(root, state, body)

    def store_until(end: float, store: Storing) -> None:
        while (began := time.perf_counter()) < end:
            number, message = session.next_message()
            session.stored(number, began, store(message))

    def all_for(limit_s: float, store: Storing) -> float:
        """The seconds it took."""
        began = time.perf_counter()
        with ThreadPoolExecutor(in_flight) as pool:
            list(pool.map(store_until, [began + limit_s] * in_flight, [store] * in_flight))
        return time.perf_counter() - began

    with connect(root, retry_timeout_s=START_TIMEOUT_S) as client, client.producer() as producer:
        store = _storing(client, producer, way)
        all_for(warm_up, store)
        session.begin()
        return session.end(all_for(seconds, store))


def _storing(client: Client, producer: Producer, way: str) -> Storing:
    if way == "call":
        return lambda message: client.send_all([message])[0].check()
    if way == "send":
        return client.send_message
    return lambda message: producer.send_message(message).result()
