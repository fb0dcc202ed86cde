"""Cases of the delivery: shared groups, transactions, delayed messages, and what it costs idle."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median

from stratamq.client import Client, Topic
from stratamq.formats.delay import DEFAULT_DELAY_LEVELS_TEXT, parse_delay_levels
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.topics import OWN_PREFIX
from stratamq.rpc.rooms import COMMITLOG, DELIVERY, DISPATCHER
from stratamq_bench import child
from stratamq_bench.broker import Broker, until
from stratamq_bench.following import PIECE_BYTES, PULLED_PLACES, watch_catching_up
from stratamq_bench.load import Mismatch, Places, put_topics
from stratamq_bench.plan import FULL_SECONDS, MIB, Plan, alternate
from stratamq_bench.report import Case, Measured, compared, cpu_of, measured, median_of
from stratamq_bench.streaming import Stream, StreamedBroker, send
from stratamq_bench.usage import CpuMeter, pss_mb

ROOMS = (COMMITLOG, DISPATCHER, DELIVERY)
SEGMENT_BYTES = 1024 * MIB
"""No segment rolls: the whole state, which is written once in each, is not counted."""
SHARED_MESSAGES = 300_000
TOPIC = "bench-delivered"
IN_FLIGHT = 64

DELAYED_MESSAGES = 50_000
DELAY_S = 1.0
"""Level 1's."""
TIMED_MESSAGES = 10_000
BRIEF_LEVELS = "1s 1s 2s 2s"
"""Levels 1 to 4 of a brief case."""
LOAD_PER_S = 20_000
CATCH_UP_S = 300.0
LOOK_S = 0.01


@contextmanager
def _broker(
    place: Path, settings: Mapping[str, object] | None = None
) -> Iterator[tuple[Broker, Client]]:
    common = {
        "commitlog.segment_bytes": SEGMENT_BYTES,
        "commitlog.followers": f"{DISPATCHER},{DELIVERY}",
    }
    with Broker(place, ROOMS, {**common, **(settings or {})}) as broker, broker.client() as client:
        until(lambda: client.admin.delivery_state().serving, "no delivery", CATCH_UP_S)
        yield broker, client


def share(place: Path, plan: Plan, *, batch: int, workers: int) -> Case:
    """Receive and acknowledge, beside `pull-stream`'s reading of the same topic; then the bare
    fold of the same log, which a start without the saved state does."""
    (topic,) = PULLED_PLACES.topic_names
    with _broker(place) as (broker, client):
        messages = plan.scaled(SHARED_MESSAGES, 4000)
        send(client, broker.root, place, PULLED_PLACES, messages, plan.body)
        stored = sum(queue.max_offset for queue in client.queues(topic))
        what = {"root": broker.root, "body": plan.body}
        bytes_each: list[float] = []

        def pull() -> Measured:
            how = {"topics": [topic], "messages": stored, "piece": PIECE_BYTES}
            how |= {"seconds": plan.floor_s}
            return Measured(**child.run("stream_clients.pull", **what, **how))

        def work() -> Measured:
            before = _bookkeeping(client)
            group = {"topic": topic, "group": f"bench-{len(bytes_each)}", "messages": stored}
            how = {**group, "batch": batch, "workers": workers}
            found = child.run("delivery_clients.work", **what, **how, seconds=plan.round_s)
            if found["messages"] == 0:
                raise Mismatch("the workers have received nothing")
            bytes_each.append((_bookkeeping(client) - before) / found["messages"])
            return Measured(**found)

        pulls, rounds = alternate(plan.rounds, pull, work)
        memory_mb = sum(pss_mb(pid) for pid in broker.pids.values())
        state_bytes = _state_bytes(broker, client)
        fold = _fold(broker, client)
    return compared(
        "pull-stream",
        pulls,
        rounds,
        plan.body,
        pss_mb=memory_mb,
        measured={
            "bytes_per_message": median(bytes_each),
            "state_bytes": state_bytes,
            "fold_messages_per_s": fold,
        },
    )


