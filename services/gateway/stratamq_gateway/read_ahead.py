"""Fetches messages ahead for readers close to the log's end. Their clients pull 32 messages
at a time, and a call to the dispatcher for each pull would cost more than its messages.

The first pull of a reader is a call, which shows how much one answer has. When the next one comes
soon enough, as many answers are fetched at once as a reader of this pace gets before they are too
old, and the next ones while it works on the last of these: what a slow one is given costs as much
as before. An answer from here may be `KEPT_NS` behind the log: its messages are as they were
stored, its ends of the queue are older.
"""

import asyncio
import struct
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

from stratamq.client import AsyncClient
from stratamq.errors import StrataError
from stratamq.files.port import Clock
from stratamq.formats.message_status import PullStatus
from stratamq.service.front import Frames, FrontClient

KEPT_NS = 2_000_000_000
MAX_ANSWERS = 16
"""How many answers are fetched at once."""
FOLLOWS_NS = KEPT_NS // MAX_ANSWERS
MAX_FETCHED_BYTES = 1 << 20
"""The size of what is fetched at once, unless a single answer is larger."""
MAX_KEPT_BYTES = 32 << 20
_GROWTH = 4
_PLACE = struct.Struct(">i16xq")
"""Where a frame has its size and its queue offset."""


class QueuePull(NamedTuple):
    topic: str
    queue_id: int
    offset: int
    tags_codes: tuple[int, ...]
    max_messages: int
    wait_ms: int

    def at(self, offset: int) -> "_Key":
        return (self.topic, self.queue_id, offset, self.tags_codes)


_Key = tuple[str, int, int, tuple[int, ...]]


