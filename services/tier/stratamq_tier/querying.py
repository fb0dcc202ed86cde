"""Messages of the tier by their keys: from this service's own index while it writes, else from the
manifest as of some seconds ago.
"""

from collections.abc import Callable
from dataclasses import replace

from stratamq.errors import UnavailableError
from stratamq.files.port import Clock
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.containers.queue import TierQueue
from stratamq.tier.driver.calls import AbsentError, Procedure
from stratamq.tier.driver.running import Runner
from stratamq.tier.reading.key_index import (
    KeyIndex,
    KeyIndexAnswer,
    KeyQuestion,
    load_index,
    query,
)
from stratamq.tier.reading.manifests import load_manifest, queue_of
from stratamq_tier.fetching import LOOK_NS, Fetcher
from stratamq_tier.indexing import Indexing
from stratamq_tier.queue_table import TierQueueTable

ATTEMPTS = 3


class KeyQueries:
    """Belongs to the event loop; reads over `runner`. `indexing` gives None while another service
    writes, or nothing indexes."""

    def __init__(
        self,
        runner: Runner,
        cluster: str,
        table: TierQueueTable,
        fetcher: Fetcher,
        clock: Clock,
        broker: Callable[[], str],
        indexing: Callable[[], Indexing | None],
    ) -> None:
        self._runner = runner
        self._cluster = cluster
        self._table = table
        self._fetcher = fetcher
        self._clock = clock
        self._broker = broker
        self._indexing = indexing
        self._loaded: tuple[int, KeyIndex | None] | None = None

    async def ask(self, question: KeyQuestion) -> tuple[KeyIndexAnswer, int]:
        """The answer, and how many queues of the topic are not indexed up to their end.
        UnavailableError when the storage does not answer in time."""
        for _ in range(ATTEMPTS):
            indexing = self._indexing()
            index = indexing.reader() if indexing is not None else await self._stored()
            if indexing is not None:
                behind = indexing.queues_behind(question.topic)
            else:
                behind = self._behind(index, question.topic)
            if index is None:
                return KeyIndexAnswer(()), behind
            try:
                steps = query(index, self._opener(question.topic), question)
                return await self._fetcher.in_time(self._runner.start(steps)), behind
            except AbsentError:
                # A file or a part has left the tier since its manifest was loaded.
                self._loaded = None
        raise UnavailableError("the tier's key index changes faster than it can be read")

    async def _stored(self) -> KeyIndex | None:
        now_ns = self._clock.monotonic_ns()
        if self._loaded is None or now_ns - self._loaded[0] >= LOOK_NS:
            loading = self._runner.start(load_index(self._cluster, self._broker()))
            manifest = await self._fetcher.in_time(loading)
            self._loaded = now_ns, KeyIndex(manifest) if manifest is not None else None
        return self._loaded[1]

    def _behind(self, index: KeyIndex | None, topic: str) -> int:
        """Count the topic's queues that the stored index does not cover to their end."""
        covered = index.manifest.covered if index is not None else {}
        return sum(
            covered.get((topic, one.queue_id), 0) < one.end_offset
            for one in self._table.of_topic(topic)
        )

    def _opener(self, topic: str) -> Callable[[int], Procedure[TierQueue | None]]:
        place = QueuePlace(self._cluster, self._broker(), topic, 0)

        def opened(queue_id: int) -> Procedure[TierQueue | None]:
            known = self._fetcher.known(topic, queue_id)
            if known is not None:
                return known.queue
            there = replace(place, queue_id=queue_id)
            manifest = yield from load_manifest(there)
            if manifest is None or not manifest.records:
                return None
            return (yield from queue_of(there, manifest)).queue

        return opened
