"""Connected producers that can be asked what became of their transactions."""

import asyncio
from collections.abc import AsyncGenerator, Collection

from stratamq_delivery.half_messages import Party, TransactionCheck

MAX_WAITING = 1_000
"""Checks that one producer has not taken yet. Another one is dropped: it is asked again later."""


class Checkers:
    """Implements `Producers` for streams of calls. Of one event loop."""

    def __init__(self) -> None:
        self._streams: dict[Party, list[asyncio.Queue[TransactionCheck]]] = {}
        self.dropped = 0

    def parties(self) -> Collection[Party]:
        return self._streams.keys()

    def ask(self, party: Party, check: TransactionCheck) -> None:
        """Members are asked in turn, so that one that hangs does not get every check."""
        streams = self._streams.get(party) or self._streams.get(Party(party.group, ""))
        if not streams:
            return
        stream = streams.pop(0)
        streams.append(stream)
        try:
            stream.put_nowait(check)
        except asyncio.QueueFull:
            self.dropped += 1

    async def checks(self, parties: Collection[Party]) -> AsyncGenerator[TransactionCheck, None]:
        """What is asked of one producer, until the iterator is closed."""
        queue = asyncio.Queue[TransactionCheck](MAX_WAITING)
        for party in parties:
            self._streams.setdefault(party, []).append(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            for party in parties:
                self._streams[party].remove(queue)
                if not self._streams[party]:
                    del self._streams[party]
