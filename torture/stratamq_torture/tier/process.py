"""One process of the tier service: its own role, tenure, uploads and key index; no server."""

import asyncio
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from stratamq_tier import upkeep
from stratamq_tier.config import TierConfig
from stratamq_tier.followed_log import FollowedLog
from stratamq_tier.indexing import Indexing
from stratamq_tier.loading import load
from stratamq_tier.parts import Parts
from stratamq_tier.queue_table import QueueTable
from stratamq_tier.role import Role
from stratamq_tier.tasks import first_ended
from stratamq_tier.tenure import Tenure

from stratamq.errors import StrataError
from stratamq.files.simulated_faults import SimulatedCrash
from stratamq.follow.protocol import Event
from stratamq.formats.tier_manifest import Epoch
from stratamq.tier.driver.retrying import Retries, RetryingStorage
from stratamq.tier.driver.simulated import SimulatedBackend
from stratamq.tier.driver.storage import Storage
from stratamq.tier.writing.index_writer import IndexWriter
from stratamq.tier.writing.intake import QueueKey
from stratamq_torture.tier.broker_log import BrokerLog
from stratamq_torture.tier.rules import LaxStorage
from stratamq_torture.tier.stepping import SteppedReading, SteppedRunner
from stratamq_torture.virtual_time import VirtualLoop

CLUSTER, BROKER = "DefaultCluster", "broker-a"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a seed has chosen for all its processes."""

    positions: bool
    retries: bool
    batch_bytes: int
    batch_messages: int
    record_segment_bytes: int
    unit_segment_bytes: int
    budget_bytes: int
    roll_minimum_bytes: int
    without: frozenset[str]

    def config(self) -> TierConfig:
        return TierConfig(
            root=Path("store"),
            target="tier" if self.positions else "s3://tier",
            cluster=CLUSTER,
            broker=BROKER,
            except_topics=("private",),
            scan_interval_ms=5_000,
            batch_wait_ms=10_000,
            batch_messages=self.batch_messages,
            batch_bytes=self.batch_bytes,
            budget_bytes=self.budget_bytes,
            uploads_at_once=3,
            retry_longest_ms=5_000,
            record_segment_bytes=self.record_segment_bytes,
            unit_segment_bytes=self.unit_segment_bytes,
            roll_interval_hours=1,
            roll_minimum_bytes=self.roll_minimum_bytes,
            retention_hours=0,
            topic_retention_hours=("short=1",),
            retention_interval_ms=300_000,
            grace_ms=600_000,
            index_interval_ms=60_000,
            index_slots=64,
            index_items=40,
        )


class TierProcess:
    """`start` it once. It ends by its storage's crash or by `kill`."""

    def __init__(
        self,
        loop: VirtualLoop,
        backend: SimulatedBackend,
        broker_log: BrokerLog,
        shape: Shape,
        chance: random.Random,
    ) -> None:
        self.broker_log = broker_log
        self.died: SimulatedCrash | None = None
        self.role: Role | None = None
        self._loop = loop
        self._shape = shape
        self._config = shape.config()
        self._own = backend.storage()
        storage: Storage = LaxStorage(self._own, shape.without) if shape.without else self._own
        if shape.retries:
            storage = RetryingStorage(storage, Retries(3), lambda seconds: None, chance.random)
        self.runner = SteppedRunner(storage, chance)
        self._reading = SteppedReading()
        self._wake = asyncio.Event()
        self.followed = FollowedLog(self._wake.set)
        self.table = QueueTable()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.followed.opened(self.broker_log.opened())
        self._task = self._loop.create_task(self._run())

    @property
    def alive(self) -> bool:
        return self._task is not None and not self._task.done() and not self._own.dead

    @property
    def tenure(self) -> Tenure | None:
        return self.role.tenure if self.role is not None else None

    @property
    def caught_up(self) -> bool:
        """Everything that belongs in the tier is there, and indexed."""
        tenure = self.tenure
        if tenure is None or not tenure.begun.is_set() or tenure.indexing is None:
            return False
        done = tenure.accounted and self.followed.committed >= self.broker_log.end
        status = tenure.indexing.status
        return done and not status.queues_behind and not status.waiting_items

    def hear(self) -> None:
        """The log announces its offsets."""
        if self._loop.time() < self.runner.paused_until_s:
            return
        own = self.broker_log
        if self.followed.state.generation != own.generation:
            self.followed.opened(own.opened())
            return
        event = Event(own.generation, own.end, own.end, own.confirmed, own.flushed, own.minimum)
        for _ in self.followed.apply(event):
            pass

    async def kill(self) -> None:
        """Calls that are under way may still be done."""
        assert self._task is not None
        self._own.dead = self._own.dead or self._chance_of_late()
        self._task.cancel()
        await asyncio.wait([self._task])

    async def ended(self) -> None:
        """Raises what ended it, unless that was a crash."""
        assert self._task is not None
        if not self.alive:
            await self.kill()
        if self._task.done() and not self._task.cancelled():
            error = self._task.exception()
            if error is not None and not isinstance(error, SimulatedCrash):
                raise error

    def _chance_of_late(self) -> bool:
        return len(self.broker_log.messages) % 2 == 0

    async def _run(self) -> None:
        while True:
            try:
                await self._look()
                break
            except StrataError:
                await asyncio.sleep(1)
        parts = Parts(
            self._config,
            BROKER,
            self.broker_log.files,
            self._loop,
            cast(Any, self.runner),
            cast(Any, self._reading),
            self.followed,
            self._queue_ends,
            lambda key: self.broker_log.floors.get(key, 0),
            self._look,
            self._look,
            self.table,
            self._open_index,
        )

        async def beside(tenure: Tenure) -> None:
            await tenure.begun.wait()
            assert tenure.indexing is not None
            await first_ended(upkeep.expire_regularly(parts, tenure), tenure.indexing.run())

        self.role = Role(parts, self._wake, beside)
        await self.role.run()

    async def _look(self) -> None:
        await load(cast(Any, self.runner), (CLUSTER, BROKER), self.table)

    async def _queue_ends(self) -> tuple[int, dict[QueueKey, int]]:
        return self.broker_log.end, dict(self.broker_log.next)

    async def _open_index(self, epoch: Epoch) -> Indexing:
        names, config, positions = (CLUSTER, BROKER), self._config, self._shape.positions
        slots = config.index_slots if positions else 0
        writer = IndexWriter(*names, epoch, positions, slots, config.index_items, {})
        indexing = Indexing(
            cast(Any, self.runner),
            self._loop,
            names,
            writer,
            self.table,
            config.index_file_interval_ms,
            config.index_items,
        )
        await indexing.open()
        return indexing
