"""Procedures and the log's reading without threads: each call is made after a drawn pause, so that
those of all processes mix, and a call under way may be made after its caller has ended.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any, TypeVar

from stratamq.files.simulated_faults import SimulatedCrash
from stratamq.tier.driver.calls import Call, Procedure, Together
from stratamq.tier.driver.storage import Outcome, Storage, attempt, joined

T = TypeVar("T")

LONGEST_CALL_S = 0.2
_SLOW, _SLOWEST_S = 0.02, 120.0


class SteppedRunner:
    """In place of `Runner`, for one process."""

    def __init__(self, storage: Storage, chance: random.Random) -> None:
        self.storage = storage
        self.paused_until_s = 0.0
        self._chance = chance

    async def start(self, procedure: Procedure[T]) -> T:
        """Like `Runner.start`."""
        outcome = Outcome(None)
        try:
            while True:
                try:
                    if outcome.error is not None:
                        call = procedure.throw(outcome.error)
                    else:
                        call = procedure.send(outcome.value)
                except StopIteration as end:
                    result: T = end.value
                    return result
                outcome = await self._outcome(call)
        finally:
            procedure.close()

    async def _outcome(self, call: Call[Any]) -> Outcome:
        if isinstance(call, Together):
            waiting = [self._outcome(one) for one in call.calls]
            return joined(list(await asyncio.gather(*waiting)))
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(max(self._pause_s(), self.paused_until_s - loop.time()))
        except asyncio.CancelledError:
            if self._chance.random() < 0.5:
                loop.call_later(self._pause_s(), self._unheard, call)
            raise
        return attempt(self.storage, call)

    def _pause_s(self) -> float:
        if self._chance.random() < _SLOW:
            return self._chance.uniform(0, _SLOWEST_S)
        return self._chance.uniform(0, LONGEST_CALL_S)

    def _unheard(self, call: Call[Any]) -> None:
        try:
            attempt(self.storage, call)
        except SimulatedCrash:
            return


class SteppedReading:
    """In place of the service's thread that reads the log."""

    async def run(self, work: Callable[[], T]) -> T:
        await asyncio.sleep(0)
        return work()
