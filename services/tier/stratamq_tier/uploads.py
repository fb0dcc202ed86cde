"""Batches on their way: those of one queue in their order, a bounded number of queues at once.

One that fails waits, longer each time, and holds up its queue alone.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from stratamq.errors import StrataError
from stratamq.service.tasks import first_ended
from stratamq.tier.writing.claim import FencedError
from stratamq.tier.writing.intake import Due, PendingPlaces, QueueKey

log = logging.getLogger(__name__)

FIRST_PAUSE_MS = 100


@dataclass(slots=True)
class _Queue:
    batches: deque[Due] = field(default_factory=deque)
    failures: int = 0
    reason: str = ""


class Uploads:
    """Belongs to the event loop. `commit` stores one batch; `changed` is called after each."""

    def __init__(
        self,
        commit: Callable[[Due], Awaitable[None]],
        changed: Callable[[], None],
        at_once: int,
        longest_pause_ms: int,
    ) -> None:
        self.bytes = self.messages = 0
        """Totals of the batches that are here."""
        self.fenced: FencedError | None = None
        self.last_failure = ""
        self._commit = commit
        self._changed = changed
        self._at_once = at_once
        self._longest_pause_ms = longest_pause_ms
        self._queues: dict[QueueKey, _Queue] = {}
        self._ready: asyncio.Queue[QueueKey] = asyncio.Queue()
        self._places = PendingPlaces()

    @property
    def oldest_place(self) -> int | None:
        """A log offset below which nothing waits here; None: nothing waits."""
        return self._places.lowest

    @property
    def failing_queues(self) -> set[QueueKey]:
        """Whose last upload failed."""
        return {key for key, queue in self._queues.items() if queue.failures}

    def add(self, due: Due) -> None:
        queue = self._queues.get(due.key)
        if queue is None:
            queue = self._queues[due.key] = _Queue()
            self._ready.put_nowait(due.key)
        queue.batches.append(due)
        self._places.put(due.place)
        self.bytes += due.memory_bytes
        self.messages += len(due.batch.sizes)

    async def run(self) -> None:
        """Until it is cancelled, or fenced."""
        await first_ended(*(self._work() for _ in range(self._at_once)))

    async def _work(self) -> None:
        """One batch after the other; returns when the writer is fenced."""
        while True:
            key = await self._ready.get()
            queue = self._queues[key]
            try:
                await self._commit(queue.batches[0])
            except FencedError as error:
                self.fenced = error
                self._changed()
                return
            except StrataError as error:
                self._put_off(key, queue, error)
                continue
            self._done(key, queue)

    def _done(self, key: QueueKey, queue: _Queue) -> None:
        due = queue.batches.popleft()
        queue.failures, queue.reason = 0, ""
        self._places.remove(due.place)
        self.bytes -= due.memory_bytes
        self.messages -= len(due.batch.sizes)
        if queue.batches:
            self._ready.put_nowait(key)
        else:
            del self._queues[key]
        self._changed()

    def _put_off(self, key: QueueKey, queue: _Queue, error: StrataError) -> None:
        queue.failures += 1
        pause_ms = min(self._longest_pause_ms, FIRST_PAUSE_MS << min(queue.failures - 1, 20))
        self.last_failure = f"{key[0]}/{key[1]}: {error}"
        if str(error) != queue.reason:
            queue.reason = str(error)
            log.warning(
                "upload failed, and is tried again",
                extra={"topic": key[0], "queue": key[1], "reason": str(error)},
            )
        loop = asyncio.get_running_loop()
        loop.call_later(pause_ms / 1000, self._ready.put_nowait, key)
        self._changed()
