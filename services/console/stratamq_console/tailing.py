"""New messages of a topic as server-sent events, bounded on both sides.

The reader follows the topic from its end by no group. Every `EVERY_S` at most `ROWS` of what
matched since are sent, the newest ones, with counts of what was read, of what matched, and of what
was left out of the page: 5 000 messages a second are as many events as 50. A browser that does not
read holds the reader up, which then has one answer of the broker and no more.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from stratamq.client import LATEST, AsyncClient, ReceivedMessage
from stratamq.errors import BusyError, StrataError
from stratamq.files.port import Clock
from stratamq_console.matching import MessageFilter
from stratamq_console.searching import line_of

EVERY_S = 0.5
ROWS = 20
READ_AT_ONCE = 200
QUIET_S = 10.0
"""A comment is sent after so long without an event: proxies end connections that are quiet."""
MAX_TAILS = 32
RETRY_MS = 3_000


class LiveTails:
    """Counts the open ones. Belongs to the event loop."""

    def __init__(self, clock: Clock) -> None:
        self.open = 0
        self._clock = clock

    def admit(self) -> None:
        """BusyError when there are too many."""
        if self.open >= MAX_TAILS:
            raise BusyError(f"{MAX_TAILS} live pages are open: close one", 5_000)

    async def events(
        self, client: AsyncClient, topic: str, wanted: MessageFilter
    ) -> AsyncIterator[bytes]:
        """Server-sent events until the browser leaves."""
        if self.open >= MAX_TAILS:  # others were admitted since
            yield _event("failed", {"why": f"{MAX_TAILS} live pages are open: close one"})
            return
        self.open += 1
        problems: deque[StrataError | None] = deque(maxlen=1)
        try:
            yield b"retry: %d\n\n" % RETRY_MS
            async with client.consume(
                topic,
                offset=LATEST,
                follow=True,
                tags=wanted.tags,
                max_bytes=1 << 20,
                on_interruption=problems.append,
            ) as reader:
                await reader
                yield _event("open", {})
                sample = TailSample()
                sent_ns = quiet_ns = self._clock.monotonic_ns()
                while True:
                    for message in await reader.getmany(READ_AT_ONCE, timeout_s=EVERY_S):
                        sample.take(message, wanted)
                    await asyncio.sleep(0)
                    if problems:
                        yield _event("waiting", {"why": str(problems.pop() or "")})
                    now_ns = self._clock.monotonic_ns()
                    if sample.seen and now_ns - sent_ns >= EVERY_S * 1e9:
                        yield _event("messages", sample.give())
                        sent_ns = quiet_ns = now_ns
                    elif now_ns - quiet_ns >= QUIET_S * 1e9:
                        yield b": quiet\n\n"
                        quiet_ns = now_ns
        except StrataError as error:
            yield _event("failed", {"why": error.message})
        finally:
            self.open -= 1


class TailSample:
    """What came since the last event: the newest rows, and counts."""

    def __init__(self) -> None:
        self.seen = 0
        self.matched = 0
        self._kept: deque[ReceivedMessage] = deque(maxlen=ROWS)

    def take(self, message: ReceivedMessage, wanted: MessageFilter) -> None:
        self.seen += 1
        if wanted.matches(message):
            self.matched += 1
            self._kept.append(message)

    def give(self) -> dict[str, Any]:
        """The event's document, the newest row last. The next one begins empty."""
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
            for line in map(line_of, self._kept)
        ]
        given = {
            "rows": rows,
            "seen": self.seen,
            "matched": self.matched,
            "left_out": self.matched - len(rows),
        }
        self.seen = self.matched = 0
        self._kept.clear()
        return given


def _event(name: str, document: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), json.dumps(document).encode())
