"""The dispatcher service: follows the commit log, keeps `consumequeue/`, serves consumers."""

import asyncio
import gc
import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial

from stratamq.api.v1 import dispatcher_pb2_grpc
from stratamq.files.port import Clock, Files, Worker
from stratamq.follow.demand import Demand
from stratamq.follow.driver import confirmed_end, why_not_writable
from stratamq.follow.followed_topics import FollowedTopics
from stratamq.follow.tables import Owners
from stratamq.follow.tier import TierCalls, TierQueue
from stratamq.formats.numbers import INT64_MAX
from stratamq.formats.store_paths import TIER_LOCK_PATH
from stratamq.service.process import Service
from stratamq.service.server import run_service
from stratamq_dispatcher.cold_reads import ColdReads
from stratamq_dispatcher.config import DispatcherConfig
from stratamq_dispatcher.consumer_offsets import ConsumerOffsets
from stratamq_dispatcher.engine import DispatchEngine
from stratamq_dispatcher.group_lags import Page, watch_groups
from stratamq_dispatcher.group_listing import GroupListing
from stratamq_dispatcher.group_members import GroupMembers
from stratamq_dispatcher.last_commits import LastCommits
from stratamq_dispatcher.metrics import Observer
from stratamq_dispatcher.offset_bounds import OffsetBounds
from stratamq_dispatcher.pulling import Puller
from stratamq_dispatcher.servicer import SERVICE_NAME, DispatcherServicer
from stratamq_dispatcher.tier_reads import TierLevel, TierReads

log = logging.getLogger(__name__)

TICK_SECONDS, REST_SECONDS = 0.05, 0.5


async def main() -> None:
    service = Service("dispatcher", DispatcherConfig, __doc__)
    config, files, clock = service.config, service.files, service.clock
    writing, reading = service.worker("write"), service.worker("read")
    incarnation = service.incarnation()
    engine, offsets = load_store(config, files, writing, clock, incarnation)
    bounds = OffsetBounds(offsets, engine.ends, engine.findings)
    tier = tier_of(service, engine)
    serving = asyncio.Event()
    demand = Demand(lambda: len(engine.waiting) > 0)
    engine.waiting.on_watch = demand.begin
    puller = puller_of(service, engine, reading, tier, demand)
    topics = topics_of(engine)
    engine.require_readable = topics.require_readable
    servicer = DispatcherServicer(
        engine,
        puller,
        offsets,
        bounds,
        LastCommits(clock),
        GroupMembers(clock),
        topics,
        partial(why_not_writable, service.channels),
        clock,
        config.page_entries,
    )
    known_history = True

    def tick() -> float:
        nonlocal known_history
        if known_history and engine.history_is_foreign:
            known_history = False
            offsets.load(foreign=True)
        engine.tick()
        bounds.tick()
        offsets.tick()
        if engine.serving:
            serving.set()
        service.server.set_ready(
            engine.serving and topics.learned and not engine.stopped_reason, engine.stopped_reason
        )
        return REST_SECONDS if engine.at_rest else TICK_SECONDS

    async def drain() -> None:
        puller.stop()

    add_to_server = dispatcher_pb2_grpc.add_DispatcherServiceServicer_to_server
    service.offer(add_to_server, servicer, SERVICE_NAME)
    topics_of_log = partial(
        topics.follow, Owners(service.channels).export, partial(forget, engine, offsets)
    )
    service.spawn(after(serving if config.tier_mounted else None, tier.follow))
    service.spawn(after(tier.learned if config.tier_mounted else None, topics_of_log))
    service.follow(engine, learn_queues=engine.learn_queues, demand=demand)
    service.tick(tick, Observer(engine).observe)
    groups = groups_of(engine, offsets, bounds, puller)
    service.spawn(watch_groups(groups, offsets, puller.store_times, serving, clock))
    service.on_close(offsets.close)
    service.on_close(engine.close)
    await service.run(drain=drain)


def topics_of(engine: DispatchEngine) -> FollowedTopics:
    return FollowedTopics(
        lambda topic, floors: engine.queues.hide(topic, floors),
        lambda topic: engine.queues.shows(topic),
    )


def groups_of(
    engine: DispatchEngine, offsets: ConsumerOffsets, bounds: OffsetBounds, puller: Puller
) -> Page:
    listing = GroupListing(offsets, bounds, puller.learn_minimums, puller.first_offset)
    return lambda place, most: listing.page(engine.queues, place, most=most)


def forget(engine: DispatchEngine, offsets: ConsumerOffsets, topics: set[str]) -> None:
    """Of deleted topics: groups' offsets, and whoever waits for their messages looks again."""
    offsets.forget_topics(topics)
    for name in topics:
        engine.waiting.grown((name, one.queue_id) for one in engine.queues.of_topic(name))


async def after(event: asyncio.Event | None, work: Callable[[], Awaitable[None]]) -> None:
    """`work` once `event` is set; None: at once. Of a mount nothing is served before the topics are
    learned, and they are learned behind the tier's queues."""
    if event is not None:
        await event.wait()
    await work()


def tier_of(service: Service[DispatcherConfig], engine: DispatchEngine) -> TierReads:
    config = service.config
    had_one = service.files.entry(TIER_LOCK_PATH) is not None

    def grow(queue: TierQueue) -> None:
        # A queue whose end is not known has one message at least: whoever asks is told why.
        end = queue.end if queue.end < INT64_MAX else queue.minimum + 1
        engine.follow_tier(queue.topic, queue.queue_id, end)

    return TierReads(
        TierCalls(service.channels, config.tier_timeout_ms),
        lambda: engine.followed.minimum,
        TierLevel.named(config.tier_level),
        expected=had_one or service.is_given("tier", "target"),
        grow=grow if config.tier_mounted else None,
    )


def puller_of(
    service: Service[DispatcherConfig],
    engine: DispatchEngine,
    reading: Worker,
    tier: TierReads,
    demand: Demand,
) -> Puller:
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = service.config.pull_limits(memory_bytes)
    confirmed = partial(confirmed_end, service.channels)
    catch_up = partial(demand.catch_up, lambda: engine.applied, confirmed)
    return Puller(engine, limits, ColdReads(service.files), reading, tier, catch_up)


def load_store(
    config: DispatcherConfig, files: Files, writing: Worker, clock: Clock, incarnation: int
) -> tuple[DispatchEngine, ConsumerOffsets]:
    """What the store has on disk, before the log is followed."""
    engine = DispatchEngine(files, config.engine_settings, writing, clock, incarnation)
    engine.load()
    offsets = ConsumerOffsets(
        files,
        writing,
        clock,
        config.offsets_persist_interval_ms,
        incarnation=incarnation,
        page_entries=config.page_entries,
    )
    offsets.load()
    # What they loaded stays: a collection need not look at a million queues each time.
    gc.freeze()
    for line in [*engine.recovery_report(), *offsets.report]:
        log.warning("found at start", extra={"finding": line})
    return engine, offsets


if __name__ == "__main__":
    run_service(main)
