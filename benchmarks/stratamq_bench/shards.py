"""What a cluster of very many shards costs a client: the real client, brokers that only answer.

The brokers run in a process of their own, behind one host name; what the client itself uses is
measured: memory, CPU, connections, and how long its looks and listings take.
"""

import json
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from stratamq.client import Client, Message, connect
from stratamq.client.shard_routes import FRESH_NS
from stratamq_bench.child import Child
from stratamq_bench.report import Case
from stratamq_bench.usage import CpuMeter, descriptors, pss_mb

NAME = "cluster.bench"


@dataclass(frozen=True, slots=True)
class Options:
    shards: int
    topics: int
    queues: int
    sends: int


def measure(_: Path, options: Options) -> list[Case]:
    """StrataError."""
    with ExitStack() as stack:
        brokers = stack.enter_context(
            Child(
                "light_brokers.serve_all",
                shards=options.shards,
                topics=options.topics,
                queues=options.queues,
            )
        )
        where = json.loads(brokers.line())
        target = f"{NAME}:{where['port']}"

        def opened() -> Client:
            return connect(target, resolve=lambda host, port: where["hosts"], retry_timeout_s=30.0)

        def routes(client: Client) -> None:
            for number in range(options.topics):
                client.send_all([Message(f"t{number}", b"x")])

        def sends(client: Client) -> None:
            for number in range(options.sends):
                client.send_all([Message(f"t{number % options.topics}", b"x")])

        with opened() as client:
            measured: list[tuple[str, Callable[[], Any], int]] = [
                ("the first look", client.shards, 0),
                ("topics listed", client.topics, 0),
                ("queues listed", client.queues, 0),
                ("groups listed", client.groups, 0),
                ("routes of all topics, asked again every 30 s", lambda: routes(client), 0),
                ("messages sent one by one", lambda: sends(client), options.sends),
            ]
            cases = [_case(what, do, options, messages) for what, do, messages in measured]
        with opened() as one:
            do = partial(one.send_all, [Message("t0", b"x")])
            return [*cases, _case("one topic's route, and one message", do, options, 0)]


def _case(what: str, do: Callable[[], Any], options: Options, messages: int) -> Case:
    """What this process uses while it does it."""
    pid = os.getpid()
    before_mb, before_files = pss_mb(pid), descriptors(pid)
    began, meter = time.perf_counter(), CpuMeter({"client": pid})
    do()
    elapsed_ms = (time.perf_counter() - began) * 1e3
    cpu_ms = meter.seconds()["client"] * 1e3
    measured = {
        "elapsed_ms": elapsed_ms,
        "cpu_ms": cpu_ms,
        "more_mb": pss_mb(pid) - before_mb,
        "more_descriptors": float(descriptors(pid) - before_files),
    }
    if "30 s" in what:
        measured["percent_of_30_s"] = cpu_ms / (FRESH_NS / 1e6) * 100
    return Case(
        case=f"shards: {what}",
        messages_per_s=messages / elapsed_ms * 1e3,
        cpu_us_per_message={"client": cpu_ms / messages * 1e3} if messages else {},
        pss_mb=pss_mb(pid),
        measured=measured,
        messages=messages,
        note=f"{options.shards} shards, {options.topics} topics of {options.queues} queues in each",
    )
