"""What the parts of a simulated broker share: chance, time, the disk, the model, what came up."""

import random
from collections import Counter

from stratamq.files.simulated import SimulatedClock
from stratamq_torture.simulated.disk import TortureDisk
from stratamq_torture.simulated.model import Model
from stratamq_torture.simulated.settings import ASYNC, BrokerSettings
from stratamq_torture.simulated.situations import Situation


class World:
    """`chance` decides every order and every loss; it is set again before each operation."""

    def __init__(
        self,
        settings: BrokerSettings,
        chance: random.Random,
        *,
        disk: TortureDisk | None = None,
        model: Model | None = None,
        clock: SimulatedClock | None = None,
    ) -> None:
        self.settings = settings
        self.chance = chance
        self.clock = clock or SimulatedClock()
        self.disk = disk or TortureDisk(
            chance, clock=self.clock, capacity_bytes=settings.capacity_bytes
        )
        self.model = model or Model()
        self.sync_flush = settings.log.flush_disk_type != ASYNC
        self.segment_bytes = settings.log.segment_bytes
        self.queue_file_bytes = settings.dispatcher.queue_file_bytes
        self.cache_lies = False
        """Pages were dropped whose write-back had failed: readers may see anything there."""
        self.foreign = False
        """RocketMQ held the store last."""
        self.uncut: set[str] = set()
        """Followers that know a history of the log that was lost where that is allowed, and have
        not asked the log since."""
        self.notes: list[str] | None = None
        self.situations: Counter[str] = Counter()
        """What came up, and how often: see `situations`."""
        self.acknowledged = self.refused = 0

    def note(self, line: str) -> None:
        """For the trace."""
        if self.notes is not None:
            self.notes.append(line)

    def met(self, situation: Situation) -> None:
        self.situations[situation] += 1

    @property
    def starved(self) -> bool:
        """The disk has little room left."""
        return self.disk.capacity_bytes < self.settings.capacity_bytes

    @property
    def sick(self) -> bool:
        """Some file's background write-back has failed, and no flush has reported it yet."""
        return any(inode.pending_error for inode in self.disk.tree.inodes())
