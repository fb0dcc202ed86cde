"""Cases of a whole broker: queues and index are built behind the stream, read along, rebuilt."""

import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stratamq_bench import child
from stratamq_bench.broker import FOLLOWERS, Broker
from stratamq_bench.load import RUN_MESSAGES, Mismatch, Places
from stratamq_bench.plan import MIB, Plan, alternate
from stratamq_bench.report import Case, Measured, compared, measured
from stratamq_bench.streaming import (
    UNEVEN,
    UNEVEN_PLACES,
    Stream,
    StreamedBroker,
    floor_of,
    send,
    stream_floor,
)
from stratamq_bench.usage import CpuMeter, pss_mb

BROKER = Stream(followers=True)
SMALL_SEGMENT_BYTES = 64 * MIB

PULLED_MESSAGES = 500_000
PULLED_SEGMENT_BYTES = 128 * MIB
PIECE_BYTES = 256 << 10
"""The size of one response, on both sides."""
PULLED_PLACES = Places(topics=1, queues=16)

REBUILT_MESSAGES = 1_000_000
APPENDS_PER_S = 200
IN_FLIGHT = 4
LOOK_S = 0.02

DELIVERED_PER_S = 1000


def follow(
    place: Path,
    plan: Plan,
    *,
    consumer: bool = False,
    body: int | None = None,
    uneven: bool = False,
) -> Case:
    """The fast stream into a whole broker, perhaps with a consumer that reads along."""
    stream = replace(UNEVEN if uneven else BROKER, followers=True, consumer=consumer, body=body)
    if body is not None:
        stream = replace(stream, segment_bytes=SMALL_SEGMENT_BYTES)
    return _followed(place, plan, stream)


def many_queues(place: Path, plan: Plan, *, topics: int, queues: int, batch: int) -> Case:
    """Many topics, many queues: messages go round robin, and every queue gets a tail of its own.

    Sixteen messages to a queue, then the next topic's: a batch of 16 is of one topic.
    """
    places = Places(plan.scaled(topics, min(topics, 20)), plan.scaled(queues, 4), RUN_MESSAGES)
    return _followed(place, plan, replace(BROKER, batch=batch, places=places))


def _followed(place: Path, plan: Plan, stream: Stream) -> Case:
    """Beside `floors.stream` with the same bodies and flush, at 256 per batch."""
    with StreamedBroker(place, plan, stream) as broker:
        floors, rounds = alternate(
            plan.rounds,
            lambda: stream_floor(place, plan, sync=stream.sync, body=stream.body),
            broker.round,
        )
        memory_mb = broker.memory_mb()
    found = {
        "dispatch_age_ms": max(one.more["age_ms"] for one in rounds),
        "dispatcher_descriptors": max(one.more["descriptors"] for one in rounds),
        "segments_rolled": sum(one.more["segments"] for one in rounds),
    }
    name = "floor_stream --record-crc" + " --sync" * stream.sync
    return compared(name, floors, rounds, broker.body, pss_mb=memory_mb, measured=found)


def end_to_end(place: Path, plan: Plan) -> Case:
    """From the moment a message is due to be sent until a consumer has it, at 1 000 a second.

    One round: the rate is given, and latencies need all the seconds there are.
    """
    with StreamedBroker(place, plan, replace(BROKER, segment_bytes=8 * MIB)) as broker:
        where = {"root": broker.broker.root, "rate": DELIVERED_PER_S, "body": plan.body}
        how = {"seconds": plan.seconds, "warm_up": plan.warm_up_s}
        found = Measured(**child.run("stream_clients.end_to_end", **where, **how))
        memory_mb, rolled = broker.memory_mb(), broker.rolled()
    return found.as_case(plan.body, round(found.messages), memory_mb, segments_rolled=rolled)


