"""Reads for listings, one at a time: what else is to be read waits for one of them at most, however
many ask, and however many of those give up."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Turns:
    """Belongs to the event loop. Who has waited longest is next."""

    def __init__(self) -> None:
        self._reading = asyncio.Lock()

    async def take(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What `begin()` returns, or raises, once it is its turn. Cancelled while it waits for that
        it reads nothing; later the read goes on, and the next one begins when it has ended."""
        await self._reading.acquire()
        read = asyncio.ensure_future(begin())
        read.add_done_callback(lambda _: self._reading.release())
        return await asyncio.shield(read)
