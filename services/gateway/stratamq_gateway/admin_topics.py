"""Requests of tools about topics: 17, 21, 100 to 102, 202, 215, 216, 219, 300, 304, 305, 321,
351.
`spec/remoting.md` 3 and 11."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from stratamq.client import AsyncClient, MessageType, Topic
from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.formats.topic_types import MESSAGE_TYPE
from stratamq.formats.topics import is_system_topic, validate_topic_name
from stratamq_gateway.brokers import BrokerName, Brokers, order_of, places_of, topics_named
from stratamq_gateway.codes import ResponseCode
from stratamq_gateway.frames import Answer, Command, boolean, compact, number, text, with_table
from stratamq_gateway.members import ConnectedClients
from stratamq_gateway.routes import (
    RETRY_PREFIX,
    NoRequest,
    OfTopic,
    RetryTopics,
    TopicName,
    WithoutFields,
    data_version,
)

ORDERED = "ORDER_TOPIC_CONFIG"
"""The one namespace of a name server's settings that means something here."""
MAX_UNITS = 1_000
_SINGLE_TAG = "SINGLE_TAG"


class TopicChange(NamedTuple):
    """The rule of PutTopic reads `topic` and `change`."""

    topic: TopicName
    change: TopicName
    settings: Topic
    message_type: MessageType | None = None
    """None: as it is."""


class PutTopic:
    """17: create a topic or change it. What the request leaves out of a topic's attributes
    stays."""

    use_case = "PutTopic"

    def decode(self, command: Command) -> TopicChange:
        fields = command.fields
        name = validate_topic_name(text(fields, "topic"))
        if fields.get("topicFilterType", _SINGLE_TAG) != _SINGLE_TAG:
            raise InvalidRequestError("topics with several tags for each message are not supported")
        settings = Topic(
            name,
            number(fields, "readQueueNums"),
            number(fields, "writeQueueNums"),
            number(fields, "perm"),
            boolean(fields, "order"),
            number(fields, "topicSysFlag", default=0),
        )
        kind = _message_type(fields.get("attributes", ""))
        return TopicChange(TopicName(name), TopicName(), settings, kind)

    async def answer(self, client: AsyncClient, channel: object, asked: TopicChange) -> Answer:
        kind = asked.message_type
        if kind is None:
            known = await topics_named(client, asked.settings.name)
            kind = known[0].message_type if known else MessageType.UNSPECIFIED
        await client.admin.put_topic(replace(asked.settings, message_type=kind))
        return Answer()


def _message_type(attributes: str) -> MessageType | None:
    """Read `+name=value,-name`. None: the type is not among them."""
    found = None
    for one in filter(None, attributes.split(",")):
        name, _, value = one[1:].partition("=")
        if name != MESSAGE_TYPE or one[0] not in "+-":
            raise InvalidRequestError(f"{one!r:.80} is no attribute of topics: +{MESSAGE_TYPE}=…")
        try:
            found = MessageType(value) if one[0] == "+" else MessageType.UNSPECIFIED
        except ValueError as error:
            raise InvalidRequestError(f"there is no type {value!r:.80} of topics") from error
    return found


class DeleteTopic:
    """215, and 216 for a name server. A topic that is not there is deleted, as in RocketMQ."""

    use_case = "DeleteTopic"

    def __init__(self, retry_topics: RetryTopics) -> None:
        self._retry_topics = retry_topics

    def decode(self, command: Command) -> TopicName:
        return TopicName(validate_topic_name(text(command.fields, "topic")))

    async def answer(self, client: AsyncClient, channel: object, asked: TopicName) -> Answer:
        if await topics_named(client, asked.topic):
            await client.admin.delete_topic(asked.topic)
        self._retry_topics.forget(asked.topic)
        return Answer()


# --- what a topic is ---


def _config(topic: Topic) -> dict[str, object]:
    kind = topic.message_type
    return {
        "attributes": {} if kind is MessageType.UNSPECIFIED else {MESSAGE_TYPE: kind.value},
        "order": topic.ordered,
        "perm": topic.permission,
        "readQueueNums": topic.read_queue_count,
        "topicFilterType": _SINGLE_TAG,
        "topicName": topic.name,
        "topicSysFlag": topic.system_flags,
        "writeQueueNums": topic.write_queue_count,
    }


class TopicConfigs(WithoutFields):
    """21."""

    use_case = "ListTopics"

    async def answer(self, client: AsyncClient, channel: object, asked: NoRequest) -> Answer:
        table = {one.name: _config(one) for one in await client.topics()}
        version = data_version(len(table))
        said = {"dataVersion": version, "mappingDataVersion": version, "topicConfigTable": table}
        return Answer(body=compact(said))


