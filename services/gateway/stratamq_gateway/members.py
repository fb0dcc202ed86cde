"""Who produces and consumes with which group, as clients say with their heartbeats:
`spec/remoting.md` 7.

In memory: a client says all of it again every 30 s. A connection that ends takes its client out at
once. Consumers at the broker's other gateways are members like those that are connected here; what
is new of the latter is for `other_gateways.py` to tell.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Protocol

from stratamq.errors import InvalidRequestError
from stratamq.files.port import Clock
from stratamq.filters.sql92 import Filter, sql92
from stratamq.formats.javahash import tags_code
from stratamq.formats.text import check_name
from stratamq_gateway.frames import Command, decode_json

EXPIRY_S, EXPIRE_INTERVAL_S = 120, 1.0
NEWER_S = 1.0
"""How long a pull waits for the heartbeat that says what it is about."""
MAX_GROUPS_OF_CLIENT = 1_000
"""Also of one connection, with all client ids that it names."""
LARGEST_VERSION = (1 << 63) - 1
TOLD_AT_ONCE = 64
"""Members of a group that are told of a change before others get a turn: half a millisecond."""
ALL_TAGS = "*"
TAG, SQL = "TAG", "SQL92"
"""The kinds of expressions."""
DETAILS: Mapping[str, Mapping[int, str]] = {
    "consumeType": {0: "CONSUME_ACTIVELY", 1: "CONSUME_PASSIVELY"},
    "messageModel": {0: "BROADCASTING", 1: "CLUSTERING"},
    "consumeFromWhere": {
        0: "CONSUME_FROM_LAST_OFFSET",
        4: "CONSUME_FROM_FIRST_OFFSET",
        5: "CONSUME_FROM_TIMESTAMP",
    },
}
"""What a consumer says of itself. The C++ client says it with numbers."""


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
    subscriptions: tuple[SubscriptionData, ...]
    since_ms: int

    def named(self, detail: str) -> str | None:
        """The name of what it says of itself (`DETAILS`); None: it says something else."""
        said, known = self.details.get(detail), DETAILS[detail]
        if isinstance(said, int):
            return known.get(said)
        return said if isinstance(said, str) and said in known.values() else None


@dataclass(slots=True)
class Group:
    consumers: dict[str, Consumer] = field(default_factory=dict)
    """Those that are connected here."""
    elsewhere: dict[tuple[int, str], Consumer] = field(default_factory=dict)
    """By gateway and client id."""
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    """Those of the members, by topic."""
    subscribers: Counter[str] = field(default_factory=Counter)
    """How many members subscribe to each topic."""
    awaited: dict[str, int] = field(default_factory=dict)
    """The newest version of a topic's subscription for which a pull has waited."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced, with each heartbeat."""

    @property
    def members(self) -> Mapping[str, Consumer]:
        """By client id. One that has moved may be known at two gateways for a moment."""
        return {one.client_id: one for one in self.elsewhere.values()} | self.consumers


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
        check_name(name)
    return Heartbeat(client_id, producers, consumers)


