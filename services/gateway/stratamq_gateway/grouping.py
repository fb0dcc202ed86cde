"""Requests about groups: heartbeats, members, locks, filters (34, 35, 38, 41, 42, 46).
`spec/remoting.md` 7."""

from contextlib import suppress
from logging import getLogger
from typing import NamedTuple

from stratamq.client import AsyncClient
from stratamq.errors import InvalidRequestError, NotWritableError, UnavailableError
from stratamq.files.port import Clock
from stratamq.service.queue_locks import QueueName
from stratamq_gateway.codes import RequestCode, ResponseCode
from stratamq_gateway.elsewhere import ClientsElsewhere
from stratamq_gateway.frames import Answer, Command, compact, decode_json, text
from stratamq_gateway.group_rules import GroupRules
from stratamq_gateway.locks import BrokerLocks, locked_queues
from stratamq_gateway.members import (
    Channel,
    ConnectedClients,
    Heartbeat,
    SubscriptionData,
    decode_heartbeat,
    subscription_of,
)
from stratamq_gateway.routes import RetryTopics, TopicName

log = getLogger(__name__)

LARGEST_QUEUE_ID = (1 << 31) - 1


class Beat(NamedTuple):
    heartbeat: Heartbeat

    @property
    def group(self) -> list[str]:
        return [group for group, *_ in self.heartbeat.consumers]

    @property
    def offsets(self) -> list[TopicName]:
        listed = [one for *_, subscriptions in self.heartbeat.consumers for one in subscriptions]
        return [TopicName(one.topic) for one in listed]


class BeatHeart:
    """34."""

    use_case = "CommitOffsets"

    def __init__(
        self, members: ConnectedClients, rules: GroupRules, retry_topics: RetryTopics
    ) -> None:
        self._members = members
        self._rules = rules
        self._retry_topics = retry_topics

    def decode(self, command: Command) -> Beat:
        return Beat(decode_heartbeat(command.body))

    async def answer(self, client: AsyncClient, channel: Channel, asked: Beat) -> Answer:
        heartbeat = asked.heartbeat
        self._members.beat(channel, heartbeat)
        for group, *_ in heartbeat.consumers:
            self._rules.beat(group)
        # A slave's topics come from its master, where the consumer's heartbeat makes them.
        with suppress(NotWritableError):
            await self._retry_topics.require_all(
                [
                    group
                    for group, details, _ in heartbeat.consumers
                    if details.get("messageModel") not in ("BROADCASTING", 0)
                ]
            )
        return Answer(fields={"IS_SUPPORT_HEART_BEAT_V2": True, "IS_SUB_CHANGE": True})


class CheckedSubscription(NamedTuple):
    group: str
    topic: str
    subscription: SubscriptionData


class CheckSubscription:
    """46: a consumer asks whether its expression is one, before it starts."""

    use_case = "Pull"

    def decode(self, command: Command) -> CheckedSubscription:
        try:
            said = decode_json(command.body)
            checked = subscription_of(said["subscriptionData"])
            return CheckedSubscription(str(said["group"]), checked.topic, checked)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InvalidRequestError(f"no subscription: {error!r}") from error

    async def answer(
        self, client: AsyncClient, channel: Channel, asked: CheckedSubscription
    ) -> Answer:
        try:
            asked.subscription.filter()
        except InvalidRequestError as error:
            return Answer(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark=str(error))
        return Answer()


class Leaving(NamedTuple):
    client_id: str
    producer_group: str
    consumer_group: str


class Unregister:
    """35."""

    use_case = "GetStatus"

    def __init__(self, members: ConnectedClients) -> None:
        self._members = members

    def decode(self, command: Command) -> Leaving:
        fields = command.fields
        groups = (fields.get("producerGroup", ""), fields.get("consumerGroup", ""))
        return Leaving(text(fields, "clientID"), *groups)

    async def answer(self, client: AsyncClient, channel: Channel, asked: Leaving) -> Answer:
        self._members.stop_producing(channel, asked.producer_group, asked.client_id)
        self._members.stop_consuming(channel, asked.consumer_group, asked.client_id)
        return Answer()


class OfGroup(NamedTuple):
    group: str


class ListConsumers:
    """38."""

    use_case = "ListGroupMembers"

    def __init__(self, members: ConnectedClients, elsewhere: ClientsElsewhere) -> None:
        self._members = members
        self._elsewhere = elsewhere

    def decode(self, command: Command) -> OfGroup:
        return OfGroup(text(command.fields, "consumerGroup"))

    async def answer(self, client: AsyncClient, channel: Channel, asked: OfGroup) -> Answer:
        await self._elsewhere.known()
        found = self._members.consumers(asked.group)
        if not found:
            remark = f"no consumer for this group, {asked.group}"
            return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        return Answer(body=compact({"consumerIdList": found}))


class Locking(NamedTuple):
    group: str
    client_id: str
    queues: tuple[QueueName, ...]

    @property
    def offsets(self) -> tuple[TopicName, ...]:
        return tuple(TopicName(topic) for _, topic, _ in self.queues)


class LockQueues:
    """41 and 42."""

    use_case = "CommitOffsets"

    def __init__(self, locks: BrokerLocks, clock: Clock, *, lock: bool) -> None:
        self._locks = locks
        self._clock = clock
        self._lock = lock

    def decode(self, command: Command) -> Locking:
        try:
            said = decode_json(command.body)
            queues = tuple(
                QueueName(str(one["brokerName"]), str(one["topic"]), int(one["queueId"]))
                for one in said["mqSet"]
            )
            if any(not 0 <= one.queue_id <= LARGEST_QUEUE_ID for one in queues):
                raise ValueError("a queue id is out of range")
            return Locking(str(said["consumerGroup"]), str(said["clientId"]), queues)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InvalidRequestError(f"queues that cannot be decoded: {error!r}") from error

    async def answer(self, client: AsyncClient, channel: Channel, asked: Locking) -> Answer:
        if not self._lock:
            await self._locks.unlock(*asked)
            return Answer()
        granted, unknown = await self._locks.lock(*asked)
        kept = await self._kept(client, channel, asked, unknown) if unknown else []
        if kept:
            granted += (
                await self._locks.lock(asked.group, asked.client_id, kept, kept=True)
            ).granted
        queues = [
            {"brokerName": broker, "queueId": queue_id, "topic": topic}
            for broker, topic, queue_id in granted
        ]
        return Answer(body=compact({"lockOKMQSet": queues}))

    async def _kept(
        self, client: AsyncClient, channel: Channel, asked: Locking, unknown: list[QueueName]
    ) -> list[QueueName]:
        """Which of them the client may have although earlier locks were lost."""
        offsets = await client.committed_offsets(asked.group)
        unread = {one for one in unknown if not offsets.get((one.topic, one.queue_id))}
        if len(unread) == len(unknown):
            return unknown
        fields = {
            "consumerGroup": asked.group,
            "clientId": asked.client_id,
            "jstackEnable": "false",
        }
        try:
            said = await channel.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        except (TimeoutError, UnavailableError) as error:
            log.info("a client does not say its locks", extra={"group": asked.group, "why": error})
            return list(unread)
        may = unread.union(locked_queues(said.body, self._clock.wall_ms()))
        return [one for one in unknown if one in may]
