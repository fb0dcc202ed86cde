"""One client's fast stream into a broker, round after round: what the append cases share."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from stratamq.client import Client
from stratamq_bench import child
from stratamq_bench.broker import FOLLOWERS, Broker, replica_of, until
from stratamq_bench.load import Load, Mismatch, Places, SenderState, check_stored, put_topics
from stratamq_bench.plan import MIB, Plan
from stratamq_bench.report import Measured, measured
from stratamq_bench.usage import LagWatch, cpu_seconds, pss_mb

KEPT_SEGMENTS = 2
LOOK_S = 0.01
CATCH_UP_S = 120.0
PIECE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Stream:
    """What is sent, and to which broker. Settings are those shipped, except for these."""

    sync: bool = True
    batch: int = 256
    """Messages; 0: the client's default, 1 MiB."""
    followers: bool = False
    consumer: bool = False
    """One that reads all of it."""
    body: int | None = None
    """Bytes; None: the plan's."""
    places: Places = field(default_factory=Places)
    uneven: bool = False
    """Messages are (`load`), and their bodies have these bytes in the mean."""
    segment_bytes: int = 256 * MIB
    role: str | None = None
    """A master's; None: there is no replication."""
    delivery: bool = False
    """Whether the delivery runs, with nothing to do."""

    @property
    def following(self) -> tuple[str, ...]:
        """The services that follow the log."""
        return (*FOLLOWERS * self.followers, *["delivery"] * self.delivery)

    @property
    def rooms(self) -> tuple[str, ...]:
        return ("commitlog", *["ha"] * (self.role is not None), *self.following)

    def settings(self, segment_bytes: int) -> dict[str, object]:
        """Those shipped, but for these."""
        return {
            "commitlog.segment_bytes": segment_bytes,
            "commitlog.flush_disk_type": "SYNC_FLUSH" if self.sync else "ASYNC_FLUSH",
            "commitlog.followers": ",".join(self.following),
            "commitlog.role": self.role or "ASYNC_MASTER",
            "ha.replication_address": "127.0.0.1:0",
        }


class StreamedBroker:
    """A broker that a stream goes into, to be left by `with`. `round` may be called again."""

    def __init__(self, directory: Path, plan: Plan, stream: Stream) -> None:
        self.stream = stream
        self.body = stream.body or plan.body
        self._plan = plan
        self.state_file = directory / "sender.json"
        self.segment_bytes = plan.segment_bytes(stream.segment_bytes)
        directory.mkdir(parents=True, exist_ok=True)
        self.broker = Broker(directory, stream.rooms, stream.settings(self.segment_bytes))
        self.client = self.broker.client()
        put_topics(self.client, stream.places)
        self.watched: Callable[[], tuple[int, int]] | None = None
        """How far the log is, and who follows it: `age_ms` of a round is about that one."""
        if stream.followers:
            self.watched = self._dispatch_ends

    def memory_mb(self) -> float:
        return sum(pss_mb(pid) for pid in self.broker.pids.values())

    def rolled(self) -> float:
        """How many segments the log has filled since it was made."""
        return self.client.log_state().appended_offset / self.segment_bytes

    def check(self, *, followers: bool | None = None) -> None:
        """Compare what is stored with what the last client sent. Mismatch."""
        state = SenderState.load(self.state_file, self.stream.places)
        if followers is None:
            followers = self.stream.followers
        places = self.stream.places
        load = Load(self.body, uneven=self.stream.uneven)
        check_stored(self.client, state, load, places, followers=followers)

    def fill(self, messages: int) -> int:
        """Send about so many, measure nothing; how many they were. Mismatch, StrataError."""
        sent = child.run("stream_clients.send", **self._sending(0.0), count=messages)
        self.check()
        return sent["messages"]

    def round(self, rate: float = 0.0) -> Measured:
        """Send for a round, check what was stored, delete old segments. Mismatch, StrataError.

        With a rate: so many messages a second, else as many as can be.
        """
        self._plan.make_ready()
        before = self.client.log_state().appended_offset
        more = {"age_ms": 0.0, "descriptors": 0.0}
        if self.watched is None:
            sent = self._send(rate)
        else:
            with LagWatch(self.watched, self.broker.pids.get("dispatcher")) as watch:
                sent = self._send(rate)
            more = {"age_ms": watch.worst_s * 1e3, "descriptors": watch.most_descriptors}
        self.check()
        end = self.client.log_state().appended_offset
        # Like the janitor on a broker that keeps its disk bounded.
        if (below := end - KEPT_SEGMENTS * self.segment_bytes) > 0:
            self.client.admin.delete_below(below, max_segments=1 << 16)
        found = measured(sent["messages"], sent["ended"] - sent["began"], sent["cpu_s"])
        return replace(found, more={"segments": (end - before) / self.segment_bytes, **more})

    def _dispatch_ends(self) -> tuple[int, int]:
        """The ends of the log and of its dispatcher."""
        state = self.client.admin.dispatch_state()
        return self.client.log_state().confirmed_offset, state.applied_offset

    def _send(self, rate: float) -> dict[str, Any]:
        if not self.stream.consumer:
            return child.run("stream_clients.send", **self._sending(rate))
        how = {"root": self.broker.root, "places": asdict(self.stream.places)}
        how |= {"body": self.body, "uneven": self.stream.uneven}
        with child.Child("stream_clients.consume", **how) as consumer:
            consumer.line()
            sent = child.run("stream_clients.send", **self._sending(rate), meter=consumer.pid)
            ends = SenderState.load(self.state_file, self.stream.places).next_offsets
            read = consumer.finish(json.dumps(ends) + "\n")
        # What counts is when everything has been read.
        sent["ended"] = max(sent["ended"], read["ended"])
        before = sent["cpu_before_s"]
        sent["cpu_s"] = {
            "client": sent["cpu_s"]["client"],
            "consumer": read["cpu_s"] - before["consumer"],
            **{room: cpu_seconds(pid) - before[room] for room, pid in self.broker.pids.items()},
        }
        return sent

    def _sending(self, rate: float) -> dict[str, object]:
        return {
            "root": self.broker.root,
            "state": self.state_file,
            "places": asdict(self.stream.places),
            "body": self.body,
            "uneven": self.stream.uneven,
            "rate": rate,
            "batch": self.stream.batch,
            "seconds": self._plan.round_s,
            "warm_up": self._plan.warm_up_s,
        }

    def __enter__(self) -> "StreamedBroker":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.broker.stop()