@dataclass(slots=True)
class _Run:
    """What was fetched, and is given piece by piece."""

    fetched: Frames
    count: int
    """Messages of one answer."""
    size: int
    """Bytes of one answer."""
    answers: int
    """How many are fetched next."""
    touched_ns: int
    ends: list[tuple[int, int]]
    """Where the frame of each message ends, and its queue offset."""
    given: int = 0
    """How many of its messages."""
    coming: asyncio.Task[Frames] | None = None
    """What lies behind `fetched`."""
    kept_bytes: int = 0

    @property
    def is_used_up(self) -> bool:
        return self.given == len(self.ends)

    def next_answers(self) -> dict[str, int]:
        """The limits of the next call: whole answers."""
        answers = max(1, min(self.answers, MAX_FETCHED_BYTES // self.size))
        return {"max_messages": self.count * answers, "max_bytes": self.size * answers}

    def take(self, fetched: Frames) -> None:
        self.fetched, self.ends, self.given = fetched, _ends(fetched.frames), 0
        self.answers = min(self.answers * _GROWTH, MAX_ANSWERS)


class FetchAhead:
    """Belongs to the event loop."""

    def __init__(self, clock: Clock, own: AsyncClient) -> None:
        """`own`: with the broker's rights, for what several readers wait for."""
        self._clock = clock
        self._own = own
        self._held: dict[QueuePull, asyncio.Task[Frames]] = {}
        self._runs: OrderedDict[_Key, _Run] = OrderedDict()
        """By what their readers ask for next; the oldest first."""
        self.kept_bytes = 0
        """Fetched, or on its way."""

    async def pull(self, client: FrontClient, wanted: QueuePull) -> Frames:
        """StrataError."""
        run = self._take(wanted)
        if run is not None and run.is_used_up:
            found = await self._next(client, run, wanted)
            if found is None:
                run = None
            elif found.status is PullStatus.FOUND:
                run.take(found)
            else:
                return found
        if run is None:
            return await self._first(client, wanted)
        return self._give(client, run, wanted)

    def is_here(self, wanted: QueuePull) -> bool:
        """Whether `give` may be called now."""
        self._drop_old()
        run = self._runs.get(wanted.at(wanted.offset))
        return run is not None and not run.is_used_up

    def give(self, client: FrontClient, wanted: QueuePull) -> Frames:
        """What `pull` would return without waiting, as `is_here` has just said."""
        run = self._pop(wanted.at(wanted.offset))
        assert run is not None
        return self._give(client, run, wanted)

    async def _first(self, client: FrontClient, wanted: QueuePull) -> Frames:
        """A call for a single answer, as of a reader of which nothing is known."""
        if wanted.wait_ms:
            found = await self._hold(wanted)
        else:
            found = await client.pull_frames(
                *wanted[:3], max_messages=wanted.max_messages, tags_codes=wanted.tags_codes
            )
        if found.status is PullStatus.FOUND:
            ends = _ends(found.frames)
            run = _Run(found, len(ends), len(found.frames), _GROWTH, 0, ends, given=len(ends))
            self._keep(run, wanted)
        return found

    async def _next(self, client: FrontClient, run: _Run, wanted: QueuePull) -> Frames | None:
        """None: the reader does not follow closely, or what was on its way for it is of no use."""
        if run.coming is not None:
            coming, run.coming = run.coming, None
            try:
                found = await asyncio.shield(coming)
            except StrataError:  # a call may succeed by now
                return None
            return found if found.status is PullStatus.FOUND else None
        if self._clock.monotonic_ns() - run.touched_ns > FOLLOWS_NS:
            return None
        return await client.pull_frames(
            *wanted[:3],
            **run.next_answers(),
            tags_codes=wanted.tags_codes,
            wait_ms=wanted.wait_ms,
        )

    def _begin_next(self, client: FrontClient, run: _Run, wanted: QueuePull) -> None:
        """While the reader works on the last answer that is here, unless too much is kept."""
        fetched = run.fetched
        is_last = len(run.ends) - run.given < run.count
        if run.coming is not None or not is_last or fetched.next_offset >= fetched.max_offset:
            return
        limits = run.next_answers()
        if self.kept_bytes + limits["max_bytes"] > MAX_KEPT_BYTES:
            return
        run.coming = client.finish(
            client.pull_frames(
                wanted.topic,
                wanted.queue_id,
                fetched.next_offset,
                **limits,
                tags_codes=wanted.tags_codes,
            )
        )
        run.coming.add_done_callback(_note_error)

    async def _hold(self, wanted: QueuePull) -> Frames:
        """One call for all who wait for the same. It ends for all of them together, so that who
        came later waits for less than was asked for, and asks again."""
        held = self._held.get(wanted)
        if held is None:
            held = asyncio.get_running_loop().create_task(self._pull(wanted))
            self._held[wanted] = held
            held.add_done_callback(lambda done: self._end(wanted, done))
        return await asyncio.shield(held)

    async def _pull(self, wanted: QueuePull) -> Frames:
        found = await self._own.pull(
            *wanted[:3],
            max_messages=wanted.max_messages,
            tags_codes=wanted.tags_codes,
            wait_ms=wanted.wait_ms,
        )
        ends = (found.next_offset, found.min_offset, found.max_offset)
        return Frames(found.status, *ends, found.frames)

    def _end(self, wanted: QueuePull, done: "asyncio.Task[Frames]") -> None:
        del self._held[wanted]
        _note_error(done)

    def _give(self, client: FrontClient, run: _Run, wanted: QueuePull) -> Frames:
        fetched, ends, first = run.fetched, run.ends, run.given
        begin = ends[first - 1][0] if first else 0
        last = min(first + min(run.count, wanted.max_messages), len(ends))
        while last > first + 1 and ends[last - 1][0] - begin > run.size:
            last -= 1
        end, offset = ends[last - 1]
        run.given = last
        next_offset = fetched.next_offset if run.is_used_up else offset + 1
        self._begin_next(client, run, wanted)
        self._keep(run, wanted)
        return fetched._replace(next_offset=next_offset, frames=fetched.frames[begin:end])

    def _keep(self, run: _Run, wanted: QueuePull) -> None:
        """For the reader's next pull."""
        run.touched_ns = self._clock.monotonic_ns()
        next_offset = run.fetched.next_offset
        if not run.is_used_up:
            next_offset = run.ends[run.given - 1][1] + 1
        elif next_offset >= run.fetched.max_offset:
            return  # it has to wait for what comes next
        else:
            run.fetched = run.fetched._replace(frames=memoryview(b""))
        self._drop(wanted.at(next_offset))
        run.kept_bytes = len(run.fetched.frames)
        if run.coming is not None:
            run.kept_bytes += run.next_answers()["max_bytes"]
        self._runs[wanted.at(next_offset)] = run
        self.kept_bytes += run.kept_bytes
        while self.kept_bytes > MAX_KEPT_BYTES:
            self._drop(next(iter(self._runs)))

    def _take(self, wanted: QueuePull) -> _Run | None:
        self._drop_old()
        return self._pop(wanted.at(wanted.offset))

    def _drop_old(self) -> None:
        oldest_ns = self._clock.monotonic_ns() - KEPT_NS
        while self._runs:
            key, run = next(iter(self._runs.items()))
            if run.touched_ns >= oldest_ns:
                break
            self._drop(key)

    def _drop(self, key: _Key) -> None:
        run = self._pop(key)
        if run is not None and run.coming is not None:
            run.coming.cancel()

    def _pop(self, key: _Key) -> _Run | None:
        run = self._runs.pop(key, None)
        if run is not None:
            self.kept_bytes -= run.kept_bytes
        return run


def _note_error(done: "asyncio.Task[Frames]") -> None:
    """Those who waited have it, if any are left."""
    if not done.cancelled():
        done.exception()


def _ends(frames: memoryview) -> list[tuple[int, int]]:
    ends, at = [], 0
    while at < len(frames):
        size, queue_offset = _PLACE.unpack_from(frames, at)
        at += size
        ends.append((at, queue_offset))
    return ends
