"""What the parts of a simulated broker share: its settings, everything small, so that everything
happens often; chance, time, the disk, the model; and what came up.

Situations are counted, so that none can vanish unnoticed: a change of the engines, of the disk or
of the weights could make one unreachable, and every seed would still pass.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from stratamq_commitlog.config import CommitLogConfig
from stratamq_dispatcher.engine import EngineSettings as DispatcherSettings
from stratamq_index.engine import EngineSettings as IndexSettings

from stratamq.files.simulated import SimulatedClock
from stratamq.files.simulated_inode import Inode
from stratamq_torture.simulated.disk import PLENTY, TortureDisk
from stratamq_torture.simulated.model import Model
from stratamq_torture.trial import Counts

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


SYNC, ASYNC = "SYNC_FLUSH", "ASYNC_FLUSH"


SEGMENT_SIZES = (2048, 4096, 6000, 8192, 20_000)
"""None of them much larger than a page, and some no multiple of one."""


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What the three rooms and their disk get."""

    log: CommitLogConfig
    dispatcher: DispatcherSettings
    index: IndexSettings
    capacity_bytes: int = PLENTY


def standard(
    *,
    flush: str = SYNC,
    segment_bytes: int = 4096,
    property_checksum: bool = False,
    **log: object,
) -> BrokerSettings:
    """One broker of middling sizes."""
    values: dict[str, object] = {
        "root": Path("simulated"),
        "segment_bytes": segment_bytes,
        "flush_disk_type": flush,
        "property_checksum": property_checksum,
        "flush_interval_ms": 500,
        "snapshot_interval_ms": 2000,
        "max_message_bytes": 1500,
        "max_batch_bytes": 1900,
        "pass_bytes": 4096,
        "pass_messages": 16,
        "default_topic_queues": 2,
        "reserve_bytes": 4096,
        "follower_stop_timeout_ms": 20_000,
        "release_timeout_ms": 5_000,
    }
    return BrokerSettings(
        log=CommitLogConfig(**(values | log)),  # type: ignore[arg-type]
        dispatcher=DispatcherSettings(
            queue_file_bytes=160,
            flush_interval_ms=1000,
            flush_bytes=4000,
            flush_window_bytes=80,
            max_open_files=8,
            step_messages=4,
        ),
        index=IndexSettings(index_slots=7, index_items=12, max_open_files=4),
    )


def chosen(chance: random.Random, flush: Sequence[str], checksum: float) -> BrokerSettings:
    """A broker of a seed's choice; `checksum` is how likely it writes property checksums."""
    settings = standard(
        flush=chance.choice(flush),
        segment_bytes=chance.choice(SEGMENT_SIZES),
        property_checksum=chance.random() < checksum,
        flush_interval_ms=chance.choice((50, 500, 5_000)),
        snapshot_interval_ms=chance.choice((100, 2_000, 20_000)),
        pass_messages=chance.choice((1, 4, 64)),
    )
    return replace(
        settings,
        dispatcher=replace(
            settings.dispatcher,
            queue_file_bytes=chance.choice((60, 160, 2000)),
            flush_interval_ms=chance.choice((100, 1_000)),
            flush_window_bytes=chance.choice((20, 80, 4000)),
            step_messages=chance.choice((1, 4, 64)),
        ),
        index=replace(
            settings.index,
            index_slots=chance.choice((3, 7)),
            index_items=chance.choice((4, 12, 60)),
            sync_interval_ms=chance.choice((100, 1_000)),
            slot_interval_ms=chance.choice((100, 5_000)),
        ),
    )