class Slave:
    """Follows `master`, a broker whose stream has a role. To be left by `with`."""

    def __init__(self, directory: Path, master: StreamedBroker) -> None:
        self._master = master
        settings = master.stream.settings(master.segment_bytes)
        self.broker = replica_of(master.broker, directory, settings)
        self.client = self.broker.client()

    @property
    def end(self) -> int:
        return self.client.log_state().appended_offset

    def catch_up(self) -> None:
        """Until it is as far as its master is now. StrataError when that takes too long."""
        end = self._master.client.log_state().appended_offset
        until(lambda: self.end >= end, f"the slave is not at {end}", CATCH_UP_S, LOOK_S)

    def check_bytes(self) -> None:
        """Every segment that both have is the same up to the slave's end. Mismatch."""
        # A file below it may still be there, and go at any time.
        first = self._master.client.log_state().minimum_offset
        end, size = self.end, self._master.segment_bytes
        roots = self.broker.root, self._master.broker.root
        here, there = ({path.name for path in (root / "commitlog").iterdir()} for root in roots)
        # And none that is made ahead.
        both = sorted(name for name in here & there if first <= int(name) < end)
        for name in both:
            length = min(size, end - int(name))
            if _digest(roots[0], name, length) != _digest(roots[1], name, length):
                raise Mismatch(f"segment {name} of the slave is not its master's")
        if not both:
            raise Mismatch("master and slave have no segment in common")

    def __enter__(self) -> "Slave":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.broker.stop()


def _digest(root: Path, name: str, length: int) -> bytes:
    digest, left = hashlib.blake2b(), length
    with open(root / "commitlog" / name, "rb") as file:
        while left and (piece := file.read(min(left, PIECE_BYTES))):
            digest.update(piece)
            left -= len(piece)
    return digest.digest()


def floor_of(plan: Plan, kind: str, **how: object) -> Measured:
    """One round of `floors.kind`."""
    found = child.run(f"floors.{kind}", seconds=plan.floor_s, warm_up=plan.warm_up_s, **how)
    return Measured(**found)


def stream_floor(directory: Path, plan: Plan, *, sync: bool, body: int | None = None) -> Measured:
    """`floors.stream`, with the record checksum: to compare like with like."""
    how = {"body": body or plan.body, "sync": sync, "record_crc": True}
    return floor_of(plan, "stream", directory=directory, **how)


UNEVEN_PLACES = Places(topics=64, queues=4, run_messages=2)
UNEVEN = Stream(places=UNEVEN_PLACES, uneven=True)


@dataclass(frozen=True, slots=True)
class FilledStore:
    """A store filled with the benchmarks' messages, its services stopped again."""

    root: Path
    messages: int
    log_bytes: int
    """Up to the last message."""


def fill(
    directory: Path,
    messages: int,
    body_bytes: int,
    segment_bytes: int,
    *,
    uneven: bool = False,
) -> FilledStore:
    """About so many messages, sent by a client to a log service. StrataError."""
    places = UNEVEN_PLACES if uneven else Places()
    settings = {"commitlog.segment_bytes": segment_bytes, "commitlog.followers": ""}
    with Broker(directory, ["commitlog"], settings) as broker, broker.client() as client:
        filled = send(client, broker.root, directory, places, messages, body_bytes, uneven=uneven)
        return FilledStore(broker.root, filled, client.log_state().confirmed_offset)


def send(
    client: Client,
    root: Path,
    directory: Path,
    places: Places,
    messages: int,
    body_bytes: int,
    *,
    uneven: bool = False,
) -> int:
    """About so many messages into topics that are made for them; how many they were."""
    put_topics(client, places)
    how = {"root": root, "state": directory / "sender.json", "places": asdict(places)}
    how |= {"count": messages, "body": body_bytes, "uneven": uneven}
    return child.run("stream_clients.send", **how)["messages"]
