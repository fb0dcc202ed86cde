"""Messages that no group receives any more, because they were purged, or deleted with their topic.

The log's table of topics has the offset from which each queue is visible. A topic that is created
again continues behind the offsets of the deleted one, so that the offset shows to which of the two
a message belongs. A receipt below that offset is for a message that is gone, never for a new one,
and a group's messages below it are finished. Groups keep nothing of a deleted topic.

The service learns of a change about a second later. Its decisions are records like all others, so
that the state remains a function of the log.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from stratamq.errors import StrataError
from stratamq.follow.followed_topics import FollowedTopics
from stratamq.follow.own_appends import OwnAppends
from stratamq.follow.queues import QueueCalls
from stratamq_delivery.entries import Started, Stopped
from stratamq_delivery.records import GroupPlace
from stratamq_delivery.shared_groups import SharedGroups

INTERVAL_S = 0.5
PLACES_AT_ONCE = 4_096
"""So many queues are looked at before others get their turn."""

log = logging.getLogger(__name__)


class GoneMessages:
    """Belongs to one event loop."""

    def __init__(
        self,
        groups: SharedGroups,
        appends: OwnAppends,
        queues: QueueCalls,
        moved: Callable[[], None],
    ) -> None:
        """`moved`: something was decided."""
        self.topics = FollowedTopics(self._hide)
        self._groups = groups
        self._appends = appends
        self._queues = queues
        self._moved = moved
        self._minimums: dict[str, Mapping[int, int]] = {}
        self._changed: set[str] = set()
        """Topics of which something was hidden since the groups' queues were looked at."""
        self._epoch = groups.epoch
        self._left: set[str] = set()
        """Groups that had a queue of a topic that is deleted."""

    def minimum(self, topic: str, queue_id: int) -> int:
        """Messages below this offset are gone."""
        return self._minimums.get(topic, {}).get(queue_id, 0)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            if self._epoch != self._groups.epoch:
                # What was decided may not be in the log.
                self._epoch, self._changed = self._groups.epoch, {*self._minimums}
            if not self._appends.is_active:
                continue
            await self._look()
            try:
                await self.leave()
            except StrataError as error:
                log.info("groups of deleted topics stay shared", extra={"error": str(error)})

    def _hide(self, topic: str, minimums: Mapping[int, int]) -> None:
        if minimums or topic in self._minimums or self.topics.is_deleted(topic):
            self._minimums[topic] = minimums
            self._changed.add(topic)

    async def _look(self) -> None:
        changed, self._changed = self._changed, set()
        for number, place in enumerate(self._groups.places() if changed else ()):
            if place.topic in changed:
                self.look_at(place)
            if number % PLACES_AT_ONCE == PLACES_AT_ONCE - 1:
                await asyncio.sleep(0)
                if self._epoch != self._groups.epoch:
                    return
        if changed:
            self._moved()

    def look_at(self, place: GroupPlace) -> None:
        """Decide that what is gone of a group's queue is finished, or that the group has no more of
        a queue whose topic is deleted."""
        queue = self._groups.queue(place)
        minimum = self.minimum(place.topic, place.queue_id)
        if queue is None:
            return
        # Example: the topic was made again, and the table of topics is a moment old. A message of
        # the new one that was acknowledged is beyond the minimum, and must not come back.
        if self.topics.is_deleted(place.topic) and queue.next <= minimum:
            self._groups.decide(place, Stopped())
            self._left.add(place.group)
        elif queue.floor < minimum:
            gone = ((queue.floor, minimum),)
            self._groups.decide(place, Started(minimum))
            # A message behind them may have waited for one of them.
            self._groups.orders.finished(place, gone, self._groups.queue(place))

    async def leave(self) -> None:
        """A group that has no queue left may be pulled."""
        if not self._left:
            return
        places, groups = self._groups.places(), self._groups
        kept = {place.group for place in places if groups.queue(place) is not None}
        # Not before the log has it: a group that is pulled and shared would be read twice.
        folded = {place.group for place in places if groups.folded(place) is not None}
        for group in self._left - kept - folded:
            await self._queues.share(group, (), shared=False)
            self._left.discard(group)
        self._left -= kept
