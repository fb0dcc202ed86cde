"""How fast the console's pages are over a large store, and what open ones cost its broker.

A store is filled first. Then each page is asked for again and again, one request after another, and
single appends take turns: with pages that are open, as browsers keep them, and without.
"""

import http.client
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stratamq.client import Client
from stratamq_bench import broker as broker_module
from stratamq_bench.broker import Broker, until
from stratamq_bench.child import Child, run
from stratamq_bench.load import Mismatch
from stratamq_bench.report import Bar, Case
from stratamq_bench.usage import CpuMeter

ROOMS = ("commitlog", "dispatcher", "index", "ha", "janitor", "delivery", "console")
QUEUES, QUEUE_UNITS = 4, 200
LARGE_TOPICS = 20
SETTINGS = {
    "commitlog.segment_bytes": 64 << 20,
    "commitlog.flush_disk_type": "ASYNC_FLUSH",
    "dispatcher.queue_file_bytes": QUEUE_UNITS * 20,
    "ha.replication_address": "127.0.0.1:0",
    "console.http_address": "127.0.0.1:0",
}
GROUPS = 300
REFRESH_S = 5.0
"""How often an open overview asks again."""
DEADLINE_S = 3_600.0
TURN_S = 10.0
WARM = 3


@dataclass(frozen=True, slots=True)
class Options:
    topics: int
    messages: int
    requests: int
    seconds: float
    """So long appends are sent beside open pages, and as long without them."""
    pages: int


def measure(directory: Path, options: Options) -> list[Case]:
    """Everything that is written is below `directory`. Mismatch, StrataError."""
    broker_module.START_TIMEOUT_S = broker_module.STOP_TIMEOUT_S = DEADLINE_S
    with Broker(directory, ROOMS, SETTINGS) as broker:
        sizes = {"topics": options.topics, "messages": options.messages}
        run("console_clients.fill", root=broker.root, **sizes)
        with broker.client() as client:
            _followed(client)
            _commit(client, options)
            return measured_pages(broker, client, options)


def measured_pages(broker: Broker, client: Client, options: Options) -> list[Case]:
    """The cases of a broker whose store is filled."""
    address = client.admin.console_state().url.removeprefix("http://")
    note = f"{options.topics} topics, {options.messages} messages"
    cases = [
        _page(name, path, address, broker, options.requests, note)
        for name, path in paths(client, options).items()
    ]
    return [*cases, _beside(broker, client, address, options, note)]


def paths(client: Client, options: Options) -> dict[str, str]:
    """Every page, over what the store has most of."""
    large = topic_name(0)
    last = client.pull(large, 0, max(0, client.queues(large)[0].max_offset - 1)).messages
    at, offset = last[0].physical_offset, last[0].queue_offset
    return {
        "overview": "/",
        "topics": "/topics",
        "topics, searched": f"/topics?q={options.topics - 1:06}",
        "a topic": f"/topics/{large}",
        "messages": f"/messages?topic={large}",
        "messages by key": f"/messages?topic={large}&key=k{options.messages - 1}",
        "messages by text": f"/messages?topic={large}&text=nothing-has-it",
        "a message": f"/messages/{large}/0/{offset}",
        "live": f"/live?topic={large}",
        "where is it": f"/where?at={at}",
        "groups": "/groups",
        "a group": "/groups/group-000",
        "storage": "/storage",
        "cluster": "/cluster",
    }


def topic_name(number: int) -> str:
    return f"topic-{number:06}"


def _followed(client: Client) -> None:
    end = client.log_state().appended_offset
    until(
        lambda: (
            min(
                client.admin.dispatch_state().durable_offset,
                client.admin.index_state().applied_offset,
            )
            >= end
        ),
        "queues and index are not there",
        DEADLINE_S,
    )


def _commit(client: Client, options: Options) -> None:
    """Groups that have read a part of three topics."""
    for number in range(GROUPS):
        topics = [topic_name((number * 7 + one) % options.topics) for one in range(3)]
        places = {(topic, queue): 1 for topic in topics for queue in range(QUEUES)}
        client.commit_offsets(f"group-{number:03}", places)


