"""One client's fast stream into a broker, round after round: what the append cases share."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any

import grpc

from stratamq.api.v1 import commitlog_pb2, commitlog_pb2_grpc
from stratamq.client import Client, Topic
from stratamq.rpc import discovery
from stratamq_bench import child
from stratamq_bench.append_client import SenderState
from stratamq_bench.broker import FOLLOWERS, Broker
from stratamq_bench.load import Load, Places
from stratamq_bench.plan import MIB, Plan
from stratamq_bench.report import Floor
from stratamq_bench.stored import check_stored
from stratamq_bench.usage import cpu_seconds, pss_mb
from stratamq_bench.watch import LagWatch, dispatch_ends

KEPT_SEGMENTS = 2


@dataclass(frozen=True, slots=True)
class Stream:
    """What is sent, and to which broker. Settings are those shipped, except for these."""

    sync: bool = True
    batch: int = 256
    """Messages; 0: the client's default, 256 KiB."""
    followers: bool = False
    consumer: bool = False
    """One that reads all of it."""
    body: int | None = None
    """Bytes; None: the plan's."""
    places: Places = field(default_factory=Places)
    segment_bytes: int = 256 * MIB
    role: str | None = None
    """A master's; None: there is no replication."""

    @property
    def rooms(self) -> tuple[str, ...]:
        followers = FOLLOWERS if self.followers else ()
        return ("commitlog", *["ha"] * (self.role is not None), *followers)

    def settings(self, segment_bytes: int) -> dict[str, object]:
        """Those shipped, but for these."""
        return {
            "commitlog.segment_bytes": segment_bytes,
            "commitlog.flush_disk_type": "SYNC_FLUSH" if self.sync else "ASYNC_FLUSH",
            "commitlog.followers": ",".join(FOLLOWERS if self.followers else ()),
            "commitlog.role": self.role or "ASYNC_MASTER",
            "ha.replication_address": "127.0.0.1:0",
        }


@dataclass(frozen=True, slots=True)
class Round:
    messages: int
    seconds: float
    cpu_us: Mapping[str, float]
    """Per message, of each process."""
    bytes: int
    """Of the log."""
    worst_age_ms: float
    descriptors: int

    @property
    def rate(self) -> float:
        return self.messages / self.seconds


