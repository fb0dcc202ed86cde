"""Topics as a client's broker has them, and how many queues those have for writing: each message
group, and each priority, has its queue by that number, whatever gateway or client sends."""

import asyncio

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client import AsyncClient, Topic
from stratamq_gateway.brokers import topics_named
from stratamq_gateway.messaging.statuses import RefusedError

FRESH_S = 1.0
"""Then it is asked again: for that long after a topic has got more queues, a gateway may send
messages of a group to its earlier one."""


async def existing(client: AsyncClient, name: str) -> Topic:
    """RefusedError."""
    found = await topics_named(client, name)
    if not found:
        raise RefusedError(pb.TOPIC_NOT_FOUND, f"there is no topic {name}")
    return found[0]


class QueueCounts:
    """Those of the topics that one client sends to. Belongs to the event loop."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._topics: dict[str, _Topic] = {}

    async def of(self, topic: str) -> int:
        """Callers go on in the order in which they came. RefusedError, StrataError."""
        loop = asyncio.get_running_loop()
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = _Topic()
        found.callers += 1
        try:
            async with found.turn:
                if loop.time() >= found.until:
                    found.count = (await existing(self._client, topic)).write_queue_count
                    found.until = loop.time() + FRESH_S
                return found.count
        finally:
            found.callers -= 1
            self._drop_unknown(topic, found)

    def forget(self, topic: str) -> None:
        """It is asked again by the next caller: the log has refused a message."""
        found = self._topics.get(topic)
        if found is not None:
            found.until = 0.0
            self._drop_unknown(topic, found)

    def _drop_unknown(self, topic: str, found: "_Topic") -> None:
        """A client may name any number of topics that are not there."""
        if not found.until and not found.callers:
            self._topics.pop(topic, None)


class _Topic:
    __slots__ = ("callers", "count", "turn", "until")

    def __init__(self) -> None:
        self.callers = 0
        self.count = 0
        self.until = 0.0
        """On the event loop's clock; 0: not known."""
        self.turn = asyncio.Lock()