def subscription_of(said: Mapping[str, Any]) -> SubscriptionData:
    """What a heartbeat says of a topic. KeyError, TypeError, ValueError."""
    version = int(said.get("subVersion") or 0)
    if abs(version) > LARGEST_VERSION:
        raise ValueError("subVersion has more than 64 bits")
    return subscription(
        str(said["topic"]),
        str(said.get("subString") or ALL_TAGS),
        str(said.get("expressionType") or TAG),
        version,
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
        self.groups: dict[str, Group] = {}
        self.producers: dict[str, dict[str, Channel]] = {}
        """Connections by group and client id."""
        self._produced_ns: dict[tuple[str, str], int] = {}
        """When each of them was heard of, the longest ago first."""
        self._of_channel: dict[Channel, set[tuple[str, str, bool]]] = {}
        """Groups, client ids, and whether these consume."""
        self._telling: dict[str, asyncio.Task[None]] = {}
        self._untold: set[str] = set()
        self.unsaid: set[tuple[str, str]] = set()
        """Groups and client ids of which the other gateways do not know the latest."""
        self.says_news = False
        """Whether it is said to them now. If not, they are told of all members later."""
        self.has_unsaid = asyncio.Event()

    def beat(self, channel: Channel, heartbeat: Heartbeat) -> None:
        """Take note of what a client says. It is told, with the other members of a group, when that
        changes who divides its queues. InvalidRequestError."""
        now_ns, client_id = self._clock.monotonic_ns(), heartbeat.client_id
        self._join(channel, heartbeat)
        for name in heartbeat.producers:
            self.producers.setdefault(name, {})[client_id] = channel
            self._produced_ns.pop((name, client_id), None)
            self._produced_ns[name, client_id] = now_ns
        for name, details, subscriptions in heartbeat.consumers:
            group = self.groups.setdefault(name, Group())
            known = group.consumers.get(client_id)
            changed = known is None or known.channel is not channel
            since_ms = self._clock.wall_ms() if known is None or changed else known.since_ms
            consumer = Consumer(client_id, channel, now_ns, details, subscriptions, since_ms)
            group.consumers.pop(client_id, None)
            group.consumers[client_id] = consumer  # behind those that were heard of before
            changed |= self._subscribe(group, known, consumer)
            before = known and (known.details, known.subscriptions)
            if changed or before != (details, subscriptions):
                self._say(name, client_id)
            if changed:
                self._tell(name, group)

    def beat_elsewhere(self, gateway: int, name: str, consumer: Consumer) -> None:
        """The same, of a client at another gateway, which tells its own members."""
        group = self.groups.setdefault(name, Group())
        known = group.elsewhere.get((gateway, consumer.client_id))
        group.elsewhere[gateway, consumer.client_id] = consumer
        if self._subscribe(group, known, consumer) or known is None:
            self._tell(name, group, at_once=False)

    def left_elsewhere(self, gateway: int, name: str, client_id: str) -> None:
        group = self.groups.get(name)
        consumer = group and group.elsewhere.pop((gateway, client_id), None)
        if group and consumer:
            self._lost_member(name, group, consumer, at_once=False)

    def _join(self, channel: Channel, heartbeat: Heartbeat) -> None:
        client_id = heartbeat.client_id
        said = {(name, client_id, False) for name in heartbeat.producers}
        said.update((name, client_id, True) for name, *_ in heartbeat.consumers)
        joined = self._of_channel.get(channel, set())
        if len(joined) + len(said) > MAX_GROUPS_OF_CLIENT < len(joined | said):
            raise InvalidRequestError(f"a connection has at most {MAX_GROUPS_OF_CLIENT} groups")
        joined |= said
        self._of_channel[channel] = joined

    def _subscribe(self, group: Group, before: Consumer | None, now: Consumer) -> bool:
        """Whether the topics changed. The newer one of two expressions for a topic counts."""
        topics = set(group.subscriptions)
        listed = {one.topic: one for one in now.subscriptions}
        group.subscribers.update(listed.keys())
        if before is not None:
            self._unsubscribe(group, before)
        for topic, one in listed.items():
            known = group.subscriptions.get(topic)
            if known is None or one.version >= known.version:
                group.subscriptions[topic] = one
        group.news.set()
        group.news = asyncio.Event()
        return set(group.subscriptions) != topics

    def _unsubscribe(self, group: Group, consumer: Consumer) -> None:
        """What no other member subscribes to is no topic of the group."""
        for topic in {one.topic for one in consumer.subscriptions}:
            group.subscribers[topic] -= 1
            if not group.subscribers[topic]:
                del group.subscribers[topic], group.subscriptions[topic]
                group.awaited.pop(topic, None)

    def stop_producing(self, channel: Channel, group: str, client_id: str) -> None:
        self._of_channel.get(channel, set()).discard((group, client_id, False))
        producers = self.producers.get(group, {})
        if producers.get(client_id) is channel:
            del producers[client_id], self._produced_ns[group, client_id]
            if not producers:
                del self.producers[group]

    def stop_consuming(self, channel: Channel, group: str, client_id: str) -> None:
        self._of_channel.get(channel, set()).discard((group, client_id, True))
        found = self.groups.get(group)
        consumer = found and found.consumers.get(client_id)
        if found and consumer and consumer.channel is channel:
            del found.consumers[client_id]
            self._say(group, client_id)
            self._lost_member(group, found, consumer)

    def closed(self, channel: Channel) -> None:
        for group, client_id, consumes in self._of_channel.pop(channel, ()):
            stop = self.stop_consuming if consumes else self.stop_producing
            stop(channel, group, client_id)

    def expire(self) -> None:
        """Forget clients without a heartbeat for `EXPIRY_S`."""
        late_ns = self._clock.monotonic_ns() - EXPIRY_S * 1_000_000_000
        late = [
            (consumer.channel, name, consumer.client_id)
            for name, group in self.groups.items()
            for consumer in takewhile(lambda one: one.seen_ns < late_ns, group.consumers.values())
        ]
        for channel, name, client_id in late:
            self.stop_consuming(channel, name, client_id)
        heard = self._produced_ns
        for name, client_id in [*takewhile(lambda one: heard[one] < late_ns, heard)]:
            self.stop_producing(self.producers[name][client_id], name, client_id)

    def _lost_member(
        self, name: str, group: Group, consumer: Consumer, *, at_once: bool = True
    ) -> None:
        self._unsubscribe(group, consumer)
        if group.consumers or group.elsewhere:
            self._tell(name, group, at_once=at_once)
        else:
            del self.groups[name]

    def _say(self, name: str, client_id: str) -> None:
        if self.says_news:
            self.unsaid.add((name, client_id))
            self.has_unsaid.set()

    def _tell(self, name: str, group: Group, *, at_once: bool = True) -> None:
        """Its members divide the queues again. A large group, or one of which many changes
        come together from another gateway, is told beside other work, and once for all changes
        that came meanwhile."""
        if at_once and len(group.consumers) <= TOLD_AT_ONCE and name not in self._telling:
            for consumer in group.consumers.values():
                consumer.channel.notify(self._changed_code, {"consumerGroup": name})
            return
        self._untold.add(name)
        if name not in self._telling:
            self._telling[name] = asyncio.get_running_loop().create_task(self._tell_all(name))

    async def _tell_all(self, name: str) -> None:
        while name in self._untold:
            self._untold.discard(name)
            group = self.groups.get(name)
            channels = [one.channel for one in group.consumers.values()] if group else []
            for number, channel in enumerate(channels, 1):
                channel.notify(self._changed_code, {"consumerGroup": name})
                if number % TOLD_AT_ONCE == 0:
                    await asyncio.sleep(0)
        del self._telling[name]

    # --- what others ask ---

    def consumers(self, group: str) -> Collection[str]:
        found = self.groups.get(group)
        return [] if found is None else list(found.members)

    def here(self) -> list[tuple[str, str]]:
        """Groups and client ids of all consumers that are connected here."""
        return [(name, one) for name, group in self.groups.items() for one in group.consumers]

    def consumer_here(self, group: str, client_id: str) -> Consumer | None:
        found = self.groups.get(group)
        return None if found is None else found.consumers.get(client_id)

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
