"""Loads the dispatcher's store, drives it, and follows the log's topics and the tier's queues."""

import asyncio
import gc
import logging

from stratamq.files.port import Clock, Files, Worker
from stratamq.follow.followed_topics import Export, FollowedTopics
from stratamq.follow.tier import TierQueueRange
from stratamq.formats.numbers import INT64_MAX
from stratamq.service.server import Server
from stratamq_dispatcher.config import DispatcherConfig
from stratamq_dispatcher.consumer_offsets import ConsumerOffsets
from stratamq_dispatcher.engine import DispatchEngine
from stratamq_dispatcher.long_poll import OnChange
from stratamq_dispatcher.offset_bounds import OffsetBounds
from stratamq_dispatcher.tier_reads import TierReads

log = logging.getLogger(__name__)

TICK_SECONDS, REST_SECONDS = 0.05, 0.5


def load_store(
    config: DispatcherConfig,
    files: Files,
    writing: Worker,
    clock: Clock,
    incarnation: int,
    on_watched: OnChange,
) -> tuple[DispatchEngine, ConsumerOffsets, FollowedTopics]:
    """What the store has on disk, before the log is followed, and the topics that may be read."""
    topics = FollowedTopics(
        lambda topic, floors: engine.queues.hide(topic, floors),
        lambda topic: engine.queues.shows(topic),
    )
    engine = DispatchEngine(
        files,
        config.engine_settings,
        writing,
        clock,
        incarnation,
        awaits_queues=True,
        require_readable=topics.require_readable,
        on_watched=on_watched,
    )
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
        log.warning("recovery report", extra={"finding": line})
    return engine, offsets, topics


class DrivenStore:
    """`mounted`: the broker only reads a tier. Then nothing is served before the topics are
    learned, and they are learned behind the tier's queues."""

    def __init__(
        self,
        engine: DispatchEngine,
        offsets: ConsumerOffsets,
        bounds: OffsetBounds,
        topics: FollowedTopics,
        server: Server,
        *,
        mounted: bool,
    ) -> None:
        self.serving = asyncio.Event()
        self._topics = topics
        self._engine = engine
        self._offsets = offsets
        self._bounds = bounds
        self._server = server
        self._mounted = mounted
        self._known_history = True

    def tick(self) -> float:
        engine = self._engine
        if self._known_history and engine.history_is_foreign:
            self._known_history = False
            self._offsets.load(foreign=True)
        engine.tick()
        self._bounds.tick()
        self._offsets.tick()
        if engine.followed.serving:
            self.serving.set()
        ready = (
            engine.followed.serving and self._topics.learned and not engine.followed.stopped_reason
        )
        self._server.set_ready(ready, engine.followed.stopped_reason)
        return REST_SECONDS if engine.at_rest else TICK_SECONDS

    async def follow_tier(self, tier: TierReads) -> None:
        if self._mounted:
            await self.serving.wait()
        await tier.follow()

    async def follow_topics(self, export: Export, tier: TierReads) -> None:
        if self._mounted:
            await tier.learned.wait()
        await self._topics.follow(export, self._forget)

    def _forget(self, topics: set[str]) -> None:
        """Drop the groups' offsets of deleted topics; consumers that wait for their messages look
        again."""
        self._offsets.forget_topics(topics)
        queues = self._engine.queues
        for name in topics:
            self._engine.waiting.grown((name, one.queue_id) for one in queues.of_topic(name))


def grow(engine: DispatchEngine, queue: TierQueueRange) -> None:
    """Make the engine's queue as long as that of a mounted tier. A queue whose end is not known has
    at least one message: a pull of it gets the reason."""
    end = queue.end if queue.end < INT64_MAX else queue.minimum + 1
    engine.follow_tier(queue.topic, queue.queue_id, end)
