"""Where a stream of pulls is in each of its queues."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from stratamq_dispatcher.engine import DispatchEngine
from stratamq_dispatcher.long_poll import QueueKey, Watch

CURSORS_AT_ONCE = 64
"""So many queues are taken up, or found without news, before other tasks get their turn."""


@dataclass(slots=True)
class Cursor:
    """The place in one queue. `end_offset` None: it never ends. `generation`: of the log when the
    reader came there; 0: not known."""

    topic: str
    queue_id: int
    offset: int
    end_offset: int | None = None
    generation: int = 0

    @property
    def key(self) -> QueueKey:
        return self.topic, self.queue_id

    @property
    def is_done(self) -> bool:
        return self.end_offset is not None and self.offset >= self.end_offset


class CursorRewind:
    """Brings those cursors of a stream back that are in what the log has lost: when it begins, and
    when the log was cut since."""

    def __init__(self, engine: DispatchEngine) -> None:
        self._engine = engine
        self._generation = 0

    @property
    def are_outdated(self) -> bool:
        """The log is in another generation than at the last `agree`."""
        engine = self._engine
        return engine.followed.serving and self._generation != engine.followed.generation

    async def agree(self, cursors: dict[int, Cursor], watch: Watch) -> None:
        """CorruptionError."""
        self._generation = generation = self._engine.followed.generation
        for count, (number, cursor) in enumerate(cursors.items(), 1):
            offset = self._engine.ends.agreed(*cursor.key, cursor.offset, cursor.generation)
            if offset < cursor.offset:
                cursor.offset = offset
                watch.mark_ready(number)
            cursor.generation = generation
            if count % CURSORS_AT_ONCE == 0:
                await asyncio.sleep(0)
                if self._generation != self._engine.followed.generation:
                    return


async def watched(cursors: Iterable[Cursor], watch: Watch) -> dict[int, Cursor]:
    """Watch those that are not done; by their numbers."""
    unfinished: dict[int, Cursor] = {}
    for number, cursor in enumerate(cursors):
        if not cursor.is_done:
            watch.add(number, cursor.key)
            unfinished[number] = cursor
        if number % CURSORS_AT_ONCE == CURSORS_AT_ONCE - 1:
            await asyncio.sleep(0)
    return unfinished
