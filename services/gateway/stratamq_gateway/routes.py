"""What a name server answers: 105, 106, 206, 224. `spec/remoting.md` 3."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from stratamq.client import AsyncClient, Topic
from stratamq.formats.topics import (
    AUTO_CREATE_TOPIC,
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    validate_topic_name,
)
from stratamq_gateway.brokers import BrokerName, Brokers, RoutedBroker
from stratamq_gateway.codes import ResponseCode
from stratamq_gateway.frames import Answer, Command, compact, text, with_table

TOPICS_AT_ONCE = 32
_AUTO_QUEUES = 8


class TopicName(NamedTuple):
    topic: str = ""
    group: str = ""
    """None: the rule of ListGroups reads it."""


class NoRequest(NamedTuple):
    """The rules of listings read `topic` or `group`: all of them."""

    topic: str = ""
    group: str = ""


class WithoutFields:
    def decode(self, command: Command) -> NoRequest:
        return NoRequest()


class OfTopic:
    def decode(self, command: Command) -> TopicName:
        return TopicName(text(command.fields, "topic"))


def data_version(counter: int = 0) -> dict[str, object]:
    """What RocketMQ's brokers compare to see whether a table has changed."""
    return {"counter": counter, "stateVersion": 0, "timestamp": 0}


class RetryTopics:
    """Make the topics of what a group failed at, with the broker's own rights: a caller that may
    consume for a group may send it back."""

    def __init__(self, own: AsyncClient) -> None:
        self._own = own
        self._there: set[str] = set()

    async def require(self, group: str, *, dead: bool = False) -> None:
        name = (DEAD_LETTER_PREFIX if dead else RETRY_PREFIX) + group
        if name not in self._there:
            validate_topic_name(name)
            await self._own.admin.create_topic(Topic(name, 1, 1), if_not_exists=True)
            self._there.add(name)

    async def require_all(self, groups: Sequence[str]) -> None:
        """Make the retry topics of several groups together: the log's table of topics is written
        once for those that come at once. An error is raised when the others' are there."""
        errors: list[BaseException] = []
        for first in range(0, len(groups), TOPICS_AT_ONCE):
            some = groups[first : first + TOPICS_AT_ONCE]
            found = await asyncio.gather(*map(self.require, some), return_exceptions=True)
            errors += [one for one in found if one is not None]
        if errors:
            raise errors[0]

    def forget(self, name: str) -> None:
        """The topic was deleted."""
        self._there.discard(name)


class Route(OfTopic):
    """105."""

    use_case = "ListTopics"

    def __init__(self, where: BrokerName, brokers: Brokers, *, creates_topics: bool) -> None:
        self._where = where
        self._brokers = brokers
        self._creates_topics = creates_topics

    async def answer(self, client: AsyncClient, channel: object, asked: TopicName) -> Answer:
        found = await self._brokers.topics(client, asked.topic)
        places = [(broker, topics[0]) for broker, topics in found if topics]
        if not places and (common := self._of_all(asked.topic)):
            places = [(broker, common) for broker, _ in found]
        if places:
            return Answer(body=self._route(places))
        remark = f"No topic route info in name server for the topic: {asked.topic}"
        return Answer(ResponseCode.TOPIC_NOT_EXIST, remark=remark)

    def _of_all(self, name: str) -> Topic | None:
        """A topic that has a route at all brokers, though it is not there."""
        if name.startswith(RETRY_PREFIX) or name == self._where.reply_topic:
            # A consumer asks before its first heartbeat, which makes its retry topic.
            return Topic(name, 1, 1)
        if name == AUTO_CREATE_TOPIC and self._creates_topics:
            return Topic(name, _AUTO_QUEUES, _AUTO_QUEUES, 7)
        return None

    def _route(self, places: list[tuple[RoutedBroker, Topic]]) -> bytes:
        return compact(
            {
                "brokerDatas": [
                    {
                        "brokerAddrs": {str(at): one for at, one in enumerate(broker.addresses)},
                        "brokerName": broker.name,
                        "cluster": self._where.cluster,
                        "enableActingMaster": False,
                    }
                    for broker, _ in places
                ],
                "filterServerTable": {},
                "queueDatas": [
                    {
                        "brokerName": broker.name,
                        "perm": topic.permission,
                        "readQueueNums": topic.read_queue_count,
                        "topicSysFlag": topic.system_flags,
                        "writeQueueNums": topic.write_queue_count,
                    }
                    for broker, topic in places
                ],
            }
        )


class ClusterInfo(WithoutFields):
    """106."""

    use_case = "GetStatus"

    def __init__(self, where: BrokerName, brokers: Brokers) -> None:
        self._where = where
        self._brokers = brokers

    async def answer(self, client: AsyncClient, channel: object, asked: NoRequest) -> Answer:
        brokers = self._brokers.now()
        table = b",".join(compact(one.name) + b":" + self._entry(one) for one in brokers)
        clusters = {self._where.cluster: [one.name for one in brokers]}
        said = b'{"brokerAddrTable":{' + table + b'},"clusterAddrTable":' + compact(clusters) + b"}"
        return Answer(body=said)

    def _entry(self, broker: RoutedBroker) -> bytes:
        rest = {
            "brokerName": broker.name,
            "cluster": self._where.cluster,
            "enableActingMaster": False,
        }
        # Numbers are keys, as RocketMQ writes them.
        return with_table("brokerAddrs", enumerate(broker.addresses), **rest)


class TopicList(WithoutFields):
    """206, and 224 for a cluster: there is one."""

    use_case = "ListTopics"

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def answer(self, client: AsyncClient, channel: object, asked: NoRequest) -> Answer:
        found = await self._brokers.topics(client)
        names = {topic.name for _, topics in found for topic in topics}
        return Answer(body=compact({"topicList": sorted(names)}))
