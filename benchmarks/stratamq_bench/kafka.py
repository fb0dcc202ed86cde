"""Kafka and RocketMQ beside a broker: durable bulk sends, and one consumer, by turns.

Each under its own client: Kafka's and RocketMQ's in Java, ours in Python. Every one acknowledges a
message when it has been flushed. The floor of each case is Kafka.
"""

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from stratamq_bench import child
from stratamq_bench.load import Places
from stratamq_bench.plan import MIB, Plan, alternate
from stratamq_bench.ports import free_port
from stratamq_bench.remoting import (
    REAL,
    JavaProgram,
    Options,
    Side,
    real_broker,
    require_java,
    started_load,
)
from stratamq_bench.report import Bar, Case, Measured, at_least, compared, cpu_of, median_of
from stratamq_bench.streaming import Stream, StreamedBroker

__all__ = ["WORKS", "Options", "measure"]

PROJECT = Path(__file__).parents[1] / "kafka"
KAFKA = "Kafka 4.3.1"
PLACES = Places(topics=1, queues=16)
STORED = 500_000
WARM_UP_S = 5.0
PRODUCERS = {"producers": 4}
"""There are as many as RocketMQ's client has threads: one alone waits for flush after flush."""
TUNED = {**PRODUCERS, "linger.ms": 20, "max.request.size": 16 * MIB}
READING = {"group.protocol": "consumer", "group.id": "bench", "receive.buffer.bytes": -1}
"""Kafka 4's consumer with a thread for its network: half as fast again as the default one."""


@dataclass(frozen=True, slots=True)
class Work:
    title: str
    bars: tuple[Bar, ...]
    batch: int = 0
    """Messages; 0: the client's default."""
    places: Places = PLACES
    sending: Mapping[str, object] = field(default_factory=lambda: PRODUCERS)
    """Settings of Kafka's producers, and how many there are."""


_BULK = (*at_least(2.0), Bar("rocketmq_ratio", "at least", 3.0))
WORKS = {
    "defaults": Work("durable, queues and index built, each client's own batches", _BULK),
    "bulk": Work(
        "the same, 256 KiB a batch", _BULK, 256, sending={**TUNED, "batch.size": MIB // 4}
    ),
    "large": Work(
        "the same, 1 MiB a batch, 64 messages to a queue in turn",
        _BULK,
        1024,
        replace(PLACES, run_messages=64),
        {**TUNED, "batch.size": MIB},
    ),
    "consumer": Work("one streaming consumer of 16 queues", at_least(1.0)),
}


def measure(directory: Path, options: Options) -> list[Case]:
    """Everything that is written is below `directory`. StrataError, Mismatch."""
    require_java(PROJECT)
    plan = Plan(options.seconds * options.rounds, options.rounds, options.body)
    with ExitStack() as stack:
        kafka = _Kafka(directory, options, stack)
        rocketmq = _RocketMq(directory, options, stack)
        cases = []
        for name in options.cases:
            work = WORKS[name]
            sides = (kafka, rocketmq, directory / name, plan)
            made = _consumer(*sides) if name == "consumer" else _bulk(*sides, work)
            cases.append(replace(made, case=f"kafka-{name}", title=work.title, bars=work.bars))
            print(cases[-1].case, made.ratio, dict(made.measured), file=sys.stderr, flush=True)
        return cases


class _Kafka:
    """A broker of one node and its client. Each round has a topic of its own."""

    def __init__(self, directory: Path, options: Options, stack: ExitStack) -> None:
        self._options = options
        self._load = started_load(directory, stack, "strata.load.KafkaLoad", PROJECT)
        where = directory / "kafka"
        where.mkdir()
        port = free_port()
        program = JavaProgram(
            directory, "strata.load.KafkaBroker", where, port, free_port(), project=PROJECT
        )
        stack.enter_context(program).line()
        self._side = Side(f"127.0.0.1:{port}", "", {"broker": program.pid})
        self._numbers = count()

    def make(self) -> str:
        topic = f"bench-{next(self._numbers)}"
        self._tell("make", topic)
        return topic

    def remove(self, topic: str) -> None:
        self._tell("remove", topic)

    def _tell(self, command: str, topic: str) -> None:
        address, partitions = self._side.address, PLACES.queues
        self._load.ask(command, address=address, topic=topic, partitions=partitions)

    def send(self, topic: str, seconds: float, work: Work, **words: object) -> Measured:
        how = {"run": work.places.run_messages, **work.sending, **words}
        return self._ask("send", topic, seconds, how)

    def read(self, topic: str, seconds: float) -> Measured:
        return self._ask("read", topic, seconds, READING)

    def _ask(
        self, command: str, topic: str, seconds: float, words: Mapping[str, object]
    ) -> Measured:
        given = {"topic": topic, "partitions": PLACES.queues, **words}
        return self._side.ask(self._load, command, round(seconds * 1e3), self._options, **given)


class _RocketMq:
    def __init__(self, directory: Path, options: Options, stack: ExitStack) -> None:
        self._options = options
        self._load = started_load(directory, stack)
        self._side = real_broker(directory, stack)

    def send(self, seconds: float) -> Measured:
        how = {"threads": 4, "batch": 128}
        return self._side.ask(self._load, "batches", round(seconds * 1e3), self._options, **how)


def _bulk(kafka: _Kafka, rocketmq: _RocketMq, place: Path, plan: Plan, work: Work) -> Case:
    def others(seconds: float = plan.round_s) -> tuple[Measured, Measured]:
        topic = kafka.make()
        of_kafka = kafka.send(topic, seconds, work)
        kafka.remove(topic)
        return of_kafka, rocketmq.send(seconds)

    stream = Stream(followers=True, batch=work.batch, places=work.places)
    with StreamedBroker(place, plan, stream) as broker:
        others(min(plan.round_s, WARM_UP_S))  # code compiled, and the first files made
        floors, rounds = alternate(plan.rounds, others, broker.round)
    of_kafka, of_rocketmq = ([pair[side] for pair in floors] for side in (0, 1))
    beside = compared(REAL, of_rocketmq, rounds, plan.body)
    found = {
        "rocketmq_ratio": beside.ratio,
        "rocketmq_per_s": median_of(of_rocketmq, "messages_per_s"),
    }
    found |= {f"rocketmq_{name}_us": used for name, used in cpu_of(of_rocketmq).items()}
    found["dispatch_age_ms"] = max(one.more["age_ms"] for one in rounds)
    return compared(KAFKA, of_kafka, rounds, plan.body, measured=found)


def _consumer(kafka: _Kafka, _: _RocketMq, place: Path, plan: Plan) -> Case:
    """Both stores are filled first, and are in the page cache."""
    messages = plan.scaled(STORED, 20_000)
    topic = kafka.make()
    kafka.send(topic, 600.0, WORKS["bulk"], messages=messages)
    stream = Stream(followers=True, places=PLACES)
    with StreamedBroker(place, plan, stream) as broker:
        stored = broker.fill(messages)
        what = {"root": broker.broker.root, "topic": PLACES.topic_names[0], "messages": stored}
        what |= {"body": plan.body, "seconds": plan.round_s}

        def read() -> Measured:
            return Measured(**child.run("kafka_clients.read", **what))

        kafka.read(topic, min(plan.round_s, WARM_UP_S))
        floors, rounds = alternate(plan.rounds, lambda: kafka.read(topic, plan.round_s), read)
    kafka.remove(topic)
    return compared(KAFKA, floors, rounds, plan.body)
