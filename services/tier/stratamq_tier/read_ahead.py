"""What was read from the tier and will be asked for next: bounded in bytes and in time."""

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from dataclasses import dataclass

from stratamq.files.port import Clock
from stratamq.formats.tier_manifest import Epoch
from stratamq.tier.reading.records import TierRecords
from stratamq_tier.status import CacheStatus

CacheKey = tuple[str, int, Epoch]
"""A queue, and the writer of its manifest: of another history nothing is found."""
_CHUNK_BYTES = 1_000
"""What a chunk takes in memory beside its records and their columns."""
IDLE_NS = 1_000_000_000
"""A chunk that was not read for so long gives way to others: twice as long after each that gave way
before it was read to its end, whose reader may be slow, half as long after each that was not read
again until it expired."""
_OVERLAPPING = 4
"""This many chunks that begin before an offset are searched: they seldom overlap."""
BYPASS_RATIO = 0.8
"""Above this part of the budget only what is asked for is read, and nothing is kept."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """`messages`, `bytes`: of one read ahead; `timeout_ms`: of one fetch."""

    messages: int = 4096
    bytes: int = 16 << 20
    timeout_ms: int = 10_000


@dataclass(frozen=True, slots=True)
class Chunk:
    """Queue offsets [first, end); those without a message have no record in the tier.

    The records are views of one buffer, which is in memory as long as one of them.
    """

    first: int
    end: int
    messages: TierRecords

    @property
    def memory_bytes(self) -> int:
        return self.messages.memory_bytes + _CHUNK_BYTES


@dataclass(slots=True)
class _Kept:
    chunk: Chunk
    size: int
    used_ns: int


Name = tuple[CacheKey, int]
"""A chunk's queue, and its first offset."""


class ReadAhead:
    """Belongs to the event loop. `budget_bytes` 0: nothing is kept.

    Chunks that were read to their end are dropped first, then those that were not used for longest.
    """

    def __init__(self, clock: Clock, budget_bytes: int, expiry_ms: int) -> None:
        self._clock = clock
        self._budget_bytes = budget_bytes
        self._expiry_ns = expiry_ms * 1_000_000
        self._live: OrderedDict[Name, _Kept] = OrderedDict()
        self._spent: OrderedDict[Name, _Kept] = OrderedDict()
        """Both in the order of their last use."""
        self._firsts: dict[CacheKey, list[int]] = {}
        """In their order."""
        self._live_bytes = self._spent_bytes = self._hits = self._misses = 0
        self._give_way_ns = min(IDLE_NS, self._expiry_ns)

    @property
    def status(self) -> CacheStatus:
        return CacheStatus(self._live_bytes + self._spent_bytes, self._hits, self._misses)

    @property
    def takes_more(self) -> bool:
        """Not where readers who are reading now need all of it."""
        if self._live_bytes < BYPASS_RATIO * self._budget_bytes:
            return True
        oldest = next(iter(self._live.values()), None)
        return oldest is not None and self._idle_ns(oldest) > self._give_way_ns

    def has(self, key: CacheKey, offset: int) -> bool:
        """Whether a chunk has this queue offset. Not counted."""
        return self._name_of(key, offset) is not None

    def find(self, key: CacheKey, offset: int) -> Chunk | None:
        """The chunk that has this queue offset. Counted as a hit or a miss."""
        self.expire()
        name = self._name_of(key, offset)
        if name is None:
            self._misses += 1
            return None
        self._hits += 1
        kept = self._take(name)
        kept.used_ns = self._clock.monotonic_ns()
        self._live[name] = kept
        self._live_bytes += kept.size
        return kept.chunk

    def spend(self, key: CacheKey, chunk: Chunk) -> None:
        """It was read to its end."""
        name = key, chunk.first
        known = self._live.get(name)
        if known is not None and known.chunk is chunk:
            self._spent[name] = self._take(name)
            self._spent_bytes += known.size

    def put(self, key: CacheKey, chunk: Chunk) -> None:
        name, size = (key, chunk.first), chunk.memory_bytes
        if size > self._budget_bytes:
            return
        self._drop(name)
        self._live[name] = _Kept(chunk, size, self._clock.monotonic_ns())
        insort(self._firsts.setdefault(key, []), chunk.first)
        self._live_bytes += size
        while self._live_bytes + self._spent_bytes > self._budget_bytes:
            if not self._spent:
                self._give_way_ns = min(2 * self._give_way_ns, self._expiry_ns)
            self._drop(next(iter(self._spent or self._live)))

    def expire(self) -> None:
        """Drop what was not used for a while."""
        for kept in (self._spent, self._live):
            while kept:
                name, oldest = next(iter(kept.items()))
                if self._idle_ns(oldest) < self._expiry_ns:
                    break
                self._drop(name)
                if kept is self._live:
                    self._give_way_ns = max(self._give_way_ns // 2, min(IDLE_NS, self._expiry_ns))

    def _idle_ns(self, kept: _Kept) -> int:
        return self._clock.monotonic_ns() - kept.used_ns

    def _name_of(self, key: CacheKey, offset: int) -> Name | None:
        firsts = self._firsts.get(key, [])
        before = bisect_right(firsts, offset)
        for first in firsts[max(0, before - _OVERLAPPING) : before]:
            name = key, first
            kept = self._live.get(name) or self._spent[name]
            if offset < kept.chunk.end:
                return name
        return None

    def _take(self, name: Name) -> _Kept:
        """Out of the order that it is in."""
        kept = self._live.pop(name, None)
        if kept is not None:
            self._live_bytes -= kept.size
            return kept
        kept = self._spent.pop(name)
        self._spent_bytes -= kept.size
        return kept

    def _drop(self, name: Name) -> None:
        if name not in self._live and name not in self._spent:
            return
        self._take(name)
        key, first = name
        firsts = self._firsts[key]
        del firsts[bisect_left(firsts, first)]
        if not firsts:
            del self._firsts[key]
