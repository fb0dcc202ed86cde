"""What a name server answers: 105, 106, 206, 224. `spec/remoting.md` 3."""

from typing import NamedTuple

from stratamq.client import AsyncClient, Topic
from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.formats.topics import (
    AUTO_CREATE_TOPIC,
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    validate_topic_name,
)
from stratamq_gateway.codes import ResponseCode
from stratamq_gateway.fields import text
from stratamq_gateway.frames import Answer, Command, compact

_AUTO_QUEUES = 8
_MASTER = "0"


class BrokerName(NamedTuple):
    """How clients know the broker that this gateway stands for."""

    cluster: str
    broker: str
    address: str
    """Where clients reach this gateway."""

    @property
    def reply_topic(self) -> str:
        """Where clients send replies to requests. Routes have it, and nothing is stored there."""
        return f"{self.cluster}_REPLY_TOPIC"

    def queue(self, topic: str, queue_id: int) -> dict[str, object]:
        """What RocketMQ calls a MessageQueue."""
        return {"brokerName": self.broker, "queueId": queue_id, "topic": topic}

    def order_of(self, topic: Topic) -> str:
        """Where an ordered topic has its queues."""
        return f"{self.broker}:{topic.write_queue_count}"


class TopicName(NamedTuple):
    topic: str = ""


class NoRequest(NamedTuple):
    """The rules of ListTopics and ListQueues read `topic`: all of them."""

    topic: str = ""


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

    def forget(self, name: str) -> None:
        """The topic was deleted."""
        self._there.discard(name)


class Route:
    """105."""

    use_case = "ListTopics"

    def __init__(self, where: BrokerName, *, creates_topics: bool) -> None:
        self._where = where
        self._creates_topics = creates_topics

    def decode(self, command: Command) -> TopicName:
        return TopicName(text(command.fields, "topic"))

    async def answer(self, client: AsyncClient, channel: object, asked: TopicName) -> Answer:
        topics = await topics_named(client, asked.topic)
        if topics:
            return Answer(body=self._route(topics[0]))
        if asked.topic.startswith(RETRY_PREFIX):
            # A consumer asks before its first heartbeat, which makes the topic.
            return Answer(body=self._route(Topic(asked.topic, 1, 1)))
        if asked.topic == self._where.reply_topic:
            return Answer(body=self._route(Topic(asked.topic, 1, 1)))
        if asked.topic == AUTO_CREATE_TOPIC and self._creates_topics:
            return Answer(body=self._route(Topic(asked.topic, _AUTO_QUEUES, _AUTO_QUEUES, 7)))
        remark = f"No topic route info in name server for the topic: {asked.topic}"
        return Answer(ResponseCode.TOPIC_NOT_EXIST, remark=remark)

    def _route(self, topic: Topic) -> bytes:
        where = self._where
        return compact(
            {
                "brokerDatas": [
                    {
                        "brokerAddrs": {_MASTER: where.address},
                        "brokerName": where.broker,
                        "cluster": where.cluster,
                        "enableActingMaster": False,
                    }
                ],
                "filterServerTable": {},
                "queueDatas": [
                    {
                        "brokerName": where.broker,
                        "perm": topic.permission,
                        "readQueueNums": topic.read_queue_count,
                        "topicSysFlag": topic.system_flags,
                        "writeQueueNums": topic.write_queue_count,
                    }
                ],
            }
        )


class ClusterInfo:
    """106."""

    use_case = "GetStatus"

    def __init__(self, where: BrokerName) -> None:
        address = f'{{{_MASTER}:"{where.address}"}}'  # numbers as keys, as RocketMQ writes them
        one = (
            f'{{"brokerAddrs":{address},"brokerName":"{where.broker}",'
            f'"cluster":"{where.cluster}","enableActingMaster":false}}'
        )
        self._answer = Answer(
            body=(
                f'{{"brokerAddrTable":{{"{where.broker}":{one}}},'
                f'"clusterAddrTable":{{"{where.cluster}":["{where.broker}"]}}}}'
            ).encode()
        )

    def decode(self, command: Command) -> NoRequest:
        return NoRequest()

    async def answer(self, client: AsyncClient, channel: object, asked: NoRequest) -> Answer:
        return self._answer


class TopicList:
    """206, and 224 for a cluster: there is one."""

    use_case = "ListTopics"

    def decode(self, command: Command) -> NoRequest:
        return NoRequest()

    async def answer(self, client: AsyncClient, channel: object, asked: NoRequest) -> Answer:
        names = [topic.name for topic in await client.topics()]
        return Answer(body=compact({"topicList": names}))


async def topics_named(client: AsyncClient, name: str) -> list[Topic]:
    try:
        return await client.topics(name)
    except (NotFoundError, InvalidRequestError):
        return []
