"""The counter service: follows the log and counts its messages by topic."""

import json
from dataclasses import dataclass

import grpc

from stratamq.follow.fold import Fold, FoldPlace, SnapshotFile
from stratamq.rpc.framing import identity
from stratamq.service.config import FollowerConfig, setting
from stratamq.service.entrance import Call
from stratamq.service.process import Service
from stratamq.service.server import run_service
from stratamq_counter.counts import Counts


@dataclass(frozen=True)
class CounterConfig(FollowerConfig):
    save_interval_ms: int = setting(
        1_000, unit="ms", minimum=10, maximum=60_000, doc="How often the counts are written."
    )


async def main() -> None:
    service = Service("counter", CounterConfig, __doc__)
    files, interval_ms = service.files, service.config.save_interval_ms
    followed, writing = FoldPlace(), service.worker("write")
    counts = Counts(followed)
    file = SnapshotFile(
        "stratamq/counter.json", counts, followed, files, writing, service.clock, interval_ms
    )
    file.load()

    async def get_counts(request: bytes, call: Call) -> bytes:
        followed.require_serving("counter")
        return json.dumps(counts.totals()).encode()

    def tick() -> float:
        file.tick()
        service.server.set_ready(followed.serving, followed.stopped_reason)
        return interval_ms / 1000

    calls = {"GetCounts": grpc.unary_unary_rpc_method_handler(get_counts, identity, identity)}
    service.server.add_generic(grpc.method_handlers_generic_handler("example.Counter", calls))
    service.follow(Fold("counter", file, followed, files))
    service.tick(tick)
    service.on_close(file.close)
    await service.run()


if __name__ == "__main__":
    run_service(main)
