"""What was read from the tier and will be asked for next: bounded in bytes and in time."""

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from dataclasses import dataclass

from stratamq.files.port import Clock
from stratamq.formats.tier_manifest import Epoch
from stratamq.tier.reading.records import TierMessage
from stratamq_tier.status import CacheStatus

CacheKey = tuple[str, int, Epoch]
"""A queue, and the writer of its manifest: of another history nothing is found."""
_MESSAGE_BYTES = 200
"""What a message takes in memory beside its record."""
_OVERLAPPING = 4
"""Of the chunks that begin before an offset so many are looked at: they seldom overlap."""
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
    messages: tuple[TierMessage, ...]

    @property
    def memory_bytes(self) -> int:
        """Of the buffer, and beside it."""
        buffers = {id(one.record.obj): one.record.obj for one in self.messages}
        records = sum(memoryview(buffer).nbytes for buffer in buffers.values())
        return records + (len(self.messages) + 1) * _MESSAGE_BYTES


class ReadAhead:
    """Belongs to the event loop. `budget_bytes` 0: nothing is kept."""

    def __init__(self, clock: Clock, budget_bytes: int, expiry_ms: int) -> None:
        self._clock = clock
        self._budget_bytes = budget_bytes
        self._expiry_ns = expiry_ms * 1_000_000
        self._chunks: OrderedDict[tuple[CacheKey, int], tuple[Chunk, int, int]] = OrderedDict()
        """By queue and first offset, the one that was used least recently first: with its bytes and
        when it was used last."""
        self._firsts: dict[CacheKey, list[int]] = {}
        """In their order."""
        self._bytes = self._hits = self._misses = 0

    @property
    def status(self) -> CacheStatus:
        return CacheStatus(self._bytes, self._hits, self._misses)

    @property
    def takes_more(self) -> bool:
        return self._bytes < BYPASS_RATIO * self._budget_bytes

    def find(self, key: CacheKey, offset: int) -> Chunk | None:
        """The chunk that has this queue offset. Counted as a hit or a miss."""
        self.expire()
        firsts = self._firsts.get(key, [])
        before = bisect_right(firsts, offset)
        for first in firsts[max(0, before - _OVERLAPPING) : before]:
            chunk, size, _ = self._chunks[key, first]
            if offset < chunk.end:
                self._chunks[key, first] = chunk, size, self._clock.monotonic_ns()
                self._chunks.move_to_end((key, first))
                self._hits += 1
                return chunk
        self._misses += 1
        return None

    def put(self, key: CacheKey, chunk: Chunk) -> None:
        size = chunk.memory_bytes
        if size > self._budget_bytes:
            return
        self._drop((key, chunk.first))
        self._chunks[key, chunk.first] = chunk, size, self._clock.monotonic_ns()
        insort(self._firsts.setdefault(key, []), chunk.first)
        self._bytes += size
        while self._bytes > self._budget_bytes:
            self._drop(next(iter(self._chunks)))

    def expire(self) -> None:
        """Drop what was not used for a while."""
        before_ns = self._clock.monotonic_ns() - self._expiry_ns
        while self._chunks:
            oldest = next(iter(self._chunks))
            if self._chunks[oldest][2] > before_ns:
                return
            self._drop(oldest)

    def _drop(self, name: tuple[CacheKey, int]) -> None:
        found = self._chunks.pop(name, None)
        if found is None:
            return
        key, first = name
        self._bytes -= found[1]
        firsts = self._firsts[key]
        del firsts[bisect_left(firsts, first)]
        if not firsts:
            del self._firsts[key]
