"""The ready messages of shared groups, and the age of the oldest unacknowledged one, as metrics of
the groups with the most. They are counted by queue, from time to time, not per message."""

import asyncio
import logging
from collections import Counter
from heapq import nlargest

from stratamq.errors import StrataError
from stratamq.follow.fold import FoldPlace
from stratamq.follow.own_appends import OwnAppends
from stratamq.follow.queues import QueueCalls
from stratamq_delivery import metrics
from stratamq_delivery.gone_messages import PLACES_AT_ONCE
from stratamq_delivery.known_ends import KnownEnds
from stratamq_delivery.shared_groups import SharedGroups
from stratamq_delivery.shared_queue import MAX_UNFINISHED

INTERVAL_S = 10.0
SHOWN = 20

log = logging.getLogger(__name__)


class Backlogs:
    """Belongs to one event loop."""

    def __init__(
        self,
        groups: SharedGroups,
        ends: KnownEnds,
        followed: FoldPlace,
        appends: OwnAppends,
        queues: QueueCalls,
    ) -> None:
        self._groups = groups
        self._ends = ends
        self._followed = followed
        self._appends = appends
        self._queues = queues
        self._shown: set[str] = set()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            ready: dict[str, int] = {}
            ages_ms: dict[str, int] = {}
            try:
                if self._appends.is_active:
                    ready = await self._count()
                    ages_ms = {group: await self._queues.oldest_ms(group) for group in ready}
            except StrataError as error:
                log.info("backlogs of shared groups wait", extra={"error": str(error)})
            self._show(ready, ages_ms)

    async def _count(self) -> dict[str, int]:
        """The messages of the shown groups that may be handed out."""
        ready, left = Counter[str](), Counter[str]()
        for number, place in enumerate(self._groups.folded_places()):
            if number % PLACES_AT_ONCE == PLACES_AT_ONCE - 1:
                await asyncio.sleep(0)
            if self._ends.of(place.topic) is None:
                await self._ends.ask(place.topic, self._queues, self._followed.applied)
            queue, now_ms = self._groups.folded(place), self._appends.time.now_ms()
            if queue is None or now_ms is None:
                continue
            end = (self._ends.of(place.topic) or {}).get(place.queue_id, 0)
            again = queue.ready(now_ms, MAX_UNFINISHED)
            ready[place.group] += max(0, end - queue.next)
            ready[place.group] += sum([last - first for (first, last), _ in again])
            left[place.group] += max(0, end - queue.next) + queue.unfinished
        shown = nlargest(SHOWN, left, key=left.__getitem__)
        return {group: ready[group] for group in shown}

    def _show(self, ready: dict[str, int], ages_ms: dict[str, int]) -> None:
        for group in self._shown - ready.keys():
            metrics.READY.remove(group)
            metrics.OLDEST.remove(group)
        self._shown = {*ready}
        for group, count in ready.items():
            metrics.READY.labels(group).set(count)
            metrics.OLDEST.labels(group).set(ages_ms.get(group, 0) / 1000)
