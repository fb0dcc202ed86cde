"""The dispatcher service: follows the commit log, keeps `consumequeue/`, serves consumers."""

import os
from functools import partial

from stratamq.follow.demand import Demand
from stratamq.follow.driver import confirmed_end, why_not_writable
from stratamq.follow.tables import Owners
from stratamq.follow.tier import TierCalls
from stratamq.formats.store_paths import TIER_LOCK_PATH
from stratamq.rpc.rooms import DISPATCHER, TIER
from stratamq.service.process import Service
from stratamq.service.server import run_service
from stratamq_dispatcher.cold_reads import ColdReads
from stratamq_dispatcher.config import DispatcherConfig
from stratamq_dispatcher.group_lags import watch_groups
from stratamq_dispatcher.group_members import GroupMembers
from stratamq_dispatcher.long_poll import ANYTHING
from stratamq_dispatcher.metrics import Observer
from stratamq_dispatcher.offset_bounds import OffsetBounds
from stratamq_dispatcher.pulling import Puller
from stratamq_dispatcher.running import DrivenStore, grow, load_store
from stratamq_dispatcher.servicer import DispatcherServicer
from stratamq_dispatcher.tier_reads import TierLevel, TierReads
from stratamq_dispatcher.use_cases.committing import LastCommits
from stratamq_dispatcher.use_cases.together import use_cases_of


async def main() -> None:
    service = Service(DISPATCHER, DispatcherConfig, __doc__)
    config, files, clock, channels = service.config, service.files, service.clock, service.channels
    writing = service.worker("write")
    demand = Demand(lambda: engine.waiting.is_watched(ANYTHING))
    incarnation = service.incarnation()
    engine, offsets, topics = load_store(
        config, files, writing, clock, incarnation, demand.wait_for
    )
    bounds = OffsetBounds(offsets, engine.ends, engine.findings)
    running = DrivenStore(
        engine, offsets, bounds, topics, service.server, mounted=config.tier_mounted
    )
    tier = TierReads(
        TierCalls(channels, config.tier_timeout_ms),
        lambda: engine.followed.minimum,
        TierLevel.named(config.tier_level),
        expected=files.entry(TIER_LOCK_PATH) is not None or service.is_given(TIER, "target"),
        grow=partial(grow, engine) if config.tier_mounted else None,
    )
    ends = partial(confirmed_end, channels)
    catch_up = partial(demand.catch_up, lambda: engine.followed.applied, ends)
    limits = config.pull_limits(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    puller = Puller(engine, limits, ColdReads(files), service.worker("read"), tier, catch_up)
    members, writable = GroupMembers(clock), partial(why_not_writable, channels)
    use_cases = use_cases_of(
        engine, puller, offsets, bounds, topics, members, LastCommits(clock), writable
    )
    servicer = DispatcherServicer(
        engine, puller, offsets, use_cases, topics, clock, config.page_entries
    )
    pages = use_cases.groups.pages_of(lambda: engine.queues)
    service.offer(servicer)
    service.follow(engine.fold, learn_queues=engine.learn_queues, demand=demand)
    service.tick(running.tick, Observer(engine).observe)
    service.spawn(running.follow_tier(tier))
    service.spawn(running.follow_topics(Owners(channels).export, tier))
    service.spawn(watch_groups(pages, offsets, puller.store_times, running.serving, clock))
    service.on_close(offsets.close, engine.close)

    async def drain() -> None:
        puller.stop()

    await service.run(drain=drain)


if __name__ == "__main__":
    run_service(main)
