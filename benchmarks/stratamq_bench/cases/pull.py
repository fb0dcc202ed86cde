"""How fast one client reads sixteen interleaved queues, beside a bare stream of as many bytes.

The store is filled first, and is in the page cache; then floor and client take turns.
"""

from pathlib import Path
from statistics import median
from typing import Any

from stratamq_bench import child
from stratamq_bench.broker import Broker
from stratamq_bench.load import Places
from stratamq_bench.plan import MIB, Plan, alternate, ratio_of
from stratamq_bench.report import Case
from stratamq_bench.streaming import floor_of, put_topics
from stratamq_bench.usage import pss_mb

MESSAGES = 500_000
SEGMENT_BYTES = 128 * MIB
PIECE_BYTES = 256 << 10
"""Of one response, here and there."""
PLACES = Places(topics=1, queues=16)


def run(place: Path, plan: Plan) -> Case:
    settings = {
        "commitlog.segment_bytes": plan.segment_bytes(SEGMENT_BYTES),
        "commitlog.followers": "dispatcher",
    }
    (topic,) = PLACES.topic_names
    with Broker(place, ["commitlog", "dispatcher"], settings) as broker:
        with broker.client() as client:
            put_topics(client, PLACES)
            child.run(
                "append_client",
                *("--root", broker.root, "--state", place / "sender.json"),
                *("--topics", PLACES.topics, "--queues", PLACES.queues),
                *("--count", plan.scaled(MESSAGES, 2000), "--body", plan.body),
            )
            stored = sum(queue.max_offset for queue in client.queues(topic))
            log_bytes = client.log_state().appended_offset

        def bare() -> dict[str, Any]:
            what = ["--frame-bytes", round(log_bytes / stored), "--dir", place]
            what += ["--piece", PIECE_BYTES]
            return child.run(
                "floor_pull", *what, "--seconds", plan.floor_s, "--warm-up", plan.warm_up_s
            )

        def read() -> dict[str, Any]:
            what = ["--root", broker.root, "--topic", topic, "--messages", stored]
            what += ["--body", plan.body, "--piece", PIECE_BYTES]
            return child.run("pull_client", *what, "--seconds", plan.round_s)

        floors, reads = alternate(plan.rounds, bare, read)
        memory_mb = sum(pss_mb(pid) for pid in broker.pids.values())
    rates = [read["messages"] / read["seconds"] for read in reads]
    return Case(
        case="pull",
        messages_per_s=median(rates),
        bytes_per_s=median(rates) * plan.body,
        floor=floor_of("floor_pull", floors),
        ratio=ratio_of(rates, [floor["messages_per_s"] for floor in floors]),
        cpu_us_per_message={
            name: median(read["cpu_s"][name] / read["messages"] * 1e6 for read in reads)
            for name in ("client", "dispatcher", "commitlog")
        },
        pss_mb=memory_mb,
        measured={"segments": log_bytes / settings["commitlog.segment_bytes"]},
        messages=sum(read["messages"] for read in reads),
    )