def pull(place: Path, plan: Plan, *, uneven: bool = False) -> Case:
    """How fast one client reads interleaved queues, beside a bare stream of as many bytes: sixteen
    of one topic, or the four of each of 64 topics of uneven messages.

    The store is filled first, and is in the page cache; then floor and client take turns.
    """
    segment_bytes = plan.segment_bytes(PULLED_SEGMENT_BYTES)
    settings = {"commitlog.segment_bytes": segment_bytes, "commitlog.followers": "dispatcher"}
    places = UNEVEN_PLACES if uneven else PULLED_PLACES
    with Broker(place, ["commitlog", "dispatcher"], settings) as broker:
        with broker.client() as client:
            messages = plan.scaled(PULLED_MESSAGES, 2000)
            send(client, broker.root, place, places, messages, plan.body, uneven=uneven)
            stored = sum(queue.max_offset for queue in client.queues())
            log_bytes = client.log_state().appended_offset
        floor: dict[str, object] = {"frame_bytes": round(log_bytes / stored), "directory": place}
        what = {"root": broker.root, "topics": places.topic_names, "messages": stored}
        what |= {"body": plan.body, "uneven": uneven}

        def read() -> Measured:
            how = {"piece": PIECE_BYTES, "seconds": plan.round_s}
            return Measured(**child.run("stream_clients.pull", **what, **how))

        floors, reads = alternate(
            plan.rounds, lambda: floor_of(plan, "pull", piece=PIECE_BYTES, **floor), read
        )
        memory_mb = sum(pss_mb(pid) for pid in broker.pids.values())
    found = {"segments": log_bytes / segment_bytes}
    return compared("floor_pull", floors, reads, plan.body, pss_mb=memory_mb, measured=found)


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """What was applied between the first look at a follower and the last."""

    share: float
    """The share of the log that this follower reads."""
    seconds: float
    cpu_s: dict[str, float]


def watch_catching_up(
    pids: dict[str, int], applied: Any, end: int, started: float | None = None
) -> CaughtUp:
    """Wait until `applied()` reaches `end`; measure from the first look on.

    Its start, in which nothing is applied, is not part of it, unless everything was done by the
    first look: then from `started`, or from now.
    """
    first, began, meter = applied(), time.perf_counter(), CpuMeter(pids)
    if first >= end:
        first, began = 0, began if started is None else started
    while (there := applied()) < end:
        time.sleep(LOOK_S)
    return CaughtUp((there - first) / end, time.perf_counter() - began, meter.seconds())


def rebuild(place: Path, plan: Plan) -> Case:
    """Delete queues and index and rebuild them from the log, while single appends continue.

    The appends, 200 a second, are timed before and during the rebuild.
    """
    with StreamedBroker(place, plan, replace(BROKER, segment_bytes=128 * MIB)) as broker:
        stored = broker.fill(plan.scaled(REBUILT_MESSAGES, 20_000))
        floors = [stream_floor(place, plan, sync=True)]
        quiet = _appends(broker, plan, plan.round_s).finish()
        for room in FOLLOWERS:
            broker.broker.stop_room(room)
        for name in ("consumequeue", "index"):
            shutil.rmtree(broker.broker.root / name)
        with _appends(broker, plan, None) as appends:
            if appends.line() != "calling":
                raise Mismatch("the appender does not report that it appends")
            rebuilt = _rebuild(broker)
            busy = appends.finish("\n")
        floors.append(stream_floor(place, plan, sync=True))
        broker.check()
        memory_mb = broker.memory_mb()
    rounds = [measured(stored * rebuilt.share, rebuilt.seconds, rebuilt.cpu_s)]
    found = {
        "quiet_p99_ms": quiet["p99_ms"],
        "p99_times": busy["p99_ms"] / quiet["p99_ms"],
        "appends": busy["messages"],
    }
    waits = {name: busy[name] for name in ("p50_ms", "p99_ms", "p999_ms")}
    more = {**waits, "pss_mb": memory_mb, "measured": found, "messages": stored}
    return compared("floor_stream --record-crc --sync", floors, rounds, plan.body, **more)


def _appends(broker: StreamedBroker, plan: Plan, seconds: float | None) -> child.Child:
    where = {"root": broker.broker.root, "state": broker.state_file, "body": plan.body}
    how = {"in_flight": IN_FLIGHT, "rate": APPENDS_PER_S, "warm_up": plan.warm_up_s}
    return child.Child("single_clients.by_tasks", **where, **how, seconds=seconds)


def _rebuild(broker: StreamedBroker) -> CaughtUp:
    """From the first look at both followers until both have applied what was stored before."""
    end, started = broker.client.log_state().confirmed_offset, time.perf_counter()
    for room in FOLLOWERS:
        broker.broker.start(room)
    admin = broker.client.admin

    def applied() -> int:
        states: list[Any] = [admin.dispatch_state(), admin.index_state()]
        return min(state.applied_offset for state in states)

    return watch_catching_up(broker.broker.pids, applied, end, started)
