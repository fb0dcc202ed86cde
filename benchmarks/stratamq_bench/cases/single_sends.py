"""`client.send` of many tasks at a time, and of one, beside calls and a producer's deliveries, all
in one run, with dispatcher and index; and whether a pull that is begun after an answer finds it."""

from pathlib import Path
from statistics import median
from typing import Any

from stratamq_bench import child
from stratamq_bench.checks import Mismatch
from stratamq_bench.load import Load
from stratamq_bench.plan import MIB, Plan
from stratamq_bench.report import Case, Floor
from stratamq_bench.stored import check_stored
from stratamq_bench.streaming import Stream, StreamedBroker

MANY, PULLS = 64, 200
TOPIC = "found-at-once"


def run(place: Path, plan: Plan) -> Case:
    stream = Stream(segment_bytes=16 * MIB, followers=True)
    with StreamedBroker(place, plan, stream) as broker:

        def store(way: str, in_flight: int) -> dict[str, Any]:
            where = ["--root", broker.broker.root, "--state", broker.state_file]
            how = ["--way", way, "--in-flight", in_flight, "--body", plan.body]
            return child.run(
                "unary_client", *where, *how, "--warm-up", plan.warm_up_s, "--seconds", plan.round_s
            )

        ways = [("producer", MANY), ("send", MANY), ("call", MANY), ("send", 1), ("call", 1)]
        rounds = [{way: store(*way) for way in ways} for _ in range(plan.rounds)]
        with broker.broker.client() as client:
            check_stored(client, broker.state, Load(plan.body), stream.places, followers=False)
        found = _found_at_once(broker)
        memory_mb = broker.memory_mb()

    def rates(way: str, in_flight: int = MANY) -> list[float]:
        return [one[way, in_flight]["messages"] / one[way, in_flight]["seconds"] for one in rounds]

    def cpu_us(way: str, in_flight: int, *names: str) -> float:
        used = [one[way, in_flight] for one in rounds]
        return median(
            sum(one["cpu_s"][name] for name in names) / one["messages"] * 1e6 for one in used
        )

    sends = rates("send")
    services = ("commitlog", "dispatcher", "index")
    return Case(
        case="single_sends",
        messages_per_s=median(sends),
        bytes_per_s=median(sends) * plan.body,
        floor=Floor("producer.send(...).result()", median(rates("producer"))),
        ratio=median(a / b for a, b in zip(sends, rates("producer"), strict=True)),
        cpu_us_per_message={name: cpu_us("send", MANY, name) for name in ("client", *services)},
        p50_ms=median(one["send", MANY]["p50_ms"] for one in rounds),
        p99_ms=median(one["send", MANY]["p99_ms"] for one in rounds),
        p999_ms=median(one["send", MANY]["p999_ms"] for one in rounds),
        pss_mb=memory_mb,
        measured={
            "times_calls": median(sends) / median(rates("call")),
            "log_us": cpu_us("send", MANY, "commitlog"),
            "one_p50_of_a_call": _of_a_call(rounds, "p50_ms"),
            "one_us": cpu_us("send", 1, *services),
            "one_call_us": cpu_us("call", 1, *services),
            "found_at_once": found,
        },
        messages=sum(one["messages"] for each in rounds for one in each.values()),
    )


def _of_a_call(rounds: list[dict[Any, Any]], measure: str) -> float:
    return median(one["send", 1][measure] / one["call", 1][measure] for one in rounds)


def _found_at_once(broker: StreamedBroker) -> float:
    """The share of messages that a pull finds which is begun when they are answered."""
    found = 0
    with broker.broker.client() as client:
        for number in range(PULLS):
            stored = client.send(TOPIC, b"%d" % number, queue_id=0)
            pulled = client.pull(TOPIC, 0, stored.queue_offset).messages
            if pulled and pulled[0].body != b"%d" % number:
                raise Mismatch(f"offset {stored.queue_offset} holds {pulled[0].body!r}")
            found += bool(pulled)
    return found / PULLS
