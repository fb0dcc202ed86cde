"""How old the oldest message is that a group has yet to read in a queue, for a page of a listing.

The store time is read from the log in the lane of cold reads, LOOKED_UP_AT_ONCE messages at a time,
so that pulls have their turn between, however many pages are asked for at once: who asks takes
turns. Of a page the queues that are furthest behind come first. Once LOOK_UP_MS have passed no more
reads are begun, and the rest of the page is not known: a slow disk, or others who ask, delay a page
by hardly more than that. A listing of all groups costs one read for each queue that is behind, and
the next page is asked for when this one is there.
"""

import asyncio
from collections.abc import Sequence

from stratamq.files.port import Clock
from stratamq_dispatcher.group_lags import StoreTimes
from stratamq_dispatcher.group_listing import GroupQueue

LOOKED_UP_AT_ONCE = 32
LOOK_UP_MS = 250


class LagTimes:
    """Belongs to the event loop."""

    def __init__(self, store_times: StoreTimes, clock: Clock) -> None:
        self._store_times = store_times
        self._clock = clock
        self._turn = asyncio.Lock()
        """Whose turn it is to ask for a read: who has waited longest is next."""

    async def of(self, queues: Sequence[GroupQueue]) -> list[int | None]:
        """In ms, one for each queue; 0: nothing is to be read. None: not known: the log does not
        have the message, or it is damaged, or there was no time to look."""
        until_ns = self._clock.monotonic_ns() + LOOK_UP_MS * 1_000_000
        found: list[int | None] = [None if one.lag else 0 for one in queues]
        behind = [number for number, one in enumerate(queues) if one.lag]
        behind.sort(key=lambda number: queues[number].lag, reverse=True)
        for first in range(0, len(behind), LOOKED_UP_AT_ONCE):
            some = behind[first : first + LOOKED_UP_AT_ONCE]
            async with self._turn:
                if self._clock.monotonic_ns() >= until_ns:
                    break
                times = await self._store_times([queues[number].first_unread for number in some])
            now_ms = self._clock.wall_ms()
            for number, time_ms in zip(some, times, strict=True):
                found[number] = None if time_ms is None else max(0, now_ms - time_ms)
        return found
