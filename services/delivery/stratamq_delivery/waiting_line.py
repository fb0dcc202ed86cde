"""Workers that wait for messages, woken one at a time."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from stratamq.errors import UnavailableError
from stratamq.formats.topics import retry_topic


@dataclass(frozen=True, slots=True)
class Wish:
    """What a worker asks for."""

    group: str
    topic: str
    client: str
    most: int
    invisible_ms: int
    wait_ms: int
    attempt_id: str = ""
    """Asked for again with the same one, the same messages are given."""
    leased: bool = False
    """They stay hidden as long as the client lives, too."""
    tags: tuple[str, ...] = ()
    """Messages with one of them; none: all. The others before them are finished for the group."""


class WaitingLine:
    """Workers that wait for messages of one group and topic."""

    def __init__(self) -> None:
        self.waiting: OrderedDict[int, asyncio.Future[None]] = OrderedDict()
        self.users = 0
        self.news = 0
        """Counts what may have changed the answer of a worker that is looking."""
        self.turn = 0
        """Which queue is looked at first."""
        self._last = 0
        self._timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Let the one look that waits longest and was not woken yet."""
        self.news += 1
        for future in self.waiting.values():
            if not future.done():
                future.set_result(None)
                return

    async def wait(self, until: float, ready_at: float) -> None:
        """Until this worker is woken, or its time is over. One is woken at `ready_at`."""
        loop = asyncio.get_running_loop()
        if self._timer is None or ready_at < self._timer.when():
            self._stop_timer()
            if ready_at < float("inf"):
                self._timer = loop.call_at(ready_at, self._ring)
        self._last += 1
        number, future = self._last, loop.create_future()
        self.waiting[number] = future
        try:
            await asyncio.wait([future], timeout=max(0, until - loop.time()))
        finally:
            del self.waiting[number]
            if not self.waiting:
                self._stop_timer()

    def _ring(self) -> None:
        self._timer = None
        self.wake()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class WaitingLines:
    """By group and topic, those that have users. What is read, and what is decided, tell it of
    messages that may be handed out."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], WaitingLine] = {}
        self._is_closed = False

    def close(self) -> None:
        """Refuse those who wait, and who come: the service stops."""
        self._is_closed = True
        self.wake_all()

    def require_open(self) -> None:
        """UnavailableError when the service stops."""
        if self._is_closed:
            raise UnavailableError("the delivery service is stopping")

    @contextmanager
    def used(self, group: str, topic: str) -> Iterator[WaitingLine]:
        line = self._lines.setdefault((group, topic), WaitingLine())
        line.users += 1
        try:
            yield line
        finally:
            # There may be more than this worker took, or it was cancelled.
            line.wake()
            line.users -= 1
            if not line.users:
                del self._lines[group, topic]

    def is_used(self, topic: str) -> bool:
        return any(waited_for == topic for _, waited_for in self._lines)

    def wake(self, group: str, topic: str) -> None:
        if line := self._lines.get((group, topic)):
            line.wake()

    def wake_all(self) -> None:
        """Let all workers look, those of a line one behind the other: one that leaves wakes the
        next."""
        for line in self._lines.values():
            line.wake()

    def arrived(self, topic: str) -> None:
        """There are new messages in it."""
        for (group, waited_for), line in self._lines.items():
            if topic in (waited_for, retry_topic(group, waited_for)):
                line.wake()
