"""Requests about groups: heartbeats, members, locks, filters (34, 35, 38, 41, 42, 46).
`spec/remoting.md` 7."""

from contextlib import suppress
from typing import NamedTuple

from stratamq.client import AsyncClient
from stratamq.errors import InvalidRequestError, NotWritableError
from stratamq_gateway.codes import ResponseCode
from stratamq_gateway.fields import text
from stratamq_gateway.frames import Answer, Command, compact, decode_json
from stratamq_gateway.members import (
    Channel,
    ConnectedClients,
    Heartbeat,
    QueueName,
    SubscriptionData,
    decode_heartbeat,
    subscription_of,
)
from stratamq_gateway.routes import RetryTopics, TopicName


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

    def __init__(self, members: ConnectedClients, retry_topics: RetryTopics) -> None:
        self._members = members
        self._retry_topics = retry_topics

    def decode(self, command: Command) -> Beat:
        return Beat(decode_heartbeat(command.body))

    async def answer(self, client: AsyncClient, channel: Channel, asked: Beat) -> Answer:
        heartbeat = asked.heartbeat
        self._members.beat(channel, heartbeat)
        # A slave's topics come from its master, where the consumer's heartbeat makes them.
        with suppress(NotWritableError):
            for group, details, _ in heartbeat.consumers:
                if details.get("messageModel") not in ("BROADCASTING", 0):
                    await self._retry_topics.require(group)
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
    groups: tuple[str, ...]


class Unregister:
    """35."""

    use_case = "GetStatus"

    def __init__(self, members: ConnectedClients) -> None:
        self._members = members

    def decode(self, command: Command) -> Leaving:
        fields = command.fields
        groups = (fields.get("producerGroup", ""), fields.get("consumerGroup", ""))
        return Leaving(text(fields, "clientID"), tuple(filter(None, groups)))

    async def answer(self, client: AsyncClient, channel: Channel, asked: Leaving) -> Answer:
        for group in asked.groups:
            self._members.leave(channel, group, asked.client_id)
        return Answer()


class OfGroup(NamedTuple):
    group: str


class ListConsumers:
    """38."""

    use_case = "ListGroupMembers"

    def __init__(self, members: ConnectedClients) -> None:
        self._members = members

    def decode(self, command: Command) -> OfGroup:
        return OfGroup(text(command.fields, "consumerGroup"))

    async def answer(self, client: AsyncClient, channel: Channel, asked: OfGroup) -> Answer:
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

    def __init__(self, members: ConnectedClients, *, lock: bool) -> None:
        self._members = members
        self._lock = lock

    def decode(self, command: Command) -> Locking:
        try:
            said = decode_json(command.body)
            queues = tuple(
                (str(one["brokerName"]), str(one["topic"]), int(one["queueId"]))
                for one in said["mqSet"]
            )
            return Locking(str(said["consumerGroup"]), str(said["clientId"]), queues)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InvalidRequestError(f"queues that cannot be decoded: {error!r}") from error

    async def answer(self, client: AsyncClient, channel: Channel, asked: Locking) -> Answer:
        if not self._lock:
            self._members.unlock(asked.group, asked.client_id, asked.queues)
            return Answer()
        granted = self._members.lock(asked.group, asked.client_id, asked.queues)
        queues = [
            {"brokerName": broker, "queueId": queue_id, "topic": topic}
            for broker, topic, queue_id in granted
        ]
        return Answer(body=compact({"lockOKMQSet": queues}))