def _bookkeeping(client: Client) -> int:
    """Bytes of the log, and of the queue units of the delivery's own topics."""
    units = sum(one.max_offset for one in client.queues() if one.topic.startswith(OWN_PREFIX))
    return client.log_state().appended_offset + units * QUEUE_UNIT_BYTES


def _state_bytes(broker: Broker, client: Client) -> int:
    """The saved state, when everything that was handed out is acknowledged."""
    end = client.log_state().confirmed_offset
    until(
        lambda: client.admin.delivery_state().durable_offset >= end,
        "the state is not saved",
        CATCH_UP_S,
    )
    return (broker.root / "stratamq" / "delivery.json").stat().st_size


def _fold(broker: Broker, client: Client) -> float:
    """Messages a second of the log that a fold from its beginning reads."""
    records = sum(one.max_offset for one in client.queues())
    end = client.log_state().confirmed_offset
    broker.stop_room(DELIVERY)
    (broker.root / "stratamq" / "delivery.json").unlink()
    started = time.perf_counter()
    broker.start(DELIVERY)
    pids = {DELIVERY: broker.pids[DELIVERY]}

    def applied() -> int:
        return client.admin.delivery_state().applied_offset

    found = watch_catching_up(pids, applied, end, started)
    return records * found.share / found.seconds


def transact(place: Path, plan: Plan) -> Case:
    """Transactions of one message, beside plain appends of as many bytes."""
    with _broker(place) as (broker, client):
        client.admin.put_topic(Topic(TOPIC, 4, 4))
        how = {"root": broker.root, "topic": TOPIC, "body": plan.body, "in_flight": IN_FLIGHT}

        def run(what: str, seconds: float) -> Measured:
            found = child.run(f"delivery_clients.{what}", **how, seconds=seconds)
            return Measured(**found)

        stored = sum(queue.max_offset for queue in client.queues(TOPIC))
        floors, rounds = alternate(
            plan.rounds,
            lambda: run("appends", plan.floor_s),
            lambda: run("transactions", plan.round_s),
        )
        # Each process sends one message before those that it measures, and the clock.
        sent = sum(round(one.messages) + 1 for one in (*floors, *rounds))

        def shown() -> bool:
            return sum(queue.max_offset for queue in client.queues(TOPIC)) - stored >= sent

        until(shown, f"not all of {sent} messages are visible", CATCH_UP_S)
        if (there := sum(one.max_offset for one in client.queues(TOPIC)) - stored) != sent:
            raise Mismatch(f"{sent} messages were sent or committed, and {there} are visible")
        memory_mb = sum(pss_mb(pid) for pid in broker.pids.values())
    log = cpu_of(rounds)[COMMITLOG] / cpu_of(floors)[COMMITLOG]
    return compared(
        "plain appends", floors, rounds, plan.body, pss_mb=memory_mb, measured={"log_ratio": log}
    )


def deliver(place: Path, plan: Plan) -> Case:
    """Delayed messages that are all due: how fast they are delivered, beside how fast they were
    stored."""
    count = plan.scaled(DELAYED_MESSAGES, 2000)
    with _broker(place) as (broker, client):
        client.admin.put_topic(Topic(TOPIC, 4, 4))
        stored: list[Measured] = []
        rounds: list[Measured] = []
        for number in range(1, plan.rounds + 1):
            broker.stop_room(DELIVERY)
            how = {"root": broker.root, "topic": TOPIC, "body": plan.body, "count": count}
            stored.append(Measured(**child.run("delivery_clients.store_delayed", **how, level=1)))
            time.sleep(DELAY_S)
            broker.start(DELIVERY)
            rounds.append(_delivered(broker, client, count * number, count))
        memory_mb = sum(pss_mb(pid) for pid in broker.pids.values())
    stored.append(stored[-1])
    return compared("stored by calls of 256", stored, rounds, plan.body, pss_mb=memory_mb)