class StreamedBroker:
    """A broker that a stream goes into, to be left by `with`. `round` may be called again."""

    def __init__(self, directory: Path, plan: Plan, stream: Stream) -> None:
        self.stream = stream
        self.body = stream.body or plan.body
        self._plan = plan
        self._directory = directory
        self.state_file = directory / "sender.json"
        self.segment_bytes = plan.segment_bytes(stream.segment_bytes)
        settings = stream.settings(self.segment_bytes)
        directory.mkdir(parents=True, exist_ok=True)
        self.broker = Broker(directory, stream.rooms, settings)
        self._client = self.broker.client()
        put_topics(self._client, stream.places)
        self.watched: Callable[[], tuple[int, int]] | None = None
        """How far the log is, and who follows it: `Round.worst_age_ms` is about that one."""
        if stream.followers:
            self.watched = lambda: dispatch_ends(self._client)

    @property
    def state(self) -> SenderState:
        return SenderState(**json.loads(self.state_file.read_text()))

    def memory_mb(self) -> float:
        return sum(pss_mb(pid) for pid in self.broker.pids.values())

    def fill(self, messages: int) -> int:
        """Send about so many, measure nothing; how many they were. Mismatch, StrataError."""
        sent = child.run("append_client", *self._where(), *self._how(0.0), "--count", messages)
        with self.broker.client() as client:
            followers, load = self.stream.followers, Load(self.body)
            check_stored(client, self.state, load, self.stream.places, followers=followers)
        return sent["messages"]

    def round(self, rate: float = 0.0) -> Round:
        """Send for a round, check what was stored, delete old segments. Mismatch, StrataError.

        With a rate: so many messages a second, else as many as can be.
        """
        self._plan.make_ready()
        before = self._client.log_state().appended_offset
        client, stream = self._client, self.stream
        age_ms, most = 0.0, 0
        if self.watched is None:
            sent = self._send(rate)
        else:
            with LagWatch(self.watched, self.broker.pids.get("dispatcher")) as watch:
                sent = self._send(rate)
            age_ms, most = watch.worst_s * 1e3, watch.most_descriptors
        check_stored(client, self.state, Load(self.body), stream.places, followers=stream.followers)
        end = client.log_state().appended_offset
        delete_below(self.broker.root, end - KEPT_SEGMENTS * self.segment_bytes)
        messages = sent["messages"]
        cpu_us = {name: used / messages * 1e6 for name, used in sent["cpu_s"].items()}
        seconds = sent["ended"] - sent["began"]
        return Round(messages, seconds, cpu_us, end - before, age_ms, most)

    def _send(self, rate: float) -> dict[str, Any]:
        where, how = self._where(), self._how(rate)
        if not self.stream.consumer:
            return child.run("append_client", *where, *how)
        with child.Child("consumer_client", *where) as consumer:
            consumer.line()
            with child.Child("append_client", *where, *how, "--meter", consumer.pid) as sender:
                sent = sender.finish()
            read = consumer.finish(json.dumps(self.state.next_offsets) + "\n")
        # What counts is when everything has been read.
        sent["ended"] = max(sent["ended"], read["ended"])
        before = sent["cpu_before_s"]
        sent["cpu_s"] = {
            "client": sent["cpu_s"]["client"],
            "consumer": read["cpu_s"] - before["consumer"],
            **{room: cpu_seconds(pid) - before[room] for room, pid in self.broker.pids.items()},
        }
        return sent

    def _where(self) -> list[object]:
        places = self.stream.places
        queues = ["--topics", places.topics, "--queues", places.queues]
        return ["--root", self.broker.root, "--body", self.body, *queues]

    def _how(self, rate: float) -> list[object]:
        stream, plan = self.stream, self._plan
        how = ["--state", self.state_file, "--run", stream.places.run_messages]
        how += ["--rate", rate, "--batch", stream.batch]
        return [*how, "--seconds", plan.round_s, "--warm-up", plan.warm_up_s]

    def __enter__(self) -> "StreamedBroker":
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._client.close()
        self.broker.stop()


def put_topics(client: Client, places: Places) -> None:
    for name in places.topic_names:
        client.admin.put_topic(Topic(name, places.queues, places.queues))


def delete_below(root: Path, offset: int) -> None:
    """Delete like the janitor on a broker that keeps its disk bounded."""
    endpoint = discovery.read(root, "commitlog")
    assert endpoint is not None
    if offset > 0:
        with grpc.insecure_channel(endpoint.address) as channel:
            commitlog_pb2_grpc.CommitLogServiceStub(channel).DeleteBelow(
                commitlog_pb2.DeleteBelowRequest(offset=offset, max_segments=1 << 16)
            )


def stream_floor(
    directory: Path, plan: Plan, *, sync: bool, batch: int = 256, body: int | None = None
) -> dict[str, Any]:
    """`floor_stream`, with the record checksum: like is held against like."""
    arguments = ["--batch", batch, "--body", body or plan.body, "--dir", directory]
    arguments += ["--seconds", plan.floor_s, "--warm-up", plan.warm_up_s]
    return child.run("floor_stream", *arguments, "--record-crc", *["--sync"] * sync)


def floor_of(name: str, floors: list[dict[str, Any]]) -> Floor:
    """The medians of several runs of a floor."""
    processes = floors[0]["cpu_us_per_message"]
    return Floor(
        name,
        median(floor["messages_per_s"] for floor in floors),
        {
            process: median(floor["cpu_us_per_message"][process] for floor in floors)
            for process in processes
        },
    )


def cpu_of(rounds: list[Round]) -> dict[str, float]:
    return {name: median(one.cpu_us[name] for one in rounds) for name in rounds[0].cpu_us}
