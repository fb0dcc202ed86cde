"""`client.send` of many tasks, many threads and one task, beside calls and a producer's deliveries,
all in one run, with dispatcher and index; whether a pull that is begun after an answer finds it."""

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
TASKS, THREADS = "unary_client", "threads_client"
Way = tuple[str, int, str]
"""How a message is stored, how many at a time, by which client process."""


def run(place: Path, plan: Plan) -> Case:
    stream = Stream(segment_bytes=16 * MIB, followers=True)
    with StreamedBroker(place, plan, stream) as broker:

        def store(way: str, in_flight: int, client: str = TASKS) -> dict[str, Any]:
            where = ["--root", broker.broker.root, "--state", broker.state_file]
            how = ["--way", way, "--in-flight", in_flight, "--body", plan.body]
            return child.run(
                client, *where, *how, "--warm-up", plan.warm_up_s, "--seconds", plan.round_s
            )

        ways: list[Way] = [(way, MANY, TASKS) for way in ("producer", "send", "call")]
        ways += [(way, MANY, THREADS) for way in ("producer", "send", "call")]
        ways += [("send", 1, TASKS), ("call", 1, TASKS)]
        rounds = [{way: store(*way) for way in ways} for _ in range(plan.rounds)]
        with broker.broker.client() as client:
            check_stored(client, broker.state, Load(plan.body), stream.places, followers=False)
        found = _found_at_once(broker)
        memory_mb = broker.memory_mb()

    def rates(way: str, client: str = TASKS) -> list[float]:
        found = [one[way, MANY, client] for one in rounds]
        return [one["messages"] / one["seconds"] for one in found]

    def ratio(client: str) -> float:
        pairs = zip(rates("send", client), rates("producer", client), strict=True)
        return median(sends / delivered for sends, delivered in pairs)

    def cpu_us(way: str, in_flight: int, *names: str) -> float:
        used = [one[way, in_flight, TASKS] for one in rounds]
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
        ratio=ratio(TASKS),
        cpu_us_per_message={name: cpu_us("send", MANY, name) for name in ("client", *services)},
        p50_ms=median(one["send", MANY, TASKS]["p50_ms"] for one in rounds),
        p99_ms=median(one["send", MANY, TASKS]["p99_ms"] for one in rounds),
        p999_ms=median(one["send", MANY, TASKS]["p999_ms"] for one in rounds),
        pss_mb=memory_mb,
        measured={
            "times_calls": median(sends) / median(rates("call")),
            "threads_per_s": median(rates("send", THREADS)),
            "threads_ratio": ratio(THREADS),
            "threads_times_calls": median(rates("send", THREADS)) / median(rates("call", THREADS)),
            "log_us": cpu_us("send", MANY, "commitlog"),
            "one_p50_of_a_call": median(
                one["send", 1, TASKS]["p50_ms"] / one["call", 1, TASKS]["p50_ms"] for one in rounds
            ),
            "one_us": cpu_us("send", 1, *services),
            "one_call_us": cpu_us("call", 1, *services),
            "found_at_once": found,
        },
        messages=sum(one["messages"] for each in rounds for one in each.values()),
    )


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
