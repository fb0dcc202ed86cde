"""Connected producers that can be asked what became of their transactions."""

import asyncio
from collections.abc import AsyncGenerator, Collection

from stratamq.files.port import Random
from stratamq_delivery.half_messages import Party, TransactionCheck

MAX_WAITING = 1_000
"""Checks that one producer has not taken yet. Another one is dropped: it is asked again later."""


class Checkers:
    """Implements `Producers` for streams of calls. Of one event loop."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._streams: dict[Party, list[asyncio.Queue[TransactionCheck | None]]] = {}
        self.dropped = 0

    def parties(self) -> Collection[Party]:
        return self._streams.keys()

    def ask(self, party: Party, check: TransactionCheck) -> None:
        """Any member is asked, so that one that hangs does not get every check of a message: in
        turn, it would where several messages are checked together. Gateways ask their producers
        in turn, and a turn here would reach only every other one of them."""
        streams = self._streams.get(party) or self._streams.get(Party(party.group, ""))
        if not streams:
            return
        try:
            streams[self._random.getrandbits(31) % len(streams)].put_nowait(check)
        except asyncio.QueueFull:
            self.dropped += 1

    async def checks(self, parties: Collection[Party]) -> AsyncGenerator[TransactionCheck, None]:
        """What is asked of one producer, until the iterator is closed or `give_way`."""
        queue = asyncio.Queue[TransactionCheck | None](MAX_WAITING)
        for party in parties:
            self._streams.setdefault(party, []).append(queue)
        try:
            while (check := await queue.get()) is not None:
                yield check
        finally:
            for party in parties:
                self._streams[party].remove(queue)
                if not self._streams[party]:
                    del self._streams[party]

    def give_way(self) -> None:
        """End what is open: its producer asks the master, or this service once it is back."""
        for streams in self._streams.values():
            for queue in streams:
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait(None)
