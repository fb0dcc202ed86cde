"""Commits the offsets below which all half messages are decided, for the group of RocketMQ's
checks: a RocketMQ broker that takes the directory over begins there, and not at the log's first
half.

Only what the log has flushed is committed: a power loss may remove an op message together with the
copy that it confirms. An offset goes back only when the log was cut.
"""

import asyncio
import logging

from stratamq.errors import StrataError
from stratamq.follow.fold import FoldPlace
from stratamq.follow.own_appends import OwnAppends
from stratamq.follow.queues import QueueCalls
from stratamq.formats.topics import HALF_TOPIC, OP_HALF_TOPIC
from stratamq_delivery.half_messages import CheckFloor, HalfMessages

GROUP = "CID_RMQ_SYS_TRANS"
INTERVAL_S = 1.0

log = logging.getLogger(__name__)


async def checked_by_rocketmq(queues: QueueCalls) -> int:
    """Up to which half it has looked at all: what it did not close it has appended again."""
    return (await queues.committed(GROUP, HALF_TOPIC)).get(0, 0)


class CheckFloors:
    """Belongs to one event loop."""

    def __init__(
        self, halves: HalfMessages, followed: FoldPlace, appends: OwnAppends, queues: QueueCalls
    ) -> None:
        self._halves = halves
        self._followed = followed
        self._appends = appends
        self._queues = queues
        self._passed = 0
        self._published: CheckFloor | None = None
        self._waiting: tuple[int, int, CheckFloor] | None = None
        """Generation and end of the log that a floor was computed from, which is not flushed."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            if not self._appends.is_active:
                self._published = self._waiting = None
                continue
            try:
                await self.publish()
            except StrataError as error:
                log.info("offsets of half messages wait", extra={"error": str(error)})

    async def publish(self) -> None:
        """To be called again and again, on a master."""
        followed = self._followed
        if self._waiting is None:
            floor = self._halves.check_floor(self._passed)
            if floor is not None and floor != self._published:
                self._waiting = followed.generation, followed.applied, floor
        if self._waiting is None or self._waiting[1] > followed.flushed:
            return
        (generation, _, floor), self._waiting = self._waiting, None
        if generation == followed.generation:  # otherwise the log may have been cut
            await self._commit(floor)

    async def _commit(self, floor: CheckFloor) -> None:
        half = await checked_by_rocketmq(self._queues)
        op = (await self._queues.committed(GROUP, OP_HALF_TOPIC)).get(0, 0)
        if half > self._passed:  # RocketMQ's, or what a service before this one has committed
            self._passed = half
            return
        # Where RocketMQ has read op messages that close halves below the floor, it need not again.
        op = floor.op if floor.half < half else max(floor.op, op)
        await self._queues.commit(GROUP, [(HALF_TOPIC, 0, floor.half), (OP_HALF_TOPIC, 0, op)])
        self._published, self._passed = floor, floor.half
