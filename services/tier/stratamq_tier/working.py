"""The tier's work from its start: finds the broker's name, learns what the tier has, and writes."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from functools import partial

from stratamq.errors import StrataError, UnavailableError
from stratamq.files.port import Clock, Files
from stratamq.follow.followed_topics import FollowedTopics
from stratamq.follow.own_log import OwnLog
from stratamq.follow.tables import Owners, parse_queue_offsets
from stratamq.formats.replication_metadata import NO_MARK, MetadataKind
from stratamq.formats.tier_manifest import Epoch
from stratamq.service.tasks import first_ended
from stratamq.service.worker import ThreadWorker
from stratamq.tier.driver.probing import probe
from stratamq.tier.driver.running import Runner
from stratamq.tier.writing.export import MetadataExport
from stratamq.tier.writing.index_writer import IndexWriter
from stratamq.tier.writing.intake import QueueKey
from stratamq.tier.writing.progress import load_progress
from stratamq_tier import upkeep
from stratamq_tier.config import TierConfig
from stratamq_tier.followed_log import FollowedLog
from stratamq_tier.indexing import Indexing, IndexStatus
from stratamq_tier.loading import load
from stratamq_tier.mounting import Mount
from stratamq_tier.parts import Parts
from stratamq_tier.queue_table import TierQueueTable
from stratamq_tier.read_ahead import ReadAhead
from stratamq_tier.role import TierRole
from stratamq_tier.status import TierStatus
from stratamq_tier.storage import OpenedStorage
from stratamq_tier.tenure import Tenure
from stratamq_tier.written_tier import require_new

log = logging.getLogger(__name__)

REVISIONS_PER_MS = 1_000
"""More revisions than a table ever counts, so that those of a later start are above."""


class Working:
    """Finds the broker's name, learns what the tier has, and writes from then on."""

    def __init__(
        self,
        config: TierConfig,
        files: Files,
        clock: Clock,
        reading: ThreadWorker,
        own: OwnLog,
        owners: Owners,
        opened: OpenedStorage,
        runner: Runner,
        cache: ReadAhead,
    ) -> None:
        self.ready = False
        self.reason = "the tier was not read yet"
        self.table = TierQueueTable(clock.wall_ms() * REVISIONS_PER_MS)
        self.topics = FollowedTopics(self._hide)
        self._config = config
        self._files = files
        self._clock = clock
        self._reading = reading
        self._own = own
        self._owners = owners
        self._opened = opened
        self._runner = runner
        self._cache = cache
        self._wake = asyncio.Event()
        self.log = FollowedLog(self._wake.set)
        self._floors: dict[str, dict[int, int]] = {}
        self._broker = config.broker
        self._role: TierRole | Mount | None = None

    @property
    def broker(self) -> str:
        """Empty until it is known."""
        return self._broker

    @property
    def writing(self) -> bool:
        """Whether the table has every change of the tier."""
        tenure = self._role.tenure if self._role is not None else None
        return tenure is not None and tenure.begun.is_set()

    def require_loaded(self) -> None:
        """UnavailableError until it is known what the tier has, and that it is this broker's."""
        role = self._role
        if role is None or not (self.writing or role.is_known):
            reason = self.reason or (role.not_writing_reason if role else "") or "the tier is begun"
            raise UnavailableError(f"the tier service is not ready: {reason}")
        if role.foreign_reason and not self.writing:
            raise UnavailableError(role.foreign_reason)

    def require_explained(self, topic: str, has_some: bool) -> None:
        """UnavailableError unless it is known why the tier lacks messages of the topic's queue that
        the log has no more. `has_some`: it has others of the queue."""
        config, role = self._config, self._role
        if config.mounted or role is None or not config.wants(topic):
            return
        accounted = role.tenure is not None and role.tenure.accounted
        if has_some or not (accounted or self.log.state.is_slave):
            raise UnavailableError(
                "the tier does not have what the log has no more, and it is not known yet whether "
                "it is lost: the service that writes the tier compares it with its log"
            )

    @property
    def indexing(self) -> Indexing | None:
        tenure = self._role.tenure if self._role is not None else None
        return tenure.indexing if tenure is not None else None

    async def run(self) -> None:
        """Until it is cancelled."""
        config = self._config
        if config.is_objects and not config.mounted:
            await self._until_done(
                lambda: self._runner.start(probe(secrets.token_hex(8))), "the storage is tried"
            )
        if not self._broker:
            await self._until_done(self._learn_name, "the log was not met yet")
        role = self._mount() if config.mounted else self._writer()
        read = role.look if isinstance(role, Mount) else self._load
        await self._until_done(read, "the tier was not read yet")
        await self._until_done(self._require_topics, "the topics were not learned yet")
        self._role = role
        self.ready, self.reason = True, ""
        await self._role.run()

    def _mount(self) -> Mount:
        config = self._config
        take = partial(self._owners.take, generation=0)
        names = config.cluster, self._broker
        return Mount(self._runner, names, self.table, self._load, take, config.mount_look_ms)

    def _writer(self) -> TierRole:
        parts = Parts(
            self._config,
            self._broker,
            self._files,
            self._clock,
            self._runner,
            self._reading,
            self.log,
            partial(queue_ends, self._owners),
            lambda key: self.floors(key[0]).get(key[1], 0),
            self._load,
            partial(self._load, self._is_known),
            self.table,
            self._open_index,
            self._clock_doubt,
        )
        return TierRole(parts, self._wake, partial(beside, self._owners, parts))

    async def _until_done(self, attempt: Callable[[], object], reason: str) -> None:
        """Again and again, until no error comes."""
        self.reason = reason
        pause_s = 0.1
        while True:
            try:
                await attempt()  # type: ignore[misc]
                return
            except StrataError as error:
                if self.reason != f"{reason}: {error}":
                    self.reason = f"{reason}: {error}"
                    log.warning("not ready", extra={"reason": self.reason})
            await asyncio.sleep(pause_s)
            pause_s = min(10.0, 2 * pause_s)

    async def _learn_name(self) -> None:
        self._broker = (await self._own.facts()).broker_name

    async def _clock_doubt(self) -> str:
        return (await self._own.facts()).clock_doubt

    def _hide(self, topic: str, minimums: Mapping[int, int]) -> None:
        self._floors.setdefault(topic, {}).update(minimums)

    def floors(self, topic: str) -> Mapping[int, int]:
        """By queue id: messages below these queue offsets were purged, or deleted."""
        return self._floors.get(topic, {})

    async def _require_topics(self) -> None:
        self.topics.require_learned()

    def _is_known(self, topic: str, queue_id: int) -> bool:
        """Whether the tier is known to have messages of the queue."""
        entry = self.table.get(topic, queue_id)
        return entry is not None and entry.manifest.minimum < entry.manifest.end_offset

    async def _load(self, skips: Callable[[str, int], bool] | None = None) -> None:
        cluster, broker = self._config.cluster, self._broker
        if await self._runner.start(load_progress(cluster, broker)) is None:
            await self._reading.run(partial(require_new, self._files, self._config, broker))
        await load(self._runner, (cluster, broker), self.table, skips)

    async def _open_index(self, epoch: Epoch) -> Indexing | None:
        config, runner = self._config, self._runner
        if not config.index_enabled:
            return None
        export = MetadataExport(self._files)
        ids = await self._reading.run(export.topic_ids) if runner.storage.positions else {}
        return await index_opened(runner, self._clock, config, self._broker, epoch, self.table, ids)

    def status(self) -> TierStatus:
        config, followed, role = self._config, self.log, self._role
        tenure = role.tenure if role is not None else None
        uploads = tenure.uploads if tenure else None
        intake = tenure.intake if tenure else None
        damaged = self.table.damaged
        failing = uploads.failing_queues if uploads else set()
        failing = failing | {(one.topic, one.queue_id) for one in damaged}
        damage = f"{damaged[0].topic}/{damaged[0].queue_id}: {damaged[0].error}" if damaged else ""
        return TierStatus(
            storage=config.target,
            cluster=config.cluster,
            broker=self._broker,
            not_writing_reason=role.not_writing_reason if role else self.reason,
            committed_offset=followed.committed,
            read_offset=followed.read_to,
            log_confirmed_offset=followed.state.confirmed,
            lag_ms=tenure.lag_ms if tenure else 0,
            waiting_messages=(intake.messages + uploads.messages) if intake and uploads else 0,
            waiting_bytes=(intake.bytes + uploads.bytes) if intake and uploads else 0,
            committed_messages=tenure.committed_messages if tenure else 0,
            committed_bytes=tenure.committed_bytes if tenure else 0,
            queue_count=len(self.table),
            failing_queues=len(failing),
            last_failure=(uploads.last_failure if uploads else "") or damage,
            lost_messages=self.table.lost_messages,
            lost_queues=len(self.table.lost),
            lost_example=self.table.lost_example,
            put_backs=role.put_backs if role else 0,
            requests=self._opened.requests(),
            cache=self._cache.status,
            index=tenure.indexing.status if tenure and tenure.indexing else IndexStatus(),
        )


