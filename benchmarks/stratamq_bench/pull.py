"""How fast one client reads sixteen interleaved queues, beside a bare stream of as many bytes.

The store is filled first, and lies in the page cache; then floor and client take turns.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

from stratamq_bench import child
from stratamq_bench.append import SEGMENT_BYTES, put_topics
from stratamq_bench.broker import Broker
from stratamq_bench.load import topic_names
from stratamq_bench.report import Case, Floor
from stratamq_bench.usage import pss_mb


@dataclass(frozen=True, slots=True)
class PullOptions:
    seconds: float = 5.0
    """Measured, of each round."""
    rounds: int = 3
    body: int = 1024
    messages: int = 500_000
    """Read again and again."""
    piece: int = 256 << 10
    """Bytes of one response."""


def run_pull(directory: Path, options: PullOptions) -> Case:
    """Everything that is written lies below `directory`. Raises Mismatch, StrataError."""
    (topic,) = topic_names(1)
    settings = {
        "commitlog.segment_bytes": SEGMENT_BYTES,
        "commitlog.followers": "dispatcher",
    }
    with Broker(directory, ["commitlog", "dispatcher"], settings) as broker:
        with broker.client() as client:
            put_topics(client, 1)
            filled = child.run(
                "append_client",
                *("--root", broker.root, "--topics", 1),
                *("--count", options.messages, "--body", options.body),
            )
            stored = sum(queue.max_offset for queue in client.queues(topic))
            frame_bytes = client.log_state().appended_offset / stored
        assert stored == filled["next_number"]
        read_arguments = ["--root", broker.root, "--topic", topic, "--messages", stored]
        read_arguments += ["--seconds", options.seconds, "--body", options.body]
        read_arguments += ["--piece", options.piece]
        floor_arguments = ["--frame-bytes", round(frame_bytes), "--dir", directory]
        floor_arguments += ["--piece", options.piece, "--seconds", max(1.0, options.seconds / 2)]
        floors, reads = [], []
        for _ in range(options.rounds):
            floors.append(child.run("floor_pull", *floor_arguments))
            reads.append(child.run("pull_client", *read_arguments))
        floors.append(child.run("floor_pull", *floor_arguments))
        memory = sum(pss_mb(pid) for pid in broker.pids.values())
    rates = [read["messages"] / read["seconds"] for read in reads]
    floor_rates = [floor["messages_per_s"] for floor in floors]
    beside = [fmean(pair) for pair in pairwise(floor_rates)]
    return Case(
        case=f"pull, 16 interleaved queues, {options.body} B",
        messages_per_s=median(rates),
        bytes_per_s=median(rates) * options.body,
        floor=Floor(
            name="floor_pull",
            messages_per_s=median(floor_rates),
            cpu_us_per_message={
                name: median(floor["cpu_us_per_message"][name] for floor in floors)
                for name in ("client", "server")
            },
        ),
        ratio=median(rate / floor for rate, floor in zip(rates, beside, strict=True)),
        cpu_us_per_message={
            name: median(read["cpu_s"][name] / read["messages"] * 1e6 for read in reads)
            for name in ("client", "dispatcher", "commitlog")
        },
        pss_mb=memory,
        messages=sum(read["messages"] for read in reads),
    )
