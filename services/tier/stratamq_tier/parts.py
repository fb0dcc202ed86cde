"""What writing to a tier takes: the storage, the log, and where they meet."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from stratamq.files.port import Clock, Files
from stratamq.formats.tier_manifest import Epoch
from stratamq.service.worker import ThreadWorker
from stratamq.tier.driver.running import Runner
from stratamq.tier.writing.intake import QueueKey
from stratamq_tier.config import TierConfig
from stratamq_tier.followed_log import FollowedLog
from stratamq_tier.indexing import Indexing
from stratamq_tier.queue_table import TierQueueTable

QueueEnds = Callable[[], Awaitable[tuple[int, dict[QueueKey, int]]]]
"""The log's end, and the next queue offset of each queue there. UnavailableError."""


@dataclass(frozen=True, slots=True)
class Parts:
    """`broker`: the name below which the tier is."""

    config: TierConfig
    broker: str
    files: Files
    clock: Clock
    runner: Runner
    reading: ThreadWorker
    log: FollowedLog
    queue_ends: QueueEnds
    floor: Callable[[QueueKey], int]
    """Messages of a queue below this queue offset were purged."""
    look: Callable[[], Awaitable[None]]
    """Learn what the tier has of every queue now: others may have written since."""
    look_for_new: Callable[[], Awaitable[None]]
    """The same of queues of which no message is known."""
    table: TierQueueTable
    index: Callable[[Epoch], Awaitable[Indexing | None]]
    """The key index of a claim; None: keys are not indexed. FencedError."""
    clock_doubt: Callable[[], Awaitable[str]]
    """Why the log does not believe the wall clock as it is now; "": it does. StrataError."""

    @property
    def monotonic_ms(self) -> int:
        """What waits goes by this: a wall clock that is set back would hold it up."""
        return self.clock.monotonic_ns() // 1_000_000
