"""Which topics have the most bytes in the log: an estimate from memory, whatever their number.

A queue knows how many messages it has, and the sizes of its newest ones (`ConsumeQueue.sample`):
their mean counts for all. Nothing is read. With 400 000 queues it takes two seconds of a processor,
in slices of half a millisecond, and is not made again for a hundred times as long. Who asks then
waits for PATIENCE_S, and gets the one before it if that was not enough: only the first is waited
for to its end. It is made for all, and goes on when one of them leaves.
"""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from stratamq.errors import InvalidRequestError
from stratamq.files.port import Clock
from stratamq.formats.light_queues import LIGHT_QUEUE_PREFIX
from stratamq_dispatcher.consume_queue import ConsumeQueue
from stratamq_dispatcher.queue_table import QueueTable

MAX_TOPICS = 500
USUAL_TOPICS = 20
QUEUES_AT_ONCE = 100
TOPICS_AT_ONCE = 1_000
SHARE = 100
"""An estimate is kept for so many times as long as it took: at most a hundredth of a core."""
SHORTEST_NS = 2_000_000_000
PATIENCE_S = 0.05


@dataclass(slots=True)
class TopicTotal:
    """What is estimated of one topic, or of several."""

    name: str
    size: int = 0
    messages: int = 0
    queues: int = 0

    def add(self, size: int, messages: int, queues: int) -> None:
        self.size += size
        self.messages += messages
        self.queues += queues


@dataclass(frozen=True, slots=True)
class Estimate:
    """`largest`: MAX_TOPICS of them, the largest first; `whole` is of all topics."""

    at_ms: int
    largest: list[TopicTotal]
    whole: TopicTotal
    topics: int
    sampled: int
    files: int
    units: int

    def top(self, wanted: int) -> tuple[list[TopicTotal], TopicTotal]:
        """The largest, and all others together. InvalidRequestError for a negative number."""
        if wanted < 0:
            raise InvalidRequestError("the number of topics is not negative")
        first = self.largest[: wanted or USUAL_TOPICS]
        others = TopicTotal("", self.whole.size, self.whole.messages, self.whole.queues)
        for one in first:
            others.add(-one.size, -one.messages, -one.queues)
        return first, others


class TopicSizes:
    """Belongs to the event loop."""

    def __init__(
        self, queues: Callable[[], QueueTable], minimum_offset: Callable[[], int], clock: Clock
    ) -> None:
        self._queues = queues
        self._minimum_offset = minimum_offset
        self._clock = clock
        self._making: asyncio.Task[None] | None = None
        self._made: Estimate | None = None
        self._good_until_ns = 0

    async def estimate(self) -> Estimate:
        """A new one, or the newest one while a new one takes long."""
        making = self._making
        if making is None and self._clock.monotonic_ns() >= self._good_until_ns:
            making = self._making = asyncio.ensure_future(self._renew())
        if making is not None:
            await asyncio.wait({making}, timeout=PATIENCE_S if self._made else None)
            if making.done():
                self._making = None
                making.result()
        assert self._made is not None
        return self._made

    async def _renew(self) -> None:
        began_ns = self._clock.monotonic_ns()
        self._made = await self._make()
        ended_ns = self._clock.monotonic_ns()
        self._good_until_ns = ended_ns + max(SHORTEST_NS, SHARE * (ended_ns - began_ns))

    async def _make(self) -> Estimate:
        table = self._queues()
        topics: dict[str, TopicTotal] = {}
        unsampled: list[tuple[str, int]] = []
        whole = TopicTotal("")
        count = size = files = units = place = 0
        while True:
            found, place = table.page("", place, QUEUES_AT_ONCE, QUEUES_AT_ONCE)
            minimum = self._minimum_offset()
            for queue in found:
                files += _files(queue)
                units += queue.end - queue.first_unit
                if queue.topic.startswith(LIGHT_QUEUE_PREFIX):
                    continue  # its messages are those of other topics
                sample = queue.sample(minimum)
                topic = topics.get(queue.topic) or topics.setdefault(
                    queue.topic, TopicTotal(queue.topic)
                )
                topic.add(0, sample.messages, 1)
                if sample.count:
                    topic.size += sample.messages * sample.size // sample.count
                    count, size = count + sample.count, size + sample.size
                elif sample.messages:
                    unsampled.append((queue.topic, sample.messages))
            if not place:
                break
            await asyncio.sleep(0)
        for name, messages in unsampled:
            topics[name].size += messages * size // max(count, 1)
        largest: list[TopicTotal] = []
        rest = iter(topics.values())
        while some := list(itertools.islice(rest, TOPICS_AT_ONCE)):
            for one in some:
                whole.add(one.size, one.messages, one.queues)
            largest = heapq.nlargest(MAX_TOPICS, largest + some, key=lambda one: one.size)
            await asyncio.sleep(0)
        at_ms = self._clock.wall_ms()
        return Estimate(at_ms, largest, whole, len(topics), count, files, units)


def _files(queue: ConsumeQueue) -> int:
    """So many files hold its units."""
    if queue.end == queue.first_unit:
        return 0
    return (queue.end - 1 - queue.first_unit) // queue.geometry.units_per_file + 1
