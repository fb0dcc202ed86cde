"""Publishes floors of shared groups as the groups' ordinary offsets, so that lag, retention and
RocketMQ's tools are right. Only what the log has is published, never what is only decided.

A dispatcher that starts knows no shared group: this service names all of them again. A delivery
service that starts, or takes over, asks which groups the dispatcher believes to be shared. It may
not know one of them: then its predecessor recorded the end of sharing, and was killed before it
told the dispatcher.
"""

import asyncio
import logging

from stratamq.errors import StrataError
from stratamq.follow.own_appends import OwnAppends
from stratamq.follow.queues import QueueCalls
from stratamq_delivery.records import GroupPlace
from stratamq_delivery.shared_groups import SharedGroups

INTERVAL_S = 1.0

log = logging.getLogger(__name__)


class Floors:
    """Belongs to one event loop."""

    def __init__(self, groups: SharedGroups, appends: OwnAppends, queues: QueueCalls) -> None:
        self._groups = groups
        self._appends = appends
        self._queues = queues
        self._published: dict[GroupPlace, int] = {}
        self._told = 0
        """The start of the dispatcher that knows what is published."""
        self._behind: set[GroupPlace] = set()
        self._perhaps_left: set[str] | None = None
        """Groups that the dispatcher shares and the state does not have; None: to be asked for."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            self._behind |= self._groups.take_changed()
            if not self._appends.is_active:
                self._told, self._perhaps_left = 0, None
                continue
            try:
                await self._publish()
                await self._let_go()
            except StrataError as error:
                log.info("floors of shared groups wait", extra={"error": str(error)})

    async def _let_go(self) -> None:
        """Groups that the state does not have may be read with their offsets. One that has just
        been shared is not in the state yet, and is there at the next look."""
        if self._perhaps_left is not None and not self._perhaps_left:
            return
        before = self._perhaps_left
        left = await self._queues.shared_groups() - {one.group for one in self._groups.places()}
        for group in left & (before or set()):
            await self._queues.share(group, (), shared=False)
        self._perhaps_left = left

    async def _publish(self) -> None:
        if not self._behind and not self._published:
            return
        told = await self._queues.incarnation()
        if told != self._told:
            self._published, self._told = {}, told
            self._behind |= self._groups.folded_places()
        by_group: dict[str, list[GroupPlace]] = {}
        for place in self._behind:
            by_group.setdefault(place.group, []).append(place)
        for group, places in by_group.items():
            floors = {
                place: queue.floor
                for place in places
                if (queue := self._groups.folded(place)) is not None
                and self._published.get(place) != queue.floor
            }
            if floors:
                await self._queues.share(
                    group,
                    [(place.topic, place.queue_id, floor) for place, floor in floors.items()],
                )
            self._published.update(floors)
            self._behind.difference_update(places)
