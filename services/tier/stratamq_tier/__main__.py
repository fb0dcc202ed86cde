"""The tier service: follows the commit log, puts its messages into cheap storage, fetches them."""

from stratamq.follow.own_log import OwnLog
from stratamq.follow.tables import Owners
from stratamq.rpc.rooms import TIER
from stratamq.service.process import Service
from stratamq.service.server import leave_threads, run_service
from stratamq.tier.driver.running import Runner
from stratamq_tier.config import TierConfig
from stratamq_tier.fetching import Fetcher
from stratamq_tier.metrics import Observer
from stratamq_tier.querying import KeyQueries
from stratamq_tier.read_ahead import ReadAhead
from stratamq_tier.servicer import TierServicer
from stratamq_tier.storage import OpenedStorage
from stratamq_tier.working import Working

TICK_S = 0.5
EXTRA_THREADS = 2
"""The runner has these besides one thread for each upload: for parallel queries."""


async def main() -> None:
    service = Service(TIER, TierConfig, __doc__)
    config, files, clock, channels = service.config, service.files, service.clock, service.channels
    opened, owners = OpenedStorage(config, clock), Owners(channels)
    uploading = Runner(opened.storage, config.uploads_at_once + EXTRA_THREADS)
    fetching = Runner(opened.storage, config.fetches_at_once)
    cache = ReadAhead(clock, config.cache_bytes, config.read_ahead_expiry_ms)
    reading, own = service.worker("read"), OwnLog(channels)
    work = Working(config, files, clock, reading, own, owners, opened, uploading, cache)
    fetcher = Fetcher(
        fetching,
        config.cluster,
        work.table,
        cache,
        config.read_limits,
        clock,
        lambda: work.broker,
        lambda: work.writing,
        work.require_explained,
    )
    queries = KeyQueries(
        fetching,
        config.cluster,
        work.table,
        fetcher,
        clock,
        lambda: work.broker,
        lambda: work.indexing,
    )
    servicer = TierServicer(
        work.table, fetcher, queries, work.status, work.floors, work.require_loaded
    )

    def tick() -> float:
        cache.expire()
        service.server.set_ready(work.ready, work.reason)
        return TICK_S

    service.offer(servicer)
    service.follow(work.log)
    service.spawn(work.topics.follow(owners.export))
    service.spawn(work.run())
    service.tick(tick, Observer(work.status).observe)
    try:
        await service.run()
    finally:
        if not opened.close(uploading, fetching):
            leave_threads()


if __name__ == "__main__":
    run_service(main)
