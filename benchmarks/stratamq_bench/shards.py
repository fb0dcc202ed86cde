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
from typing import Any

from stratamq.client import Client, Message, connect
from stratamq.client.shard_routes import FRESH_NS
from stratamq_bench.child import Child
from stratamq_bench.report import Case
from stratamq_bench.usage import cpu_seconds, descriptors, pss_mb

NAME = "cluster.bench"


@dataclass(frozen=True, slots=True)
class ShardsOptions:
    shards: int = 100
    topics: int = 100
    queues: int = 8
    sends: int = 2_000


class _Meter:
    """Meters this process."""

    def __init__(self) -> None:
        self.began_s, self._used_s = time.perf_counter(), cpu_seconds(os.getpid())
        self.before_mb, self.before_files = pss_mb(os.getpid()), descriptors(os.getpid())

    def measured(self) -> dict[str, float]:
        seconds = time.perf_counter() - self.began_s
        return {
            "elapsed_ms": seconds * 1e3,
            "cpu_ms": (cpu_seconds(os.getpid()) - self._used_s) * 1e3,
            "more_mb": pss_mb(os.getpid()) - self.before_mb,
            "more_descriptors": float(descriptors(os.getpid()) - self.before_files),
        }


def run_shards(options: ShardsOptions) -> list[Case]:
    """StrataError."""
    with ExitStack() as stack:
        brokers = stack.enter_context(
            Child("light_brokers", options.shards, options.topics, options.queues)
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
            cases = [
                _case("the first look", lambda: client.shards(), options),
                _case("topics listed", lambda: client.topics(), options),
                _case("queues listed", lambda: client.queues(), options),
                _case("groups listed", lambda: client.groups(), options),
                _case(
                    "routes of all topics, asked again every 30 s", lambda: routes(client), options
                ),
                _case("messages sent one by one", lambda: sends(client), options, options.sends),
            ]
        with opened() as one:
            cases.append(
                _case(
                    "one topic's route, and one message",
                    lambda: one.send_all([Message("t0", b"x")]),
                    options,
                )
            )
        return cases


def _case(what: str, do: Callable[[], Any], options: ShardsOptions, messages: int = 0) -> Case:
    meter = _Meter()
    do()
    measured = meter.measured()
    share = measured["cpu_ms"] / (FRESH_NS / 1e6) * 100
    return Case(
        case=f"shards: {what}",
        messages_per_s=messages / measured["elapsed_ms"] * 1e3,
        bytes_per_s=0.0,
        floor=None,
        ratio=None,
        cpu_us_per_message={"client": measured["cpu_ms"] / messages * 1e3} if messages else {},
        pss_mb=pss_mb(os.getpid()),
        measured=measured | ({"percent_of_30_s": share} if "30 s" in what else {}),
        messages=messages,
        note=f"{options.shards} shards, {options.topics} topics of {options.queues} queues in each",
    )