async def index_opened(
    runner: Runner,
    clock: Clock,
    config: TierConfig,
    broker: str,
    epoch: Epoch,
    table: TierQueueTable,
    topic_ids: Mapping[str, int],
) -> Indexing:
    """The key index of this claim of the tier. `topic_ids`: RocketMQ's, where the storage is a
    directory. FencedError."""
    positions, names = runner.storage.positions, (config.cluster, broker)
    slots, items = config.index_slots if positions else 0, config.index_items
    writer = IndexWriter(*names, epoch, positions, slots, items, topic_ids)
    interval_ms = config.index_file_interval_ms
    indexing = Indexing(runner, clock, names, writer, table, interval_ms, items)
    await indexing.open()
    return indexing


async def beside(owners: Owners, parts: Parts, tenure: Tenure) -> None:
    """What runs while this service writes."""
    await tenure.begun.wait()
    work = [
        upkeep.expire_regularly(parts, tenure),
        upkeep.copy_consumer_offsets(parts, tenure, owners.export),
    ]
    if parts.runner.storage.positions:
        work.append(upkeep.RegularExport(parts, tenure.indexing).run())
    if tenure.indexing is not None:
        work.append(tenure.indexing.run())
    await first_ended(*work)


async def queue_ends(owners: Owners) -> tuple[int, dict[QueueKey, int]]:
    """UnavailableError."""
    mark = NO_MARK
    ends: dict[QueueKey, int] = {}
    appended = 0
    while True:
        page = await owners.export(MetadataKind.QUEUE_OFFSETS, mark)
        end, queues = parse_queue_offsets(page.document)
        appended = appended or end
        ends.update(((one.topic, one.queue_id), one.next_queue_offset) for one in queues)
        if not page.more:
            return appended, ends
        mark = page.mark
