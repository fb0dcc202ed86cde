"""Stores a send once that a client repeats because it has waited too long for an answer, or has
lost its connection: the repeated send gets the answer of the first.

A repeated send has the first one's UNIQ_KEY, and that alone would not tell it from the next send of
a program that uses its message again: so its user, topic, properties and body have to be the same.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from stratamq.client import AsyncClient, Message
from stratamq.files.port import Clock
from stratamq_gateway.brokers import topics_named
from stratamq_gateway.codes import SENT
from stratamq_gateway.frames import Answer
from stratamq_gateway.metrics import REPEATED

MAX_REMEMBERED = 100_000
"""Messages. One takes about 700 bytes, so all of them 70 MB."""
LARGE_BYTES = 262_144
"""A body above is hashed by a thread, so that the event loop goes on."""
_STORED = frozenset(SENT.values())


@dataclass(slots=True)
class _First:
    answer: asyncio.Future[Answer | None]
    """None: it was not stored, as far as is known."""
    until_ns: int
    count: int


class RepeatedSends:
    """The sends of the last time, of all connections. Belongs to the event loop."""

    def __init__(
        self,
        window_ms: int,
        clock: Clock,
        is_kept: Callable[[Message, Answer], Awaitable[bool]],
    ) -> None:
        """`is_kept`: whether what was stored with this answer is there: see the function."""
        self._window_ns = window_ms * 1_000_000
        self._clock = clock
        self._is_kept = is_kept
        self._known: OrderedDict[bytes, _First] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        """Messages that are remembered."""
        return self._count

    async def once(
        self, name: bytes, messages: Sequence[Message], store: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """`name`: see `name_of`; `messages`: those that `store` stores. What `store` raises is
        raised to its own caller: the repeated send stores then. It does, too, if the messages are
        gone."""
        while (first := self._find(name)) is not None:
            answer = await asyncio.shield(first.answer)
            if answer is None:
                continue
            if await self._is_kept(messages[0], answer):
                REPEATED.inc()
                return answer
            self._forget(name, first)
        waiting: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        until_ns = self._clock.monotonic_ns() + self._window_ns
        first = self._known[name] = _First(waiting, until_ns, len(messages))
        self._count += len(messages)
        answer = None
        try:
            answer = await store()
            return answer
        finally:
            if answer is None or answer.code not in _STORED:
                answer = None
                self._forget(name, first)
            waiting.set_result(answer)

    def _find(self, name: bytes) -> _First | None:
        now_ns = self._clock.monotonic_ns()
        while self._known:
            oldest, first = next(iter(self._known.items()))
            if first.until_ns > now_ns and self._count <= MAX_REMEMBERED:
                break
            self._forget(oldest, first)
        return self._known.get(name)

    def _forget(self, name: bytes, first: _First) -> None:
        if self._known.get(name) is first:
            del self._known[name]
            self._count -= first.count


async def name_of(
    user: str, messages: Sequence[Message], properties: str, body: bytes
) -> bytes | None:
    """What a repeated send has in common with the first one; the queue and the time differ.
    `properties` and `body` are those of the request. None: each such send is stored. One of the
    messages has no UNIQ_KEY, or is a half message: the answer to one that was rolled back meanwhile
    names what cannot be committed.
    """
    keys = [one.unique_key for one in messages]
    if not all(keys) or any(one.half for one in messages):
        return None
    one = messages[0]
    parts = (user, one.topic, one.flag, one.sys_flag, one.reconsume_times, properties, keys)
    name = blake2b(repr((*parts, len(body))).encode("utf-8", "surrogatepass"), digest_size=16)
    if len(body) > LARGE_BYTES:
        await asyncio.to_thread(name.update, body)
    else:
        name.update(body)
    return name.digest()


async def is_kept(own: AsyncClient, message: Message, answer: Answer) -> bool:
    """Whether the broker has what was stored as `answer` says: its topic was not deleted, nor made
    again since (decision 015: its queues go on behind what was deleted)."""
    if not await topics_named(own, message.topic):
        return False
    if message.timed or message.delay_level > 0:
        return True  # it waits elsewhere, and gets into the topic that is there when it is due
    for queue in await own.queues(message.topic):
        if queue.queue_id == answer.fields["queueId"]:
            return queue.min_offset <= int(str(answer.fields["queueOffset"]))
    return True  # nothing of the queue is confirmed yet
