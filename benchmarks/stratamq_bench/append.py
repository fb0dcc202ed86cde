"""How fast one client and the services append, beside `floor_stream` in the same minutes.

    floor, client, floor, client, …, floor

The rate of each round is held against the mean of the floors before and after it; what counts is
the median of the rounds. Between rounds the log's old segments are deleted, as the janitor does on
a broker that keeps its disk bounded.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import grpc

from stratamq.api.v1 import commitlog_pb2, commitlog_pb2_grpc
from stratamq.client import Client, Topic
from stratamq.runtime import discovery
from stratamq_bench import child
from stratamq_bench.broker import Broker
from stratamq_bench.checks import Mismatch
from stratamq_bench.load import QUEUE_COUNT, Load, queue_places, topic_names
from stratamq_bench.machine import first_touch_bytes_per_s
from stratamq_bench.report import Case, Floor
from stratamq_bench.usage import pss_mb

SEGMENT_BYTES = 256 << 20
KEPT_SEGMENTS = 2
TOPICS = 4
WARM_UP_S = 1.0
BARS = {("commitlog",): 0.5, ("commitlog", "dispatcher", "index"): 0.35}
"""Of `floor_stream --sync`, under sync flush."""


@dataclass(frozen=True, slots=True)
class AppendOptions:
    seconds: float = 10.0
    """Measured, of each round."""
    rounds: int = 3
    body: int = 1024
    batch: int = 256
    """Messages; 0: the client's default batch, the floor at 256."""
    sync: bool = True
    followers: bool = False


def run_append(directory: Path, options: AppendOptions) -> Case:
    """Everything that is written lies below `directory`. Raises Mismatch, StrataError."""
    rooms = ["commitlog", "dispatcher", "index"] if options.followers else ["commitlog"]
    settings = {
        "commitlog.segment_bytes": SEGMENT_BYTES,
        "commitlog.flush_disk_type": "SYNC_FLUSH" if options.sync else "ASYNC_FLUSH",
        "commitlog.followers": ",".join(rooms[1:]),
    }
    floors: list[dict[str, Any]] = []
    sent: list[dict[str, Any]] = []
    with Broker(directory, rooms, settings) as broker, broker.client() as client:
        put_topics(client, TOPICS)
        page_rate = first_touch_bytes_per_s(directory)
        for _ in range(options.rounds):
            floors.append(_floor(directory, options))
            sent.append(_client(broker, options, sent[-1] if sent else None))
            check_stored(client, sent[-1], Load(options.body), followers=options.followers)
            delete_old_segments(broker, client)
        floors.append(_floor(directory, options))
        memory = sum(pss_mb(pid) for pid in broker.pids.values())
        frame_bytes = client.log_state().appended_offset / sent[-1]["next_number"]
    touch_us = frame_bytes / page_rate * 1e6
    return _case(options, floors, sent, rooms, memory, touch_us)


def put_topics(client: Client, topics: int) -> None:
    per_topic = QUEUE_COUNT // topics
    for name in topic_names(topics):
        client.put_topic(Topic(name, per_topic, per_topic))


def _floor(directory: Path, options: AppendOptions) -> dict[str, Any]:
    arguments = ["--batch", options.batch or 256, "--body", options.body, "--dir", directory]
    arguments += ["--seconds", max(1.0, options.seconds / 2)]
    # Like is held against like: the log is measured as shipped, with the record checksum.
    return child.run("floor_stream", *arguments, "--record-crc", *["--sync"] * options.sync)


def _client(
    broker: Broker, options: AppendOptions, before: dict[str, Any] | None
) -> dict[str, Any]:
    arguments = ["--root", broker.root, "--seconds", options.seconds, "--warm-up", WARM_UP_S]
    arguments += ["--batch", options.batch, "--body", options.body]
    if before is not None:
        arguments += ["--first-number", before["next_number"]]
        arguments += ["--next-offsets", *before["next_offsets"]]
    return child.run("append_client", *arguments)


def check_stored(client: Client, sent: dict[str, Any], load: Load, *, followers: bool) -> None:
    """Hold a round against what the services say they have. Mismatch."""
    if sent["messages"] <= 0:
        raise Mismatch("nothing was stored")
    if sum(sent["next_offsets"]) != sent["next_number"]:
        raise Mismatch(f"{sent['next_number']} messages were sent, offsets {sent['next_offsets']}")
    for physical_offset, number in sent["samples"]:
        message = client.message_at(physical_offset)
        load.check(message)
        if int(message.unique_key, 16) != number:
            raise Mismatch(f"{message!r} has number {message.unique_key}, not {number}")
    if followers:
        for (topic, queue_id), expected in zip(
            queue_places(TOPICS), sent["next_offsets"], strict=True
        ):
            stored = {queue.queue_id: queue.max_offset for queue in client.queues(topic)}
            if stored.get(queue_id) != expected:
                raise Mismatch(f"{topic}/{queue_id} holds {stored.get(queue_id)}, not {expected}")
            pulled = client.pull(topic, queue_id, expected - 1)
            load.check(next(iter(pulled.messages)))
        for physical_offset, _ in sent["samples"][:32]:
            message = client.message_at(physical_offset)
            found = client.query_unique_key(message.topic, message.unique_key)
            if [one.physical_offset for one in found.messages] != [physical_offset]:
                raise Mismatch(f"the index finds {found.messages} for {message.unique_key}")


def delete_old_segments(broker: Broker, client: Client) -> None:
    endpoint = discovery.read(broker.root, "commitlog")
    assert endpoint is not None
    offset = client.log_state().appended_offset - KEPT_SEGMENTS * SEGMENT_BYTES
    if offset > 0:
        with grpc.insecure_channel(endpoint.address) as channel:
            commitlog_pb2_grpc.CommitLogServiceStub(channel).DeleteBelow(
                commitlog_pb2.DeleteBelowRequest(offset=offset, max_segments=1 << 16)
            )


def _case(
    options: AppendOptions,
    floors: list[dict[str, Any]],
    sent: list[dict[str, Any]],
    rooms: list[str],
    memory_mb: float,
    touch_us: float,
) -> Case:
    rates = [one["messages"] / one["seconds"] for one in sent]
    floor_rates = [floor["messages_per_s"] for floor in floors]
    beside = [fmean(pair) for pair in pairwise(floor_rates)]
    rate = median(rates)
    messages = sum(one["messages"] for one in sent)
    flush = "sync" if options.sync else "async"
    who = "with dispatcher and index" if options.followers else "log alone"
    batch = f"{options.batch} per batch" if options.batch else "default batch"
    return Case(
        case=f"append, {who}, {flush} flush, {batch}, {options.body} B",
        messages_per_s=rate,
        bytes_per_s=rate * options.body,
        floor=Floor(
            name="floor_stream --record-crc" + " --sync" * options.sync,
            messages_per_s=median(floor_rates),
            cpu_us_per_message={
                name: median(floor["cpu_us_per_message"][name] for floor in floors)
                for name in ("client", "log")
            },
        ),
        ratio=median(one / floor for one, floor in zip(rates, beside, strict=True)),
        cpu_us_per_message={
            name: median(one["cpu_s"][name] / one["messages"] * 1e6 for one in sent)
            for name in ("client", *rooms)
        },
        bar=BARS[tuple(rooms)] if options.sync and options.batch == 256 else None,
        pss_mb=memory_mb,
        messages=messages,
        note=f"new pages cost the log up to {touch_us:.1f} µs per message here; a floor needs none",
    )
