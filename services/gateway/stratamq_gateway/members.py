"""Who produces and consumes with which group, as clients say with their heartbeats:
`spec/remoting.md` 7.

In memory, of this process: a client says all of it again every 30 s, and to each process that it is
connected to. A connection that ends takes its client out at once.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from stratamq.errors import InvalidRequestError
from stratamq.files.port import Clock
from stratamq.filters.sql92 import Filter, sql92
from stratamq.formats.javahash import tags_code
from stratamq_gateway.frames import Command, decode_json
from stratamq_gateway.locks import QueueLocks

EXPIRY_S, EXPIRE_INTERVAL_S = 120, 1.0
NEWER_S = 1.0
"""How long a pull waits for the heartbeat that says what it is about."""
MAX_NAME_BYTES = 255
MAX_GROUPS_OF_CLIENT = 1_000
ALL_TAGS = "*"
TAG, SQL = "TAG", "SQL92"
"""The kinds of expressions."""


class Channel(Protocol):
    """A client's connection."""

    language: str
    version: int

    @property
    def address(self) -> str: ...

    def notify(self, code: int, fields: dict[str, object], body: bytes = b"") -> None:
        """Send a request that has no answer."""

    async def ask(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> Command:
        """Send a request, and return the client's answer. TimeoutError, UnavailableError: the
        client is gone."""


@dataclass(frozen=True, slots=True)
class SubscriptionData:
    topic: str
    expression: str
    kind: str
    version: int
    tags_codes: tuple[int, ...]
    """Empty: all messages."""

    def filter(self) -> Filter | None:
        """None: tags select. InvalidRequestError: the expression is none."""
        if self.kind == TAG:
            return None
        if self.kind != SQL:
            raise InvalidRequestError(f"expressions are {TAG} or {SQL}: {self.kind!r:.80}")
        return sql92(self.expression)


@dataclass(slots=True)
class Consumer:
    client_id: str
    channel: Channel
    seen_ns: int
    details: dict[str, Any]
    """What the heartbeat says of the group: consumeType, messageModel, consumeFromWhere."""


@dataclass(slots=True)
class Group:
    consumers: dict[str, Consumer] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    awaited: dict[str, int] = field(default_factory=dict)
    """The newest version of a topic's subscription for which a pull has waited."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced, with each heartbeat."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    client_id: str
    producers: tuple[str, ...]
    consumers: tuple[tuple[str, dict[str, Any], tuple[SubscriptionData, ...]], ...]


def decode_heartbeat(body: bytes) -> Heartbeat:
    """InvalidRequestError."""
    try:
        said = decode_json(body)
        client_id = str(said["clientID"])
        producers = tuple(str(one["groupName"]) for one in said.get("producerDataSet") or ())
        consumers = tuple(
            (
                str(one["groupName"]),
                {name: one[name] for name in one if name != "subscriptionDataSet"},
                tuple(map(subscription_of, one.get("subscriptionDataSet") or ())),
            )
            for one in said.get("consumerDataSet") or ()
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidRequestError(f"a heartbeat that cannot be decoded: {error!r}") from error
    if len(producers) + len(consumers) > MAX_GROUPS_OF_CLIENT:
        raise InvalidRequestError(f"a client has at most {MAX_GROUPS_OF_CLIENT} groups")
    for name in (client_id, *producers, *(group for group, *_ in consumers)):
        if not name or len(name.encode()) > MAX_NAME_BYTES:
            raise InvalidRequestError(f"a name has 1 to {MAX_NAME_BYTES} bytes: {name!r:.80}")
    return Heartbeat(client_id, producers, consumers)


def subscription_of(said: Mapping[str, Any]) -> SubscriptionData:
    """What a heartbeat says of a topic. KeyError, TypeError, ValueError."""
    return subscription(
        str(said["topic"]),
        str(said.get("subString") or ALL_TAGS),
        str(said.get("expressionType") or TAG),
        int(said.get("subVersion") or 0),
    )


def subscription(
    topic: str, expression: str, kind: str = TAG, version: int = 0
) -> SubscriptionData:
    """Parse RocketMQ's expression `A || B`; of other kinds when a message is judged."""
    tags = [one.strip() for one in expression.split("||")] if kind == TAG else [ALL_TAGS]
    codes = () if ALL_TAGS in tags else tuple(tags_code(one) for one in tags if one)
    return SubscriptionData(topic, expression, kind, version, codes)


class ConnectedClients:
    """Belongs to the event loop."""

    def __init__(self, clock: Clock, changed_code: int) -> None:
        self._clock = clock
        self._changed_code = changed_code
        self.locks = QueueLocks(clock)
        self.groups: dict[str, Group] = {}
        self.producers: dict[str, dict[str, Channel]] = {}
        """Connections by group and client id."""
        self._of_channel: dict[Channel, set[tuple[str, str]]] = {}

    def beat(self, channel: Channel, heartbeat: Heartbeat) -> None:
        """Take note of what a client says. It is told, with the other members of a group, when that
        changes who divides its queues."""
        now_ns = self._clock.monotonic_ns()
        joined = self._of_channel.setdefault(channel, set())
        for name in heartbeat.producers:
            self.producers.setdefault(name, {})[heartbeat.client_id] = channel
            joined.add((name, heartbeat.client_id))
        for name, details, subscriptions in heartbeat.consumers:
            group = self.groups.setdefault(name, Group())
            known = group.consumers.get(heartbeat.client_id)
            changed = known is None or known.channel is not channel
            consumer = Consumer(heartbeat.client_id, channel, now_ns, details)
            group.consumers[heartbeat.client_id] = consumer
            changed |= self._subscribe(group, subscriptions)
            joined.add((name, heartbeat.client_id))
            if changed:
                self._tell(name, group)

    def _subscribe(self, group: Group, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Whether the topics changed. The newer one of two expressions for a topic counts."""
        before = set(group.subscriptions)
        listed = {one.topic: one for one in subscriptions}
        if len(group.consumers) == 1:
            group.subscriptions = {
                topic: one for topic, one in group.subscriptions.items() if topic in listed
            }
        for topic, one in listed.items():
            known = group.subscriptions.get(topic)
            if known is None or one.version >= known.version:
                group.subscriptions[topic] = one
        group.news.set()
        group.news = asyncio.Event()
        return set(group.subscriptions) != before

    def leave(self, channel: Channel, group: str, client_id: str) -> None:
        """The client has stopped working with the group; as a producer or as a consumer."""
        self._of_channel.get(channel, set()).discard((group, client_id))
        self._remove(channel, group, client_id)

    def closed(self, channel: Channel) -> None:
        for group, client_id in self._of_channel.pop(channel, ()):
            self._remove(channel, group, client_id)

    def expire(self) -> None:
        """Forget clients without a heartbeat for `EXPIRY_S`, and locks that were not refreshed."""
        now_ns = self._clock.monotonic_ns()
        late = [
            (consumer.channel, name, consumer.client_id)
            for name, group in self.groups.items()
            for consumer in group.consumers.values()
            if now_ns - consumer.seen_ns > EXPIRY_S * 1_000_000_000
        ]
        for channel, name, client_id in late:
            self.leave(channel, name, client_id)
        self.locks.expire()

    def _remove(self, channel: Channel, name: str, client_id: str) -> None:
        producers = self.producers.get(name, {})
        if producers.get(client_id) is channel:
            del producers[client_id]
            if not producers:
                del self.producers[name]
        group = self.groups.get(name)
        consumer = group and group.consumers.get(client_id)
        if not group or not consumer or consumer.channel is not channel:
            return
        del group.consumers[client_id]
        if group.consumers:
            self._tell(name, group)
        else:
            del self.groups[name]

    def _tell(self, name: str, group: Group) -> None:
        """Its members divide the queues again."""
        for consumer in group.consumers.values():
            consumer.channel.notify(self._changed_code, {"consumerGroup": name})

    # --- what others ask ---

    def consumers(self, group: str) -> list[str]:
        found = self.groups.get(group)
        return [] if found is None else list(found.consumers)

    def producer(self, client_id: str) -> Channel | None:
        """The client's connection, in whatever group it produces."""
        for clients in self.producers.values():
            if client_id in clients:
                return clients[client_id]
        return None

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        found = self.groups.get(group)
        return None if found is None else found.subscriptions.get(topic)

    def lacks(self, group: str, topic: str, version: int) -> bool:
        """Whether a member has a newer subscription than it has said, for which no pull has waited
        in vain."""
        found = self.groups.get(group)
        known = found and found.subscriptions.get(topic)
        if not found or not known:
            return False
        return version > max(known.version, found.awaited.get(topic, 0))

    async def wait_for_newer(self, group: str, topic: str, version: int) -> None:
        """A member pulls by a subscription before it says which, when it divides the queues. It may
        say so with its heartbeat in 20 s: other pulls do not wait for it again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(NEWER_S):
                while self.lacks(group, topic, version):
                    await self.groups[group].news.wait()
                return
        if self.lacks(group, topic, version):
            self.groups[group].awaited[topic] = version