KINDS = ("one", "many", "together", "batch", "delayed", "half", "raw", "unwaited")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Body bytes to choose from; `odd` of ten bodies have another size."""

    bodies: Sequence[int] = (40, 40, 200)
    odd: int = 1
    largest: int = 700
    long_properties: int = 0
    """This many messages of ten have properties of more than a sector."""
    alike: bool = False
    """All have the same properties but for their values: frames of one kind and body are equally
    long, so that those of a lost history begin where later ones end."""


EVERYTHING: dict[str, int] = {
    "send": 60,
    "run": 70,
    "tick": 6,
    "pull": 12,
    "ask": 6,
    "rest": 1,
    "start": 30,
    "start_crash": 4,
    "stop": 2,
    "kill": 4,
    "kill_all": 2,
    "power_loss": 4,
    "crash_point": 6,
    "disconnect": 2,
    "delete": 12,
    "flush_fails": 2,
    "call_fails": 1,
    "write_back": 2,
    "write_back_fails": 1,
    "evict": 4,
    "overgrow": 2,
    "starve": 1,
    "feed": 3,
    "clock_jumps": 1,
    "rocketmq": 3,
}
"""Weights. An operation that makes no sense at a moment is not offered."""


@dataclass(frozen=True)
class Profile:
    """`weights` replace those of EVERYTHING that they name; `only` leaves all others out."""

    weights: Mapping[str, int] = field(default_factory=dict)
    only: bool = False
    flush: Sequence[str] = (SYNC, SYNC, ASYNC)
    checksum: float = 0.3
    kinds: Sequence[str] = KINDS
    sizes: Sizes | None = None
    settings: BrokerSettings | None = None
    steps: Sequence[int] = (2, 8, 30, 80)
    """How many steps one `run` may have."""
    crash_points: Sequence[tuple[str, str]] = ()
    """Patterns of calls at which crash points are put; none: anywhere."""
    audits: bool = True
    power: float = 0.4
    """How likely a crash point is a power loss."""

    def all_weights(self) -> dict[str, int]:
        base = {} if self.only else EVERYTHING
        return {**base, **self.weights}

    def choose_settings(self, chance: random.Random) -> BrokerSettings:
        if self.settings is not None:
            return self.settings
        return chosen(chance, self.flush, self.checksum)

    def choose_sizes(self, chance: random.Random) -> Sizes:
        if self.sizes is not None:
            return self.sizes
        return chance.choice(
            (
                Sizes(),
                Sizes(bodies=(40,), odd=0, alike=True),
                Sizes(bodies=(40, 200), odd=0, alike=True),
                Sizes(bodies=(0, 100, 500), odd=3, long_properties=2),
            )
        )


DEFAULT = Profile()


class Shared(Counts):
    """`chance` decides every order and every loss. `notes`: for the trace; None: not wanted."""

    def __init__(self, chance: random.Random, notes: list[str] | None) -> None:
        super().__init__()
        self.chance = chance
        self.clock = SimulatedClock()
        self._notes = notes

    def note(self, line: str) -> None:
        if self._notes is not None:
            self._notes.append(line)

    def met(self, situation: str) -> None:
        self.situations[situation] += 1


class World(Shared):
    """`chance` is set again before each operation."""

    def __init__(
        self,
        settings: BrokerSettings,
        chance: random.Random,
        notes: list[str] | None,
    ) -> None:
        super().__init__(chance, notes)
        self.settings = settings
        self.disk = TortureDisk(chance, clock=self.clock, capacity_bytes=settings.capacity_bytes)
        self.model = Model()
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
        self.refused = 0

    @property
    def starved(self) -> bool:
        """The disk has little room left."""
        return self.disk.capacity_bytes < self.settings.capacity_bytes

    @property
    def sick(self) -> bool:
        """Some file's background write-back has failed, and no flush has reported it yet."""
        return any(inode.pending_error for inode in self.disk.tree.inodes())


class PowerLoss:
    """What is seen before and after the power fails."""

    def __init__(self, disk: TortureDisk) -> None:
        self._disk = disk
        self._segments = set(disk.segments())
        self._generations = _contents(disk)

    def changed(self) -> Iterator[Situation]:
        """What is gone, and what is back."""
        now = set(self._disk.segments())
        if self._segments - now:
            yield Situation.LOST_SEGMENT
        if self._segments and min(now, default=0) < min(self._segments):
            yield Situation.BACK_SEGMENT
        if _contents(self._disk) != self._generations:
            yield Situation.LOST_GENERATIONS


def _contents(disk: TortureDisk) -> bytes:
    node = disk.tree.find(GENERATIONS)
    return bytes(node.cache) if isinstance(node, Inode) else b""
