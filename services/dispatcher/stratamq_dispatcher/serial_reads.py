"""Reads for listings, one at a time: a pull of old messages waits for one of them at most, however
many callers list, and however many of these are cancelled."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class SerialReads:
    """Belongs to the event loop. The caller that has waited longest is next."""

    def __init__(self) -> None:
        self._reading = asyncio.Lock()

    async def run(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait for all earlier reads, then run `begin()` and return its result or raise its error.

        A caller that is cancelled while it waits reads nothing. Cancelled later, the read still
        runs to its end, because the next one may begin only then.
        """
        await self._reading.acquire()
        read = asyncio.ensure_future(begin())
        read.add_done_callback(lambda _: self._reading.release())
        return await asyncio.shield(read)
