"""The client process of single messages: so many in flight, each waited for and checked.

    python -m stratamq_bench.unary_client --root DIR --state FILE [--in-flight 64] [--seconds 10]
                                          [--way call|send|producer]

Prints one JSON object: rate, latencies, CPU. The queue offsets that came back must be dense.
"""

import argparse
import asyncio
import json
import math
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from stratamq.client import AsyncClient, AsyncProducer, Message, SendResult, connect_async
from stratamq.rpc import discovery
from stratamq_bench.append_client import SenderState
from stratamq_bench.broker import START_TIMEOUT_S
from stratamq_bench.checks import Mismatch
from stratamq_bench.load import Load, Places
from stratamq_bench.plan import percentiles
from stratamq_bench.usage import CpuMeter

SAMPLES = 64
SERVICES = ("commitlog", "dispatcher", "index")
"""Whose CPU is told, where they run."""


@dataclass(frozen=True, slots=True)
class Called:
    messages: int
    seconds: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    worst_ms: float
    cpu_s: dict[str, float]


Store = Callable[[Message], Awaitable[SendResult]]


def storing(client: AsyncClient, producer: AsyncProducer, way: str) -> Store:
    """One message by a call of its own, by `send`, or by a producer's delivery."""

    async def call(message: Message) -> SendResult:
        (result,) = await client.send_all([message])
        return result.check()

    async def produce(message: Message) -> SendResult:
        return await (await producer.send_message(message))

    return {"call": call, "send": client.send_message, "producer": produce}[way]


class Caller:
    """Stores one message at a time, to the queues in turn."""

    def __init__(self, store: Store, load: Load, places: Places) -> None:
        self.results: list[tuple[int, SendResult]] = []
        self.took_ms: list[float] = []
        self._store = store
        self._load = load
        self._places = places.in_turn

    async def call_until(
        self, end: float, pause_s: float = 0.0, stopped: "asyncio.Future[None] | None" = None
    ) -> None:
        load = self._load
        while (began := time.perf_counter()) < end and not (stopped is not None and stopped.done()):
            number = load.next_number
            load.next_number += 1
            message = message_of(load, number, self._places)
            result = await self._store(message)
            self.took_ms.append((time.perf_counter() - began) * 1e3)
            self.results.append((number, result))
            if pause_s:
                await asyncio.sleep(pause_s)

    async def all_for(self, seconds: float, in_flight: int, pause_s: float = 0.0) -> float:
        """Returns the seconds it took."""
        began = time.perf_counter()
        callers = (self.call_until(began + seconds, pause_s) for _ in range(in_flight))
        await asyncio.gather(*callers)
        return time.perf_counter() - began

    async def run_all(self, in_flight: int, pause_s: float) -> float:
        """Until a line comes, or the end, on standard input."""
        loop = asyncio.get_running_loop()
        stopped = loop.create_future()
        loop.add_reader(sys.stdin, lambda: stopped.done() or stopped.set_result(None))
        began = time.perf_counter()
        for_ever = [self.call_until(math.inf, pause_s, stopped) for _ in range(in_flight)]
        await asyncio.gather(*for_ever)
        loop.remove_reader(sys.stdin)
        return time.perf_counter() - began


def check_dense(
    results: list[tuple[int, SendResult]], places: Places, next_offsets: list[int]
) -> list[int]:
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


def message_of(load: Load, number: int, places: list[tuple[str, int]]) -> Message:
    topic, queue_id = places[number % len(places)]
    return Message(topic, load.body(number), "TagA", queue_id=queue_id, unique_key=f"{number:032X}")


class Told:
    """What a client process is told: where clients go on, and where the services are."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.places = Places()
        self._state = SenderState(0, [0] * len(self.places.in_turn), [])
        if options.state.exists():
            self._state = SenderState(**json.loads(options.state.read_text()))
        self.load = Load(options.body, self._state.next_number)
        self._options = options

    def meter(self) -> CpuMeter:
        """For this process and the services that run."""
        found = {name: discovery.read(self._options.root, name) for name in SERVICES}
        pids = {name: one.pid for name, one in found.items() if one is not None}
        return CpuMeter({"client": os.getpid(), **pids})

    def called(
        self,
        results: list[tuple[int, SendResult]],
        took_ms: list[float],
        seconds: float,
        used: dict[str, float],
    ) -> Called:
        """Check all results, and note where clients go on. Mismatch."""
        offsets = check_dense(results, self.places, self._state.next_offsets)
        some = results[:: max(1, len(results) // SAMPLES)]
        samples = [(result.physical_offset, number) for number, result in some]
        state = SenderState(self.load.next_number, offsets, samples)
        self._options.state.write_text(json.dumps(asdict(state)))
        took = sorted(took_ms)
        return Called(len(took), seconds, *percentiles(took), took[-1], used)


async def run(options: argparse.Namespace) -> Called:
    told = Told(options)
    pause_s = options.in_flight / options.rate if options.rate else 0.0
    async with (
        connect_async(options.root, retry_timeout_s=START_TIMEOUT_S) as client,
        client.producer() as producer,
    ):
        caller = Caller(storing(client, producer, options.way), told.load, told.places)
        await caller.all_for(options.warm_up, options.in_flight, pause_s)
        warmed = len(caller.took_ms)
        meter = told.meter()
        if options.until_told:
            print("calling", flush=True)
            seconds = await caller.run_all(options.in_flight, pause_s)
        else:
            seconds = await caller.all_for(options.seconds, options.in_flight, pause_s)
        used = meter.seconds()
    return told.called(caller.results, caller.took_ms[warmed:], seconds, used)


def parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(description or "").split("\n", 1)[0])
    parser.add_argument("--root", type=Path, required=True, help="the broker's store directory")
    parser.add_argument("--state", type=Path, required=True, help="where clients go on")
    parser.add_argument("--in-flight", type=int, default=64, help="calls at a time")
    parser.add_argument("--way", choices=("call", "send", "producer"), default="call")
    parser.add_argument("--rate", type=float, default=0.0, help="calls a second, about; 0: all")
    parser.add_argument("--body", type=int, default=1024, help="bytes")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--until-told", action="store_true", help="until a line on stdin")
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds before the measured")
    return parser


def print_called(called: Called) -> None:
    print(json.dumps(asdict(called)))


if __name__ == "__main__":
    print_called(asyncio.run(run(parser(__doc__).parse_args())))
