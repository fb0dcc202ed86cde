"""Messages of shared groups that failed too often, on their way to the dead letters."""

import asyncio
import logging
from collections.abc import Callable
from heapq import heappop, heappush

from stratamq.errors import StrataError
from stratamq.follow.own_appends import OwnAppends
from stratamq_delivery.entries import Buried, Completed
from stratamq_delivery.reading import MessageReader, ReadMessages
from stratamq_delivery.records import GroupPlace
from stratamq_delivery.shared_groups import SharedGroups
from stratamq_delivery.shared_queue import MAX_UNFINISHED

LOOK_S = 0.5
RETRY_MS = 1_000

log = logging.getLogger(__name__)


class Burials:
    """Belongs to one event loop."""

    def __init__(
        self,
        groups: SharedGroups,
        appends: OwnAppends,
        reader: MessageReader,
        busy: set[GroupPlace],
        moved: Callable[[], None],
        attempts: int,
    ) -> None:
        """`busy`: queues of which a hand-out or a burial is being read."""
        self._attempts = attempts
        self._groups = groups
        self._appends = appends
        self._reader = reader
        self._busy = busy
        self._moved = moved
        self._last_attempts: list[tuple[int, GroupPlace]] = []
        """A heap: when something may have to be buried, and where."""
        self._leased: set[GroupPlace] = set()
        """Queues that the heap has for the end of a lease."""
        self._is_known = False
        """Whether the heap has what was handed out before."""

    def attempts(self, group: str) -> int:
        """How often a message is handed out before it is buried."""
        return self._groups.settings.in_force(group).attempts or self._attempts

    def look_again(self) -> None:
        """Another number of attempts may count."""
        self._is_known = False

    async def run(self) -> None:
        """What failed too often goes to the dead letters when its time is over, whether a worker
        asks or not."""
        while True:
            await asyncio.sleep(LOOK_S)
            active = self._appends.is_active
            if active and not self._is_known:
                self._is_known = True
                await self._find_last_attempts()
                active = self._appends.is_active
            self._is_known = self._is_known and active
            while active and self._last_attempts and self._last_attempts[0][0] <= self._time_ms():
                _, place = heappop(self._last_attempts)
                self._leased.discard(place)
                try:
                    await self._bury_ready(place)
                except StrataError as error:
                    log.info("dead letters wait", extra={"error": str(error)})
                    heappush(self._last_attempts, (self._time_ms() + RETRY_MS, place))
                active = self._appends.is_active

    async def _bury_ready(self, place: GroupPlace) -> None:
        queue = self._groups.queue(place)
        if queue is None:
            return
        self._groups.leases.begin(self._groups.epoch, self._time_ms())
        if place in self._busy:
            heappush(self._last_attempts, (self._time_ms() + RETRY_MS, place))
            return
        self._busy.add(place)
        epoch = self._groups.epoch
        try:
            for run, hold in queue.ready(self._time_ms(), MAX_UNFINISHED):
                if hold.attempt < self.attempts(place.group):
                    continue
                async for read in self._reader.again(place, run, hold.attempt + 1, hold.token):
                    queue = self._groups.queue(place)
                    if queue is None or self._groups.epoch != epoch:
                        return
                    self.bury(place, read.still_free(queue, self._time_ms()))
            self._expect_leased(place)
            self._moved()
        finally:
            self._busy.discard(place)

    def _expect_leased(self, place: GroupPlace) -> None:
        """A lease hides messages whose time was over: look for its end, once for the queue."""
        queue = self._groups.queue(place)
        attempts, now_ms = self.attempts(place.group), self._time_ms()
        times = [
            until_ms
            for hold in (queue.holds if queue is not None and place not in self._leased else ())
            if hold.leased
            and hold.attempt >= attempts
            and hold.until_ms <= now_ms < (until_ms := queue.until_ms(hold))
        ]
        if times:
            self._leased.add(place)
            heappush(self._last_attempts, (min(times), place))

    def bury(self, place: GroupPlace, read: ReadMessages) -> None:
        if read.gone[0] < read.gone[1]:
            self._groups.decide(place, Completed((read.gone,), read.token))
        for message in read.messages:
            runs = ((message.queue_offset, message.queue_offset + 1),)
            source, size = message.physical_offset, len(message.raw)
            self._groups.decide(place, Buried(runs, read.token, read.attempt - 1, source, size))

    def expect(self, place: GroupPlace, attempt: int, until_ms: int) -> None:
        if attempt >= self.attempts(place.group):
            heappush(self._last_attempts, (until_ms, place))

    async def _find_last_attempts(self) -> None:
        self._last_attempts.clear()
        self._leased.clear()
        for number, place in enumerate(self._groups.folded_places()):
            queue = self._groups.queue(place)
            for hold in queue.holds if queue is not None else ():
                self.expect(place, hold.attempt, hold.until_ms)
            if number % 64 == 63:
                await asyncio.sleep(0)

    def _time_ms(self) -> int:
        return self._appends.time.now_ms() or 0
