"""Messages of the log, sorted by queue until there are enough of them for a commit.

The log is read once, in its order; what belongs to a queue waits here, in memory. A batch is due
when it has as many bytes or messages as a batch has, when its first message has waited long enough,
or, the largest first, when all that wait take more than the budget.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from stratamq.formats.dispatch import DispatchColumns
from stratamq.formats.queue_units import decode_units, unit_runs
from stratamq.formats.tier_progress import is_own_name
from stratamq.formats.topics import is_system_topic
from stratamq.tier.driver.calls import is_name
from stratamq.tier.writing.batch import I64, TierBatch

QueueKey = tuple[str, int]

MAX_UNNAMABLE = 100
_OURS_ALONE = ("rmq_sys_REVIVE_LOG_", "%LMQ%")
_MESSAGE_BYTES, _RUN_BYTES, _QUEUE_BYTES = 40, 600, 1_000
"""What a message takes in memory beside its record, a run of them, and a queue with some."""


@dataclass(frozen=True, slots=True)
class IntakeLimits:
    """RocketMQ's `tieredStoreGroupCommit…`, and a bound on all queues together."""

    batch_bytes: int = 4 << 20
    batch_messages: int = 4096
    wait_ms: int = 30_000
    budget_bytes: int = 256 << 20


def goes_into_tier(topic: str) -> bool:
    """Not the broker's own; retry and dead letter topics do. Spec tier 5.4."""
    return bool(topic) and not is_system_topic(topic) and not topic.startswith(_OURS_ALONE)


@dataclass(frozen=True, slots=True)
class Due:
    """A batch to commit. `place`: log offset of its first message."""

    key: QueueKey
    batch: TierBatch
    place: int
    goes_back: bool = False
    """Its queue offsets were given before, to other messages: the queue was restarted."""
    memory_bytes: int = 0
    """About what it takes while it waits."""


@dataclass(frozen=True, slots=True)
class QueueRun:
    """Messages of a queue one behind the other, from queue offset `first` on; `places` are log
    offsets."""

    key: QueueKey
    first: int
    places: I64
    sizes: I64
    tags_codes: I64
    times: I64

    def __len__(self) -> int:
        return len(self.places)


@dataclass(slots=True)
class _Waiting:
    """Waiting messages of one queue: consecutive runs, each of which begins where the one before
    ends."""

    since_ms: int
    first: int
    place: int
    goes_back: bool
    size: int = 0
    count: int = 0
    memory_bytes: int = 0
    records: list[bytes] = field(default_factory=list)
    sizes: list[I64] = field(default_factory=list)
    tags_codes: list[I64] = field(default_factory=list)
    times: list[I64] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.first + self.count

    def batch(self) -> TierBatch:
        return TierBatch(
            self.first,
            b"".join(self.records),
            np.concatenate(self.sizes),
            np.concatenate(self.tags_codes),
            np.concatenate(self.times),
        )


