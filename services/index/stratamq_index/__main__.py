"""The index service: follows the commit log, keeps `index/`, answers by key."""

from functools import partial

from stratamq.follow.driver import confirmed_end
from stratamq.follow.tables import Owners
from stratamq.follow.tier import TierCalls
from stratamq.service.process import Service
from stratamq.service.server import run_service
from stratamq_index.config import IndexConfig
from stratamq_index.engine import IndexEngine
from stratamq_index.metrics import Observer
from stratamq_index.scrubber import IndexScrubber
from stratamq_index.servicer import IndexServicer
from stratamq_index.tier_queries import TierQueries

REST_SECONDS = 0.5
"""Between two looks while everything is on the disk and nothing is scrubbed."""


async def main() -> None:
    service = Service("index", IndexConfig, __doc__)
    config, files, clock = service.config, service.files, service.clock
    writing, querying = service.worker("write"), service.worker("query")
    engine = IndexEngine(files, config.engine_settings, writing, querying, clock)
    engine.load()
    scrubber = IndexScrubber(engine, files, clock, writing, querying, config.scrub_bytes_per_second)
    scrubber.load()
    calls = TierCalls(service.channels, config.tier_timeout_ms) if config.tier_enabled else None
    tier = TierQueries(calls, expected=service.is_given("tier", "target"))
    confirmed = partial(confirmed_end, service.channels)
    catch_up = partial(service.demand.catch_up, lambda: engine.followed.applied, confirmed)
    servicer = IndexServicer(engine, tier, catch_up)
    interval_s = config.tick_interval_ms / 1000

    def tick() -> float:
        engine.tick()
        scrubber.tick()
        ready = engine.followed.serving and servicer.topics.learned and not engine.stop_reason
        service.server.set_ready(ready, engine.stop_reason)
        rests = ready and engine.followed.durable == engine.followed.applied and scrubber.rests
        return max(interval_s, REST_SECONDS) if rests else interval_s

    def close(done) -> None:
        scrubber.close()
        engine.shutdown(done)

    service.offer(servicer)
    service.spawn(servicer.topics.follow(Owners(service.channels).export))
    service.follow(engine.fold)
    service.tick(tick, Observer(engine, scrubber).observe)
    service.on_close(close)
    await service.run()


if __name__ == "__main__":
    run_service(main)
