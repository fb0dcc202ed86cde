"""One writer for each queue of the tier, one procedure of it at a time."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from stratamq.formats.tier_manifest import Epoch, Manifest
from stratamq.tier.containers.place import QueuePlace, TierLimits
from stratamq.tier.driver.calls import Procedure
from stratamq.tier.driver.running import Runner
from stratamq.tier.writing.holes import Gaps
from stratamq.tier.writing.intake import QueueKey
from stratamq.tier.writing.queue_writer import TierQueueWriter

T = TypeVar("T")

MAX_WRITERS = 10_000
"""Idle ones above this number are forgotten; they look at their queue again."""


@dataclass(slots=True)
class _Entry:
    writer: TierQueueWriter
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Writers:
    """Belongs to the event loop. `limits`: by topic. `committed` is given each manifest that a
    procedure left."""

    def __init__(
        self,
        runner: Runner,
        cluster: str,
        broker: str,
        epoch: Epoch,
        limits: Callable[[str], TierLimits],
        committed: Callable[[Manifest], None],
        listed: Callable[[QueueKey], bool],
        gaps: Gaps,
    ) -> None:
        """`listed`: whether the tier has had messages of the queue. `gaps`: of their writers."""
        self._runner = runner
        self._cluster = cluster
        self._broker = broker
        self._epoch = epoch
        self._limits = limits
        self._committed = committed
        self._listed = listed
        self._gaps = gaps
        self._entries: OrderedDict[QueueKey, _Entry] = OrderedDict()

    async def run(self, key: QueueKey, work: Callable[[TierQueueWriter], Procedure[T]]) -> T:
        """The result of the writer's procedure `work`. FencedError and other errors of the
        storage."""
        entry = self._entry(key)
        entry.users += 1
        try:
            async with entry.lock:
                result = await self._runner.start(work(entry.writer))
                manifest = entry.writer.manifest
        finally:
            entry.users -= 1
        if manifest is not None:
            self._committed(manifest)
        return result

    def _entry(self, key: QueueKey) -> _Entry:
        entry = self._entries.get(key)
        if entry is None:
            self._forget_idle()
            place = QueuePlace(self._cluster, self._broker, *key)
            positions = self._runner.storage.positions
            limits = self._limits(key[0])
            writer = TierQueueWriter(
                place,
                self._epoch,
                positions,
                limits,
                replaces=True,
                listed=self._listed(key),
                gaps=self._gaps,
            )
            entry = self._entries[key] = _Entry(writer)
        self._entries.move_to_end(key)
        return entry

    def _forget_idle(self) -> None:
        if len(self._entries) >= MAX_WRITERS:
            oldest = next(iter(self._entries))
            if self._entries[oldest].users:
                self._entries.move_to_end(oldest)
            else:
                del self._entries[oldest]
