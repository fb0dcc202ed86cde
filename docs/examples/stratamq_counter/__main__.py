"""The counter service: follows the log and counts its messages by topic."""

import json
from dataclasses import dataclass
from typing import Any

import grpc

from stratamq.rpc.framing import identity
from stratamq.service.config import FollowerConfig, setting
from stratamq.service.process import Service
from stratamq.service.server import run_service
from stratamq_counter.engine import CountEngine


@dataclass(frozen=True)
class CounterConfig(FollowerConfig):
    save_interval_ms: int = setting(
        1_000, unit="ms", minimum=10, maximum=60_000, doc="How often the counts are written."
    )


async def main() -> None:
    service = Service("counter", CounterConfig, __doc__)
    engine = CountEngine(service.files, service.worker("write"))
    engine.load()

    async def get_counts(request: bytes, context: Any) -> bytes:
        return json.dumps(engine.totals()).encode()

    def tick() -> float:
        engine.save()
        service.server.set_ready(engine.serving, engine.stopped_reason)
        return service.config.save_interval_ms / 1000

    calls = {"GetCounts": grpc.unary_unary_rpc_method_handler(get_counts, identity, identity)}
    service.server.add_generic(grpc.method_handlers_generic_handler("example.Counter", calls))
    service.follow(engine)
    service.tick(tick)
    service.on_close(engine.save)
    await service.run()


if __name__ == "__main__":
    run_service(main)