class Intake:
    """`wanted`: which topics go into the tier; `floor`: of a queue, the offset below which messages
    were purged; `begins`: log offsets below which a queue's messages are of an earlier life."""

    def __init__(
        self,
        limits: IntakeLimits,
        wanted: Callable[[str], bool] = goes_into_tier,
        floor: Callable[[QueueKey], int] = lambda key: 0,
        begins: Mapping[QueueKey, int] | None = None,
    ) -> None:
        self.unnamable: set[str] = set()
        """Topics, some of them, that are left out because a path cannot have their names."""
        self._limits = limits
        self._wanted = wanted
        self._floor = floor
        self._begins = begins or {}
        self._waiting: dict[QueueKey, _Waiting] = {}
        """In the order in which they began to wait."""
        self._places = PendingPlaces()
        self._full: list[Due] = []
        self._ends: dict[QueueKey, int] = {}
        self._open_bytes = 0
        self.bytes = self.messages = 0
        """Memory of what waits, and how many messages."""

    def add(
        self, data: bytes | memoryview, base: int, columns: DispatchColumns, now_ms: int
    ) -> None:
        """Frames of the log: `data` begins at log offset `base`, `columns` are of them."""
        view = memoryview(data)
        for run in unit_runs(columns):
            if not self.takes(run.topic):
                continue
            units = decode_units(run.units)
            starts = units["physical_offset"].astype(np.int64)
            times = columns.store_timestamp_ms[np.searchsorted(columns.physical_offset, starts)]
            found = QueueRun(
                (run.topic, run.queue_id),
                run.first_queue_offset,
                starts,
                units["size"].astype(np.int64),
                units["tags_code"].astype(np.int64),
                times.astype(np.int64),
            )
            self.add_run(found, view, starts - base, now_ms)

    def takes(self, topic: str) -> bool:
        """Whether its messages go into the tier; `unnamable` has those that only cannot."""
        return self._wanted(topic) and self._is_namable(topic)

    def add_run(self, run: QueueRun, records: memoryview, starts: I64, now_ms: int) -> None:
        """Messages of a topic that it `takes`; `starts`: of their records, in `records`."""
        low = max(
            min(len(run), self._floor(run.key) - run.first),
            int(np.searchsorted(run.places, self._begins.get(run.key, 0))),
            0,
        )
        while low < len(run):
            first, place = run.first + low, int(run.places[low])
            high = self._take(run.key, first, place, run.sizes[low:], now_ms) + low
            waiting = self._waiting[run.key]
            rows = zip(starts[low:high].tolist(), run.sizes[low:high].tolist(), strict=True)
            waiting.records.append(b"".join([records[at : at + size] for at, size in rows]))
            waiting.sizes.append(run.sizes[low:high])
            waiting.tags_codes.append(run.tags_codes[low:high])
            waiting.times.append(run.times[low:high])
            low = high

    def _is_namable(self, topic: str) -> bool:
        namable = is_name(topic) and not is_own_name(topic)
        if not namable and len(self.unnamable) < MAX_UNNAMABLE:
            self.unnamable.add(topic)
        return namable

    @property
    def oldest_place(self) -> int | None:
        """A log offset below which nothing waits here; None: nothing waits."""
        return self._places.lowest

    @property
    def oldest_ms(self) -> int | None:
        """When the message that waits longest came; None: none waits."""
        return next((waiting.since_ms for waiting in self._waiting.values()), None)

    def due(self, now_ms: int, *, everything: bool = False) -> Iterator[Due]:
        """Batches to commit, those of one queue in their order; they wait here no more."""
        old: list[QueueKey] = []
        for key, waiting in self._waiting.items():
            if not everything and now_ms - waiting.since_ms < self._limits.wait_ms:
                break
            old.append(key)
        for key in old:
            self._close(key)
        if self.bytes > self._limits.budget_bytes:
            for key, _ in sorted(self._waiting.items(), key=lambda one: -one[1].size):
                self._close(key)
                if self._open_bytes <= self._limits.budget_bytes // 2:
                    break
        full, self._full = self._full, []
        for due in full:
            self.bytes -= due.memory_bytes
            self.messages -= len(due.batch.sizes)
            self._places.remove(due.place)
            yield due

    def _take(self, key: QueueKey, first: int, place: int, sizes: I64, now_ms: int) -> int:
        """How many messages from queue offset `first` on the waiting batch of a queue takes, at
        least one; they are counted."""
        waiting = self._waiting.get(key)
        if waiting is not None and (first != waiting.end or self._is_full(waiting, int(sizes[0]))):
            self._close(key)
            waiting = None
        if waiting is None:
            goes_back = first < self._ends.get(key, 0)
            waiting = self._waiting[key] = _Waiting(now_ms, first, place, goes_back)
            self._places.put(place)
            self._count(waiting, _QUEUE_BYTES, 0)
        room = self._limits.batch_bytes - waiting.size
        fitting = int(np.searchsorted(np.cumsum(sizes), room, "right"))
        count = max(1, min(fitting, self._limits.batch_messages - waiting.count))
        taken = int(sizes[:count].sum())
        waiting.count += count
        waiting.size += taken
        self._ends[key] = first + count
        self._count(waiting, taken + _RUN_BYTES + count * _MESSAGE_BYTES, count)
        return count

    def _is_full(self, waiting: _Waiting, size: int) -> bool:
        return (
            waiting.count >= self._limits.batch_messages
            or waiting.size + size > self._limits.batch_bytes
        )

    def _close(self, key: QueueKey) -> None:
        waiting = self._waiting.pop(key)
        self._open_bytes -= waiting.memory_bytes
        self._full.append(
            Due(key, waiting.batch(), waiting.place, waiting.goes_back, waiting.memory_bytes)
        )

    def _count(self, waiting: _Waiting, memory_bytes: int, messages: int) -> None:
        waiting.memory_bytes += memory_bytes
        self.bytes += memory_bytes
        self._open_bytes += memory_bytes
        self.messages += messages


class PendingPlaces:
    """Where in the log what waits begins: the lowest place, whatever order it comes and goes in.

    Log offsets. Each one that is put is removed once; no two of them are equal.
    """

    def __init__(self) -> None:
        self._put: list[int] = []
        self._removed: list[int] = []
        """Two heaps: those that came, and those of them that went."""

    def put(self, place: int) -> None:
        heapq.heappush(self._put, place)

    def remove(self, place: int) -> None:
        heapq.heappush(self._removed, place)
        while self._removed and self._removed[0] == self._put[0]:
            heapq.heappop(self._removed)
            heapq.heappop(self._put)

    @property
    def lowest(self) -> int | None:
        """None: there is none."""
        return self._put[0] if self._put else None
