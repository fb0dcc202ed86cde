"""A store filled with the benchmarks' messages, its services stopped again."""

from dataclasses import dataclass
from pathlib import Path

from stratamq_bench import child
from stratamq_bench.broker import Broker
from stratamq_bench.load import Places
from stratamq_bench.streaming import put_topics


@dataclass(frozen=True, slots=True)
class FilledStore:
    root: Path
    messages: int
    log_bytes: int
    """Up to the last message."""


def fill(directory: Path, messages: int, body_bytes: int, segment_bytes: int) -> FilledStore:
    """About so many messages, sent by a client to a log service. StrataError."""
    settings = {"commitlog.segment_bytes": segment_bytes, "commitlog.followers": ""}
    with Broker(directory, ["commitlog"], settings) as broker:
        with broker.client() as client:
            put_topics(client, Places())
            filled = child.run(
                "append_client",
                *("--root", broker.root, "--state", directory / "sender.json"),
                *("--count", messages, "--body", body_bytes),
            )
            end = client.log_state().confirmed_offset
        root = broker.root
    return FilledStore(root, filled["messages"], end)
