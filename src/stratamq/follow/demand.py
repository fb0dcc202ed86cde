"""For which queues callers wait until a follower has made of the log what they ask for.

An event costs a follower half a millisecond whatever it holds. The log sends at once what is in a
queue that a caller waits for, and everything while callers wait for more than queues can say; the
rest it sends every 50 ms together.
"""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import islice

from stratamq.follow.protocol import Queue, Report

CATCH_UP_S = 1.0
CAUGHT_UP_S = 0.05
"""So long after the last one has caught up the log is told, together with who catches up then."""
MAX_QUEUES = 16_384
"""With more queues that callers wait for, the log sends everything at once."""
QUEUES_AT_ONCE = 4_096
"""One report names at most so many. Until the log knows the others it sends everything at once."""


class Demand:
    """One follower's. Belongs to the event loop."""

    def __init__(self, waits: Callable[[], bool] = lambda: False) -> None:
        """`waits`: whether a caller waits for whatever comes next; `begin` is called when one
        begins to. Those who catch up, or wait for queues, need not be counted in it."""
        self._waits = waits
        self._catching_up = 0
        self._everything = False
        """The log knows that it must send everything at once."""
        self._known: set[Queue] = set()
        """The queues that the log has been told, those of `_over` among them."""
        self._over: set[Queue] = set()
        self._new: set[Queue] = set()
        """Callers wait for these, and the log has not been told."""
        self._expected_until = -math.inf
        """By the loop's clock: what comes until then is waited for."""
        self._begun, self._moved = asyncio.Event(), asyncio.Event()
        self._stopped = False

    def begin(self) -> None:
        """A caller waits: the log is told at once, if it does not know."""
        if not self._everything:
            self._begun.set()

    def expect(self) -> None:
        """What comes within `CATCH_UP_S` is waited for: a record that was just appended, or a
        message that a caller names."""
        self._expected_until = asyncio.get_running_loop().time() + CATCH_UP_S
        self.begin()

    def wait_for(self, queue: Queue, waits: bool) -> None:
        """A first caller waits for the queue, or none any more. That it ended the log learns with
        the next report, so that one who asks again and again does not make one each time."""
        if queue in self._known:
            (self._over.discard if waits else self._over.add)(queue)
        elif waits:
            self._new.add(queue)
            self.begin()
        else:
            self._new.discard(queue)

    def connected(self) -> None:
        """The log of a new connection knows nothing."""
        self._new |= self._known - self._over
        self._known, self._over = set(), set()

    def tell(self, report: Report) -> Report:
        """The report with what the log is told now."""
        self._begun.clear()
        ended = tuple(islice(self._over, QUEUES_AT_ONCE))
        self._over.difference_update(ended)
        self._known.difference_update(ended)
        began = tuple(islice(self._new, min(QUEUES_AT_ONCE, MAX_QUEUES - len(self._known))))
        self._new.difference_update(began)
        self._known.update(began)
        self._everything = (
            self._catching_up > 0
            or bool(self._new)
            or self._waits()
            or asyncio.get_running_loop().time() < self._expected_until
        )
        return replace(
            report,
            unhurried=not self._everything and not self._known,
            by_queue=not self._everything,
            began=began,
            ended=ended,
        )

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
            if not self._catching_up:
                loop.call_later(CAUGHT_UP_S, self._caught_up)

    def _caught_up(self) -> None:
        if self._everything and not self._catching_up:
            self._begun.set()


async def set_within(event: asyncio.Event, limit_s: float) -> None:
    """Until it is set, or the time has passed."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await event.wait()
