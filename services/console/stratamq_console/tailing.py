"""New messages of a topic as server-sent events, bounded on both sides.

Every `EVERY_S` what was stored since is read by no group, and at most `ROWS` of what matched are
sent, the newest ones, with counts of what was read, of what matched, and of what was left out of
the page: 5 000 messages a second are as many events as 50, and as many calls. A browser that does
not read holds the reader up, which then has one answer of the broker and no more.
"""

import asyncio
import heapq
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from stratamq.client import AsyncClient, ReceivedMessage
from stratamq.errors import BusyError, StrataError, UnavailableError
from stratamq.files.port import Clock
from stratamq_console.matching import MessageFilter
from stratamq_console.searching import line_of

EVERY_S = 0.5
ROWS = 20
READ_AT_ONCE, READ_BYTES = 1_000, 1 << 20
QUIET_S = 10.0
"""A comment is sent after so long without an event: proxies end connections that are quiet."""
MAX_TAILS, MAX_OF_A_USER = 32, 16
"""Open at a time; of one user, where authentication is on."""
RETRY_MS = 3_000


class LiveTails:
    """Counts the open ones. Belongs to the event loop."""

    def __init__(self, clock: Clock) -> None:
        self.open = 0
        self.of_user: Counter[str] = Counter()
        self._clock = clock

    def admit(self, user: str = "") -> None:
        """BusyError when there are too many, or too many of a user."""
        if self.open >= MAX_TAILS:
            raise BusyError(f"{MAX_TAILS} live pages are open: close one", 5_000)
        if user and self.of_user[user] >= MAX_OF_A_USER:
            raise BusyError(f"{user} has {MAX_OF_A_USER} live pages open: close one", 5_000)

    async def events(
        self, client: AsyncClient, topic: str, wanted: MessageFilter, user: str = ""
    ) -> AsyncIterator[bytes]:
        """Server-sent events until the browser leaves."""
        try:
            self.admit(user)  # others were admitted since
        except BusyError as error:
            yield _event("failed", {"why": error.message})
            return
        self.open += 1
        self.of_user[user] += 1
        try:
            yield b"retry: %d\n\n" % RETRY_MS
            new = _NewMessages(client, topic, wanted.tags)
            await new.begin()
            yield _event("open", {})
            quiet_ns, is_away = self._clock.monotonic_ns(), False
            while True:
                await asyncio.sleep(EVERY_S)
                sample, away = TailSample(), ""
                try:
                    async for messages in new.read():
                        for message in messages:
                            sample.take(message, wanted)
                except (UnavailableError, BusyError) as error:
                    away = error.message
                now_ns = self._clock.monotonic_ns()
                if bool(away) != is_away:
                    yield _event("waiting", {"why": away})
                    is_away = bool(away)
                if sample.seen:
                    yield _event("messages", sample.document())
                    quiet_ns = now_ns
                elif now_ns - quiet_ns >= QUIET_S * 1e9:
                    yield b": quiet\n\n"
                    quiet_ns = now_ns
        except StrataError as error:
            yield _event("failed", {"why": error.message})
        finally:
            self.open -= 1
            self.of_user -= Counter((user,))


class _NewMessages:
    """What is stored in a topic from `begin` on. Each look costs one list of its queues, and a pull
    of those that have more."""

    def __init__(self, client: AsyncClient, topic: str, tags: tuple[str, ...]) -> None:
        self._client = client
        self._topic = topic
        self._tags = tags
        self._next: dict[int, int] = {}

    async def begin(self) -> None:
        queues = await self._client.queues(self._topic)
        self._next = {one.queue_id: one.max_offset for one in queues}

    async def read(self) -> AsyncIterator[list[ReceivedMessage]]:
        """What is there now and was not read before, a piece of a queue at a time."""
        for queue in await self._client.queues(self._topic):
            at = self._next.get(queue.queue_id, queue.min_offset)
            # A queue ends earlier than before where another master has cut it.
            self._next[queue.queue_id] = at = min(at, queue.max_offset)
            while at < queue.max_offset:
                pulled = await self._client.pull(
                    self._topic,
                    queue.queue_id,
                    at,
                    max_messages=READ_AT_ONCE,
                    max_bytes=READ_BYTES,
                    tags=self._tags,
                )
                if pulled.next_offset <= at:
                    break
                self._next[queue.queue_id] = at = pulled.next_offset
                yield pulled.messages
                await asyncio.sleep(0)


class TailSample:
    """What came since the last event: the newest rows, and counts."""

    def __init__(self) -> None:
        self.seen = 0
        self.matched = 0
        self._kept: list[tuple[int, int, ReceivedMessage]] = []
        """A heap by place in the log: queues are read one after another."""

    def take(self, message: ReceivedMessage, wanted: MessageFilter) -> None:
        self.seen += 1
        if not wanted.matches(message):
            return
        self.matched += 1
        keep = heapq.heappush if len(self._kept) < ROWS else heapq.heappushpop
        keep(self._kept, (message.physical_offset, self.matched, message))

    def document(self) -> dict[str, Any]:
        """The event's document, the newest row last."""
        rows = [
            {
                "queue": line.queue_id,
                "offset": line.queue_offset,
                "ms": line.stored_ms,
                "tag": line.tag,
                "keys": line.keys,
                "size": line.size,
                "body": line.preview,
            }
            for line in (line_of(message) for *_, message in sorted(self._kept))
        ]
        return {
            "rows": rows,
            "seen": self.seen,
            "matched": self.matched,
            "left_out": self.matched - len(rows),
        }


def _event(name: str, document: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), json.dumps(document).encode())