class TopicConfigOf(OfTopic):
    """351. Tools ask it of each topic that a group has, and give up without an answer: the retry
    topic of a group is there before its first message, as in the routes."""

    use_case = "ListTopics"

    async def answer(self, client: AsyncClient, channel: object, asked: TopicName) -> Answer:
        topics = await topics_named(client, asked.topic)
        if not topics and asked.topic.startswith(RETRY_PREFIX):
            topics = [Topic(asked.topic, 1, 1)]
        if not topics:
            remark = f"No topic in this broker. topic: {asked.topic}"
            return Answer(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        return Answer(body=compact(_config(topics[0])))


class SystemTopics(WithoutFields):
    """304 of a name server, which names a broker; 305 of the broker."""

    use_case = "ListTopics"

    def __init__(self, where: BrokerName) -> None:
        self._where = where

    async def answer(self, client: AsyncClient, channel: object, asked: NoRequest) -> Answer:
        names = [one.name for one in await client.topics() if is_system_topic(one.name)]
        return Answer(body=compact({"brokerAddr": self._where.address, "topicList": names}))


class TopicStats(OfTopic):
    """202. `topicPutTps` is 0: rates are among the metrics."""

    use_case = "ListQueues"

    def __init__(self, where: BrokerName) -> None:
        self._where = where

    async def answer(self, client: AsyncClient, channel: object, asked: TopicName) -> Answer:
        topics = await topics_named(client, asked.topic)
        if not topics:
            remark = f"topic[{asked.topic}] not exist"
            return Answer(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        known = {one.queue_id: one for one in await client.queues(asked.topic)}
        count = max(topics[0].read_queue_count, topics[0].write_queue_count)
        table = []
        for queue_id in sorted({*range(count), *known}):
            one = known.get(queue_id)
            offsets = {
                "lastUpdateTimestamp": one.newest_store_timestamp_ms if one else 0,
                "maxOffset": one.max_offset if one else 0,
                "minOffset": one.min_offset if one else 0,
            }
            table.append((self._where.queue(asked.topic, queue_id), offsets))
        return Answer(body=with_table("offsetTable", table, topicPutTps=0))


class GroupsOfTopic(OfTopic):
    """300: who has read the topic, and who is connected to read it."""

    use_case = "ListGroups"

    def __init__(self, members: ConnectedClients) -> None:
        self._members = members

    async def answer(self, client: AsyncClient, channel: object, asked: TopicName) -> Answer:
        found = {one.group for one in await client.groups() if one.topic == asked.topic}
        found |= {
            name
            for name, group in self._members.groups.items()
            if asked.topic in group.subscriptions
        }
        return Answer(body=compact({"groupList": sorted(found)}))


class UnitsAsked(NamedTuple):
    topic: str
    queue_id: int
    offset: int
    most: int


class QueueUnits:
    """321: entries of a consume queue."""

    use_case = "ListUnits"

    def decode(self, command: Command) -> UnitsAsked:
        fields = command.fields
        return UnitsAsked(
            text(fields, "topic"),
            number(fields, "queueId"),
            number(fields, "index"),
            number(fields, "count"),
        )

    async def answer(self, client: AsyncClient, channel: object, asked: UnitsAsked) -> Answer:
        queues = [one for one in await client.queues(asked.topic) if one.queue_id == asked.queue_id]
        if not queues:
            raise NotFoundError(f"there is no queue {asked.topic}:{asked.queue_id}")
        most = min(max(1, asked.most), MAX_UNITS)
        found = await client.units(asked.topic, asked.queue_id, max(0, asked.offset), most)
        units = [
            {
                "eval": False,
                "physicOffset": one.physical_offset,
                "physicSize": one.size,
                "tagsCode": one.tags_code,
            }
            for one in found
        ]
        bounds = {"minQueueIndex": queues[0].min_offset, "maxQueueIndex": queues[0].max_offset}
        return Answer(body=compact({**bounds, "queueData": units}))


# --- which topics are ordered: a name server's settings ---


class OrderedTopic:
    """101: `broker:queues` of an ordered topic."""

    use_case = "ListTopics"

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def decode(self, command: Command) -> TopicName:
        return TopicName(text(command.fields, "key") if _is_order(command.fields) else "")

    async def answer(self, client: AsyncClient, channel: object, asked: TopicName) -> Answer:
        if asked.topic:
            order = order_of(await self._brokers.topics(client, asked.topic))
            if order:
                return Answer(fields={"value": order[asked.topic]})
        remark = f"No config item, Namespace: {ORDERED} Key: {asked.topic}"
        return Answer(ResponseCode.QUERY_NOT_FOUND, remark=remark)


class OrderedTopics:
    """219."""

    use_case = "ListTopics"

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def decode(self, command: Command) -> NoRequest:
        if not _is_order(command.fields):
            raise NotFoundError(f"the only namespace with settings is {ORDERED}")
        return NoRequest()

    async def answer(self, client: AsyncClient, channel: object, asked: NoRequest) -> Answer:
        return Answer(body=compact({"table": order_of(await self._brokers.topics(client))}))


class Ordering(NamedTuple):
    """The rule of PutTopic reads `topic` and `change`."""

    topic: TopicName
    change: TopicName
    value: str


class OrderTopic:
    """100 and 102. The value says where a topic's queues are, which cannot be chosen here: it is
    refused where it says something else."""

    use_case = "PutTopic"

    def __init__(self, brokers: Brokers, *, ordered: bool) -> None:
        self._brokers = brokers
        self._ordered = ordered

    def decode(self, command: Command) -> Ordering:
        fields = command.fields
        name = validate_topic_name(text(fields, "key"))
        if not _is_order(fields):
            raise InvalidRequestError(f"the only namespace that takes settings is {ORDERED}")
        value = text(fields, "value") if self._ordered else ""
        return Ordering(TopicName(name), TopicName(), value)

    async def answer(self, client: AsyncClient, channel: object, asked: Ordering) -> Answer:
        name = asked.topic.topic
        found = [one for one in await self._brokers.topics(client, name) if one[1]]
        if self._ordered:
            if not found:
                raise NotFoundError(f"there is no topic {name}")
            where = places_of(found)[name]
            if asked.value.strip(";") != where:
                raise InvalidRequestError(f"the queues of the topic {name} are {where}")
        for broker, (topic,) in found:
            if topic.ordered != self._ordered:
                there = broker.client or client
                await there.admin.alter_topic(name, ordered=self._ordered)
        return Answer()


def _is_order(fields: Mapping[str, str]) -> bool:
    return text(fields, "namespace") == ORDERED