def _page(name: str, path: str, address: str, broker: Broker, requests: int, note: str) -> Case:
    """The time to the first byte, and CPU of the console and of all others."""
    waits, sizes = [], []
    for number in range(WARM + requests):
        if number == WARM:
            meter = CpuMeter(broker.pids)
        wait_ms, size = ask(address, path)
        waits.append(wait_ms)
        sizes.append(size)
    used = {room: s * 1e3 / requests for room, s in meter.seconds().items()}
    return Case(
        case=f"console: {name}",
        bars=(Bar("p95_ms", "below", 200), Bar("page_kib", "below", 300)),
        measured={
            "first_ms": waits[0],
            "p50_ms": float(np.percentile(waits[WARM:], 50)),
            "p95_ms": float(np.percentile(waits[WARM:], 95)),
            "page_kib": max(sizes) / 1024,
            "console_cpu_ms": used.pop("console"),
            "services_cpu_ms": sum(used.values()),
        },
        messages=requests,
        note=note,
    )


def ask(address: str, path: str) -> tuple[float, int]:
    """Milliseconds to the first byte, and the page's bytes. Mismatch: it is an error page."""
    connection = http.client.HTTPConnection(address, timeout=60)
    began = time.perf_counter()
    connection.request("GET", path)
    response = connection.getresponse()
    wait_ms = (time.perf_counter() - began) * 1e3
    body = response.read()
    connection.close()
    if response.status != 200:
        raise Mismatch(f"{path} was answered {response.status}: {body[:2000]!r}")
    return wait_ms, len(body)


def _beside(broker: Broker, client: Client, address: str, options: Options, note: str) -> Case:
    """Appends of a moment with open pages, and of a moment without, by turns."""
    each_s = min(TURN_S, options.seconds)
    turns, services = round(options.seconds / each_s), [room for room in ROOMS if room != "console"]
    waits: dict[bool, list[float]] = defaultdict(list)
    used: dict[bool, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    idle: dict[bool, float] = defaultdict(float)
    for turn in range(2 * turns):
        with_pages = turn % 2 == 1
        pages = options.pages if with_pages else 0
        with Child(
            "console_clients.hold", address=address, pages=pages, topic=topic_name(0)
        ) as one:
            one.line()
            meter = CpuMeter({room: broker.pids[room] for room in services})
            time.sleep(each_s)
            idle[with_pages] += sum(meter.seconds().values())
            meter = CpuMeter(broker.pids)
            waits[with_pages] += appends(client, each_s)
            for room, seconds in meter.seconds().items():
                used[with_pages][room] += seconds
    p99 = {one: float(np.percentile(some, 99)) for one, some in waits.items()}
    each_us = {
        one: 1e6 * sum(used[one][room] for room in services) / len(waits[one]) for one in waits
    }
    return Case(
        case=f"console: {options.pages} open pages",
        bars=(Bar("broker_cpu_percent", "below", 5), Bar("p99_ratio", "at most", 1.05)),
        measured={
            "broker_cpu_percent": 100 * (idle[True] - idle[False]) / (turns * each_s),
            "console_cpu_percent": 100 * used[True]["console"] / (turns * each_s),
            "append_p99_ms": p99[True],
            "append_p99_alone_ms": p99[False],
            "p99_ratio": p99[True] / p99[False],
            "append_cpu_us": each_us[True],
            "append_cpu_alone_us": each_us[False],
        },
        messages=sum(map(len, waits.values())),
        note=note,
    )


def appends(client: Client, seconds: float) -> list[float]:
    """Milliseconds of single calls, a hundred a second."""
    waits: list[float] = []
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        time.sleep(max(0.0, len(waits) / 100 - passed))
        at = time.perf_counter()
        client.send(topic_name(0), b"y" * 100, queue_id=0)
        waits.append((time.perf_counter() - at) * 1e3)
    return waits
