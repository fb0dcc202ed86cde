"""Messages of a topic from the newest back, a page at a time, and what a page has looked at.

Each queue is read backwards in chunks, and the queues are merged by where their messages are in the
log: the newest first. A page ends when it is full, or has read as much as one page may; it then
says up to where it has come in each queue, and the next one goes on there. No group reads, so that
no offset moves.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stratamq.client import AsyncClient, Queue, ReceivedMessage, TimeBoundary
from stratamq.errors import CorruptionError, InvalidRequestError, NotFoundError
from stratamq_console.matching import MessageFilter

PAGE_MESSAGES = 50
MAX_QUEUES = 64
"""So many queues of a topic are read for a page: those with the newest messages."""
MAX_READ_BYTES = 32 << 20
MAX_LOOKED_AT = 20_000
"""Messages that one page looks at, at most, until it says so and offers to go on."""
MAX_CHUNK = 1_000
MAX_OF_A_KEY = 2_000
"""The index is asked for so many at a time where a millisecond has very many of a key."""
PULL_BYTES = 1 << 20
SMALL_CHUNK_BYTES, LARGE_CHUNK_BYTES = 128 << 10, 2 << 20
TOO_LARGE_CHUNK_BYTES = 8 << 20
"""A chunk that has more is read again in parts: many small messages say nothing of older ones."""
PULLS_AT_ONCE = 8
PREVIEW_CHARACTERS = 200
_PLACE = re.compile(r"\d{1,18}\.\d{1,18}(-\d{1,18}\.\d{1,18})*", re.ASCII)


@dataclass(frozen=True, slots=True)
class MessageLine:
    """One message in a list."""

    queue_id: int
    queue_offset: int
    physical_offset: int
    stored_ms: int
    tag: str
    keys: str
    size: int
    preview: str

    @property
    def place(self) -> str:
        """Its place as forms name it."""
        return f"{self.queue_id}.{self.queue_offset}"


@dataclass(frozen=True, slots=True)
class SearchBounds:
    """What is searched at most. Times in ms; `place`: of the page before, by queue the first offset
    that it has not looked at, counted from above."""

    queue_id: int | None = None
    offset: int | None = None
    """With a queue: this message and older ones."""
    begin_ms: int = 0
    end_ms: int = 0
    place: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MessagePage:
    """`looked_at` counts the messages of this page's part of the queues; `left` those that are
    older. `place` is where the next page begins; "": nothing is left. `queues_left_out`: queues of
    the topic that were not read at all."""

    messages: tuple[MessageLine, ...]
    looked_at: int
    left: int
    place: str = ""
    queues: int = 0
    queues_left_out: int = 0
    stopped_early: bool = False
    """The page is not full, and ended because it had read enough."""


def line_of(message: ReceivedMessage) -> MessageLine:
    return MessageLine(
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
        message.store_timestamp_ms,
        message.tag,
        " ".join(message.keys),
        message.size,
        preview_of(message),
    )


def preview_of(message: ReceivedMessage) -> str:
    """The beginning of the body as text; of bytes that are none, in hexadecimal."""
    try:
        body = message.body
    except CorruptionError as error:
        return f"({error.message})"
    piece = body[: 4 * PREVIEW_CHARACTERS]
    try:
        text = piece.decode("utf-8", "strict" if len(piece) == len(body) else "ignore")
    except UnicodeDecodeError:
        text = ""
    if (not text and piece) or "\0" in text:
        text = piece[:PREVIEW_CHARACTERS].hex(" ")
    shown = " ".join(text[:PREVIEW_CHARACTERS].split())
    return shown + ("…" if len(text) > PREVIEW_CHARACTERS or len(piece) < len(body) else "")


def parse_place(text: str) -> dict[int, int]:
    """Where a page begins, as `MessagePage.place` has it. InvalidRequestError."""
    if not text:
        return {}
    if not _PLACE.fullmatch(text):
        raise InvalidRequestError("this address of a further page is damaged: search again")
    pairs = (one.split(".") for one in text.split("-"))
    return {int(queue_id): int(offset) for queue_id, offset in pairs}


@dataclass(slots=True)
class _Budget:
    """What the page may still read."""

    read_bytes: int
    messages: int

    @property
    def spent(self) -> bool:
        return self.read_bytes <= 0 or self.messages <= 0


class _Backwards:
    """One queue, read from `upper` down to `lower`. `lines` are those that were found and have yet
    to be taken, the newest last."""

    def __init__(self, client: AsyncClient, queue: Queue, lower: int, upper: int) -> None:
        self.lines: list[MessageLine] = []
        self.queue_id = queue.queue_id
        self.lower = lower
        self.upper = max(lower, upper)
        """Everything from here on is in `lines`, or was taken or passed over."""
        self._client = client
        self._topic = queue.topic

    @property
    def is_done(self) -> bool:
        return not self.lines and self.upper <= self.lower

    @property
    def place(self) -> int:
        """The next page's upper bound."""
        return self.lines[-1].queue_offset + 1 if self.lines else self.upper

    async def fill(self, chunk: int, wanted: MessageFilter, budget: _Budget) -> None:
        """Read chunks until there is a line, or the queue or the budget has come to its end."""
        while not self.lines and self.upper > self.lower and not budget.spent:
            begin = max(self.lower, self.upper - chunk)
            read = await self._read(begin, wanted)
            budget.read_bytes -= read
            if read > TOO_LARGE_CHUNK_BYTES and chunk > 1:
                self.lines.clear()
                chunk = max(1, chunk // 8)
                continue
            budget.messages -= self.upper - begin
            self.upper = begin
            if read < SMALL_CHUNK_BYTES:
                chunk = min(2 * chunk, MAX_CHUNK)
            elif read > LARGE_CHUNK_BYTES:
                chunk = max(1, chunk // 2)

    async def _read(self, begin: int, wanted: MessageFilter) -> int:
        """The matching lines of [begin, upper), or of a part, where it has too many bytes. Returns
        the bytes that were read."""
        offset, read = begin, 0
        while offset < self.upper and (read <= TOO_LARGE_CHUNK_BYTES or self.upper - begin == 1):
            pulled = await self._client.pull(
                self._topic,
                self.queue_id,
                offset,
                max_messages=min(self.upper - offset, MAX_CHUNK),
                max_bytes=PULL_BYTES,
                tags=wanted.tags,
            )
            for message in pulled.messages:
                read += message.size
                if message.queue_offset < self.upper and wanted.matches(message):
                    self.lines.append(line_of(message))
            if pulled.next_offset <= offset:
                break
            offset = pulled.next_offset
            await asyncio.sleep(0)
        return read


async def search(
    client: AsyncClient,
    topic: str,
    wanted: MessageFilter,
    bounds: SearchBounds,
    limit: int = PAGE_MESSAGES,
) -> MessagePage:
    """The newest messages that match. NotFoundError for an unknown topic."""
    queues = await client.queues(topic)
    if not queues and not await client.topics(topic):
        raise NotFoundError(f"there is no topic {topic}")
    chosen, left_out = _chosen(queues, bounds)
    readers = [await _reader(client, queue, bounds) for queue in chosen]
    began = sum(one.upper for one in readers)
    budget = _Budget(MAX_READ_BYTES, MAX_LOOKED_AT)
    chunk = max(2, limit // max(1, len(readers)) + 1)
    turns = asyncio.Semaphore(PULLS_AT_ONCE)

    async def fill(reader: _Backwards) -> None:
        async with turns:
            await reader.fill(chunk, wanted, budget)

    await asyncio.gather(*map(fill, readers))
    found: list[MessageLine] = []
    while len(found) < limit:
        # A queue without a line might have the newest of all: nothing is taken before it was read.
        if any(not one.lines and one.upper > one.lower for one in readers):
            break
        ready = [one for one in readers if one.lines]
        if not ready:
            break
        newest = max(ready, key=lambda one: one.lines[-1].physical_offset)
        found.append(newest.lines.pop())
        if not newest.lines and len(found) < limit:
            await newest.fill(chunk, wanted, budget)
    is_done = all(one.is_done for one in readers)
    return MessagePage(
        tuple(found),
        looked_at=began - sum(one.place for one in readers),
        left=sum(one.place - one.lower for one in readers),
        place="" if is_done else "-".join(f"{one.queue_id}.{one.place}" for one in readers),
        queues=len(readers),
        queues_left_out=left_out,
        stopped_early=not is_done and len(found) < limit,
    )


def _chosen(queues: Sequence[Queue], bounds: SearchBounds) -> tuple[list[Queue], int]:
    """The queues that are read, and how many are not."""
    if bounds.queue_id is not None:
        return [one for one in queues if one.queue_id == bounds.queue_id], 0
    if bounds.place:
        chosen = [one for one in queues if one.queue_id in bounds.place][:MAX_QUEUES]
        return chosen, len(queues) - len(chosen)
    newest = sorted(queues, key=lambda one: one.newest_store_timestamp_ms, reverse=True)
    chosen = sorted(newest[:MAX_QUEUES], key=lambda one: one.queue_id)
    return chosen, len(queues) - len(chosen)


async def _reader(client: AsyncClient, queue: Queue, bounds: SearchBounds) -> _Backwards:
    lower, upper = queue.min_offset, queue.max_offset
    if bounds.begin_ms:
        lower = max(lower, await _at(client, queue, bounds.begin_ms))
    if bounds.queue_id is not None and bounds.offset is not None:
        upper = min(upper, bounds.offset + 1)
    if queue.queue_id in bounds.place:
        upper = min(upper, bounds.place[queue.queue_id])
    elif bounds.end_ms:
        upper = min(upper, await _at(client, queue, bounds.end_ms + 1))
    return _Backwards(client, queue, lower, upper)


async def _at(client: AsyncClient, queue: Queue, moment_ms: int) -> int:
    """The first offset that is not stored before a moment."""
    return await client.offset_at_time(queue.topic, queue.queue_id, moment_ms, TimeBoundary.LOWER)


async def search_key(
    client: AsyncClient,
    topic: str,
    wanted: MessageFilter,
    bounds: SearchBounds,
    limit: int = PAGE_MESSAGES,
) -> tuple[MessagePage, str]:
    """The newest messages with a key, by the index, and why some of the tier may be missing. A
    page's place is log offset and store time of its last message."""
    before, end_ms = next(iter(bounds.place.items()), (1 << 62, bounds.end_ms))
    asked = 2 * limit
    while True:
        found = await client.query_key(
            topic,
            wanted.key,
            max_messages=asked,
            begin_ms=bounds.begin_ms,
            end_ms=end_ms or (1 << 62 if bounds.begin_ms else 0),
        )
        # Those of the millisecond at which the page before ended come again.
        older = [one for one in found.messages if one.physical_offset < before]
        if len(older) >= limit or not found.truncated or asked >= MAX_OF_A_KEY:
            break
        asked = min(4 * asked, MAX_OF_A_KEY)
    shown = older[:limit]
    left = len(older) - len(shown) + found.truncated
    place = ""
    if left and shown:
        place = f"{shown[-1].physical_offset}.{shown[-1].store_timestamp_ms}"
    lines = tuple(line_of(one) for one in shown if wanted.matches(one))
    return MessagePage(lines, len(shown), left, place), found.missing
