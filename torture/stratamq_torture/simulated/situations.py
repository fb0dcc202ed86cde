"""What a run must have come through to prove anything: counted, so that none can vanish unnoticed.

A change of the engines, of the disk or of the weights could make a situation unreachable, and every
seed would still pass. `EACH` is what the tests demand of a few hundred seeds.
"""

from collections.abc import Iterator
from enum import StrEnum

from stratamq.files.simulated import SimulatedDisk
from stratamq.files.simulated_inode import Inode
from stratamq_torture.simulated import log_reader

GENERATIONS = "stratamq/generations.json"


class Situation(StrEnum):
    TORN_COPY = "a pass was cut off while its bytes were copied into the segment"
    BEFORE_PUBLISH = "a crash came between a pass's copy and its publication"
    STALE_ALIGNED = "a frame ended exactly where one of a lost history had begun"
    LOG_ALONE = "the log was started again under followers that ran on"
    FOLLOWER_ALONE = "a follower was started again under a log that ran on"
    OVERGROWN = "the log was cut, and grew past a follower's place before that came back"
    FOLLOWER_CUT = "a follower dropped what it had applied"
    KILLED_IN_RECOVERY = "the log died inside its recovery, between two syncs"
    POWER_IN_RECOVERY = "the power failed inside the log's recovery, between two syncs"
    FLUSH_FAILED = "a flush of the log failed"
    RESTART_ON_FAILED_PAGES = "the log was started on pages that show what the disk does not have"
    EVICTED_FAILED = "after a failed flush the kernel dropped pages of the log"
    LOST_SEGMENT = "a power loss took an un-synced segment file"
    LOST_GENERATIONS = "a power loss took an un-synced list of generations"
    LOST_TAIL = "a power loss took messages that had not been promised to any producer"
    TORN_PAGE = "a power loss kept some sectors of a page"
    BACK_SEGMENT = "a power loss brought a deleted segment back"
    DISK_FULL = "a segment could not be allocated for lack of space"
    ROCKETMQ_AFTER_LOSS = "RocketMQ's rules opened what a power loss had left"
    ROCKETMQ_RAN = "RocketMQ wrote to the store in between"


EACH = tuple(Situation)


class PowerLoss:
    """What is seen before and after the power fails."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self._segments = set(log_reader.segments(disk))
        self._generations = _contents(disk)

    def changed(self) -> Iterator[Situation]:
        """What is gone, and what is back."""
        now = set(log_reader.segments(self._disk))
        if self._segments - now:
            yield Situation.LOST_SEGMENT
        if self._segments and min(now, default=0) < min(self._segments):
            yield Situation.BACK_SEGMENT
        if _contents(self._disk) != self._generations:
            yield Situation.LOST_GENERATIONS


def _contents(disk: SimulatedDisk) -> bytes:
    node = disk.tree.find(GENERATIONS)
    return bytes(node.cache) if isinstance(node, Inode) else b""
