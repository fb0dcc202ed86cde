"""Cases of the log alone, and of single messages: the fast stream, calls, sends."""

from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from stratamq_bench import child
from stratamq_bench.load import Mismatch
from stratamq_bench.page_cache import first_touch_bytes_per_s
from stratamq_bench.plan import MIB, Plan, alternate
from stratamq_bench.report import Case, Floor, Measured, compared, cpu_of, median_of
from stratamq_bench.streaming import (
    UNEVEN,
    Stream,
    StreamedBroker,
    floor_of,
    stream_floor,
)

UNARY_SEGMENT_BYTES = {1: 4 * MIB, 64: 16 * MIB}
MANY, PULLS = 64, 200
TOPIC = "found-at-once"
TASKS, THREADS = "single_clients.by_tasks", "single_clients.by_threads"
Way = tuple[str, int, str]
"""How a message is stored, how many at a time, by which client process."""


def append(place: Path, plan: Plan, *, batch: int = 256, uneven: bool = False) -> Case:
    """The fast stream into the log alone, async flush, beside `floors.stream`, whose messages are
    even."""
    stream = replace(UNEVEN if uneven else Stream(), sync=False, batch=batch)
    with StreamedBroker(place, plan, stream) as broker:
        page_rate = first_touch_bytes_per_s(place)
        floors, rounds = alternate(
            plan.rounds, lambda: stream_floor(place, plan, sync=False), broker.round
        )
        memory_mb = broker.memory_mb()
    segments = sum(one.more["segments"] for one in rounds)
    bytes_a_message = segments * broker.segment_bytes / sum(one.messages for one in rounds)
    measured = {
        "segments_rolled": segments,
        "new_pages_us_per_message": bytes_a_message / page_rate * 1e6,
    }
    name = "floor_stream --record-crc"
    return compared(name, floors, rounds, plan.body, pss_mb=memory_mb, measured=measured)


def append_sync(place: Path, plan: Plan) -> Case:
    """Sync flush beside async flush: the same client, two brokers in turn."""
    with (
        StreamedBroker(place / "sync", plan, Stream()) as broker,
        StreamedBroker(place / "async", plan, Stream(sync=False)) as beside,
    ):
        floors, rounds = alternate(plan.rounds, beside.round, broker.round)
        memory_mb = broker.memory_mb()
    measured = {"segments_rolled": sum(one.more["segments"] for one in rounds)}
    name = "the same, async flush"
    return compared(name, floors, rounds, plan.body, pss_mb=memory_mb, measured=measured)


def unary(place: Path, plan: Plan, *, in_flight: int) -> Case:
    """Calls that carry one message each, sync flush, beside a bare unary echo.

    One at a time is compared with an echo that waits for the disk as well.
    """
    how: dict[str, Any] = {"in_flight": in_flight, "body": plan.body}
    waits = {"sync": True, "directory": place} if in_flight == 1 else {}
    stream = Stream(segment_bytes=UNARY_SEGMENT_BYTES[in_flight])
    with StreamedBroker(place, plan, stream) as broker:

        def call() -> Measured:
            found = _store(broker, plan, TASKS, way="call", **how)
            broker.check()
            return found

        floors, calls = alternate(
            plan.rounds, lambda: floor_of(plan, "unary", **how, **waits), call
        )
        memory_mb, rolled = broker.memory_mb(), broker.rolled()
    measured = {
        "floor_p50_ms": median_of(floors, "p50_ms"),
        "floor_p99_ms": median_of(floors, "p99_ms"),
        "segments_rolled": rolled,
    }
    name = "floor_unary" + " --sync" * bool(waits)
    return compared(name, floors, calls, plan.body, pss_mb=memory_mb, measured=measured)


def _store(broker: StreamedBroker, plan: Plan, client: str, **how: object) -> Measured:
    """Single messages for a round, by a client process."""
    where = {"root": broker.broker.root, "state": broker.state_file}
    seconds = {"warm_up": plan.warm_up_s, "seconds": plan.round_s}
    return Measured(**child.run(client, **where, **seconds, **how))


def single_sends(place: Path, plan: Plan) -> Case:
    """`client.send` of many tasks, many threads and one task, beside calls and a producer's
    deliveries, all in one run, with dispatcher and index; whether a pull that is begun after an
    answer finds it."""
    with StreamedBroker(place, plan, Stream(segment_bytes=16 * MIB, followers=True)) as broker:
        ways: list[Way] = [
            (way, MANY, client)
            for client in (TASKS, THREADS)
            for way in ("producer", "send", "call")
        ]
        ways += [("send", 1, TASKS), ("call", 1, TASKS)]
        rounds: list[dict[Way, Measured]] = [
            {
                (way, many, client): _store(
                    broker, plan, client, way=way, in_flight=many, body=plan.body
                )
                for way, many, client in ways
            }
            for _ in range(plan.rounds)
        ]
        broker.check(followers=False)
        found = _found_at_once(broker)
        memory_mb = broker.memory_mb()

    def of(way: str, many: int = MANY, client: str = TASKS) -> list[Measured]:
        return [one[way, many, client] for one in rounds]

    def rate(way: str, client: str = TASKS) -> float:
        return median_of(of(way, MANY, client), "messages_per_s")

    def median_ratio(name: str, above: list[Measured], below: list[Measured]) -> float:
        pairs = zip(above, below, strict=True)
        return median(getattr(one, name) / getattr(other, name) for one, other in pairs)

    def of_producer(client: str) -> float:
        sends, delivered = (of(way, MANY, client) for way in ("send", "producer"))
        return median_ratio("messages_per_s", sends, delivered)

    def services_us(way: str) -> float:
        one_by_one = (one.cpu_us_per_message for one in of(way, 1))
        return median(sum(cpu.values()) - cpu["client"] for cpu in one_by_one)

    sends = of("send")
    cpu_us = cpu_of(sends)
    return Case(
        messages_per_s=rate("send"),
        bytes_per_s=rate("send") * plan.body,
        floor=Floor("producer.send(...).result()", rate("producer")),
        ratio=of_producer(TASKS),
        cpu_us_per_message=cpu_us,
        p50_ms=median_of(sends, "p50_ms"),
        p99_ms=median_of(sends, "p99_ms"),
        p999_ms=median_of(sends, "p999_ms"),
        pss_mb=memory_mb,
        measured={
            "times_calls": rate("send") / rate("call"),
            "threads_per_s": rate("send", THREADS),
            "threads_ratio": of_producer(THREADS),
            "threads_times_calls": rate("send", THREADS) / rate("call", THREADS),
            "log_us": cpu_us["commitlog"],
            "one_p50_of_a_call": median_ratio("p50_ms", of("send", 1), of("call", 1)),
            "one_us": services_us("send"),
            "one_call_us": services_us("call"),
            "found_at_once": found,
        },
        messages=round(sum(one.messages for each in rounds for one in each.values())),
    )


def _found_at_once(broker: StreamedBroker) -> float:
    """The share of messages that a pull finds which is begun when they are answered."""
    found = 0
    for number in range(PULLS):
        stored = broker.client.send(TOPIC, b"%d" % number, queue_id=0)
        pulled = broker.client.pull(TOPIC, 0, stored.queue_offset).messages
        if pulled and pulled[0].body != b"%d" % number:
            raise Mismatch(f"offset {stored.queue_offset} holds {pulled[0].body!r}")
        found += bool(pulled)
    return found / PULLS