def _delivered(broker: Broker, client: Client, end: int, count: int) -> Measured:
    """From the first copy to the last one. Mismatch for more of them."""
    meter = None
    began, first = 0.0, 0
    deadline = time.monotonic() + CATCH_UP_S
    while True:
        there = sum(queue.max_offset for queue in client.queues(TOPIC))
        if meter is None and there > end - count:
            meter, began, first = CpuMeter(broker.pids), time.perf_counter(), there
        if there >= end:
            break
        if time.monotonic() > deadline:
            raise Mismatch(f"{there} of {end} delayed messages are delivered")
        time.sleep(LOOK_S)
    assert meter is not None
    return measured(max(1, end - first), time.perf_counter() - began, meter.seconds())


def delay_errors(place: Path, plan: Plan) -> Case:
    """Messages of levels 1 to 4, and for any time, while others are sent at a fixed rate: how late
    a consumer has them. None may be early, lost, or come twice."""
    text = DEFAULT_DELAY_LEVELS_TEXT if plan.seconds >= FULL_SECONDS else BRIEF_LEVELS
    levels_ms = {str(level): ms for level, ms in enumerate(parse_delay_levels(text)[:4], 1)}
    count = plan.scaled(TIMED_MESSAGES, 100)
    seconds = max(levels_ms.values()) / 1e3 + plan.seconds
    settings = {f"{room}.message_delay_level": text for room in (COMMITLOG, DELIVERY)}
    with _broker(place, settings) as (broker, client):
        client.admin.put_topic(Topic(TOPIC, 4, 4))
        put_topics(client, Places())
        where = {"root": broker.root, "body": plan.body}
        load = {"state": place / "sender.json", "places": asdict(Places()), "rate": LOAD_PER_S}
        how = {"topic": TOPIC, "count": count, "levels_ms": levels_ms, "seconds": plan.seconds}
        with child.Child("stream_clients.send", **where, **load, seconds=seconds) as sending:
            found = Measured(**child.run("delivery_clients.delay_errors", **where, **how))
            sent = sending.finish()
        memory_mb = sum(pss_mb(pid) for pid in broker.pids.values())
    load_per_s = sent["messages"] / (sent["ended"] - sent["began"])
    return found.as_case(plan.body, count, memory_mb, load_per_s=load_per_s)


def stand_by(place: Path, plan: Plan) -> Case:
    """What appends and pulls cost the log and the dispatcher of a broker whose delivery has
    nothing to do, beside one without a delivery, by turns."""
    without = Stream(followers=True, segment_bytes=256 * MIB)
    with ExitStack() as stack:
        sides = [
            stack.enter_context(StreamedBroker(place / name, plan, stream))
            for name, stream in (("without", without), ("with", replace(without, delivery=True)))
        ]
        floors, rounds = alternate(plan.rounds, sides[0].round, sides[1].round)
        pulls_without, pulls = alternate(
            plan.rounds, lambda: _pulled(sides[0], plan), lambda: _pulled(sides[1], plan)
        )
        memory_mb = sides[1].memory_mb()
    return compared(
        "without a delivery",
        floors,
        rounds,
        plan.body,
        pss_mb=memory_mb,
        measured={
            "append_cpu_ratio": _services_us(rounds) / _services_us(floors),
            "pull_cpu_ratio": _services_us(pulls) / _services_us(pulls_without),
            "pulls_per_s": median_of(pulls, "messages_per_s"),
            "delivery_us": cpu_of(rounds)[DELIVERY],
        },
    )


def _pulled(side: StreamedBroker, plan: Plan) -> Measured:
    """One client pulls from a topic that the rounds of appends have filled."""
    how = {"topic": Places().topic_names[0], "seconds": plan.round_s}
    return Measured(**child.run("delivery_clients.pull_newest", root=side.broker.root, **how))


def _services_us(rounds: list[Measured]) -> float:
    """Return the CPU of the services that producers and consumers wait for."""
    used = cpu_of(rounds)
    return used[COMMITLOG] + used[DISPATCHER]
