"""Whether a caller waits for what a follower makes of the log.

An event costs a follower half a millisecond whatever it holds. While no caller waits, the log sends
what is new every 50 ms together; while one does, at once.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

CATCH_UP_S = 1.0


class Demand:
    """One follower's. Belongs to the event loop."""

    def __init__(self, waits: Callable[[], bool] = lambda: False) -> None:
        """`waits`: whether a caller waits for what comes next; `begin` is called when one begins
        to. Those who catch up need not be counted in it."""
        self._waits = waits
        self._catching_up = 0
        self._told = False
        self._begun, self._moved = asyncio.Event(), asyncio.Event()
        self._stopped = False

    def begin(self) -> None:
        """A caller waits: the log is told at once, if it does not know."""
        if not self._told:
            self._begun.set()

    def tell(self) -> bool:
        """What the log is told now: whether a caller waits."""
        self._begun.clear()
        self._told = self._catching_up > 0 or self._waits()
        return self._told

    async def begun(self, limit_s: float) -> None:
        """Until a caller waits and the log does not know, or `limit_s` have passed."""
        await set_within(self._begun, limit_s)

    def moved(self) -> None:
        """The follower has applied more."""
        self._moved.set()

    def stop(self) -> None:
        """The follower applies nothing any more: no caller waits for it."""
        self._stopped = True
        self._moved.set()

    async def catch_up(
        self, applied: Callable[[], int], confirmed: Callable[[], Awaitable[int]]
    ) -> None:
        """Until what the log had answered to producers before this call is applied, or CATCH_UP_S
        have passed. `confirmed` asks the log how far consumers may see."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CATCH_UP_S
        end = 0 if self._stopped else await confirmed()
        self._catching_up += 1
        try:
            while applied() < end and not self._stopped and loop.time() < deadline:
                self.begin()
                self._moved.clear()
                await set_within(self._moved, deadline - loop.time())
        finally:
            self._catching_up -= 1


async def set_within(event: asyncio.Event, limit_s: float) -> None:
    """Until it is set, or the time has passed."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await event.wait()
