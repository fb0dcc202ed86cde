"""Requests of tools about the work of brokers: consumption of all groups (317), statistics (315),
replication (907), who takes no messages (205, 327), settings (25, 318, 319, 401), producers (328),
cleaning (306, 316, 329), offsets from one group to another (314). `spec/remoting.md` 3 and 11."""

from collections.abc import Mapping
from typing import NamedTuple

from stratamq.client import AsyncClient, GroupQueue, LogState, Role
from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.files.port import Clock
from stratamq.formats.topics import DRAIN_TOPIC, Drain
from stratamq.rpc.address import split_address
from stratamq_gateway.brokers import BrokerName, Brokers
from stratamq_gateway.codes import ResponseCode
from stratamq_gateway.frames import Answer, Command, boolean, compact, decode_json, text, with_table
from stratamq_gateway.members import ConnectedClients
from stratamq_gateway.routes import NoRequest, TopicName, WithoutFields

_NOT_COUNTED = {"avgpt": 0.0, "sum": 0, "tps": 0.0}
_STATISTICS = (
    "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE", "GROUP_GET_NUMS", "GROUP_GET_SIZE", "SNDBCK_PUT_NUMS",
    "BROKER_PUT_NUMS", "BROKER_GET_NUMS",
)  # fmt: skip


def consume_stats(where: BrokerName, queues: list[GroupQueue]) -> bytes:
    """How far a group is in these queues: 208. `lastTimestamp` is when it has committed."""
    table = [
        (
            where.queue(one.topic, one.queue_id),
            {
                "brokerOffset": one.max_offset,
                "consumerOffset": one.offset,
                "lastTimestamp": one.last_commit_timestamp_ms,
                "pullOffset": one.offset,
            },
        )
        for one in queues
    ]
    return with_table("offsetTable", table, consumeTps=0)


class IsOrder(NamedTuple):
    ordered: bool
    group: str = ""
    """None: the rule of ListGroups reads it."""


class StatisticsName(NamedTuple):
    name: str
    group: str = ""
    """None, for the same reason as that of `IsOrder`."""


class ConsumeStatsOfBroker:
    """317: of all groups, for ordered topics or for the others."""

    use_case = "ListGroups"

    def __init__(self, where: BrokerName) -> None:
        self._where = where

    def decode(self, command: Command) -> IsOrder:
        return IsOrder(boolean(command.fields, "isOrder"))

    async def answer(self, client: AsyncClient, channel: object, asked: IsOrder) -> Answer:
        ordered = {one.name for one in await client.topics() if one.ordered}
        of_groups: dict[str, dict[str, list[GroupQueue]]] = {}
        for one in await client.groups():
            if (one.topic in ordered) is asked.ordered:
                of_groups.setdefault(one.group, {}).setdefault(one.topic, []).append(one)
        lists = []
        for group, topics in of_groups.items():
            stats = [consume_stats(self._where, queues) for queues in topics.values()]
            lists.append(b"{" + compact(group) + b":[" + b",".join(stats) + b"]}")
        queues = (one for of in of_groups.values() for some in of.values() for one in some)
        total = compact(sum(one.lag for one in queues))
        return Answer(
            body=b'{"brokerAddr":' + compact(self._where.address) + b',"consumeStatsList":['
            + b",".join(lists) + b'],"totalDiff":' + total + b',"totalInflightDiff":0}'
        )  # fmt: skip


class Statistics:
    """315: zeros. Rates are among the metrics."""

    use_case = "ListGroups"

    def decode(self, command: Command) -> StatisticsName:
        text(command.fields, "statsKey")
        return StatisticsName(text(command.fields, "statsName"))

    async def answer(self, client: AsyncClient, channel: object, asked: StatisticsName) -> Answer:
        if asked.name not in _STATISTICS:
            remark = f"The stats <{asked.name}> not exist"
            return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        names = ("statsMinute", "statsHour", "statsDay")
        return Answer(body=compact(dict.fromkeys(names, _NOT_COUNTED)))


class ReplicationInfo(WithoutFields):
    """907: what a master knows of its slaves."""

    use_case = "GetReplicationStatus"

    async def answer(self, client: AsyncClient, channel: object, asked: NoRequest) -> Answer:
        return Answer(body=compact(_replication(await client.log_state())))


def _replication(state: LogState) -> Mapping[str, object]:
    slaves = [one for one in state.replicas if one.connected]
    return {
        "haClientRuntimeInfo": {},
        "haConnectionInfo": [
            {
                "addr": one.address,
                "diff": one.lag_bytes,
                "inSync": one.counts,
                "slaveAckOffset": one.acknowledged_offset,
                "transferFromWhere": one.acknowledged_offset,
                "transferredByteInSecond": 0,
            }
            for one in slaves
        ],
        "inSyncSlaveNums": sum(one.counts for one in slaves),
        "master": state.role is not Role.SLAVE,
        "masterCommitLogMaxOffset": state.appended_offset,
    }


class BrokerToClose(NamedTuple):
    """The rule of PutTopic reads `topic` and `change`."""

    topic: TopicName
    change: TopicName
    broker: str


class CloseBroker:
    """205 and 327: topics of a broker are shown without the permission to write, or with it again.
    What clients send that have not asked for a route since is taken."""

    use_case = "PutTopic"

    def __init__(self, brokers: Brokers, *, close: bool) -> None:
        self._brokers = brokers
        self._close = close

    def decode(self, command: Command) -> BrokerToClose:
        return BrokerToClose(
            TopicName(DRAIN_TOPIC), TopicName(), text(command.fields, "brokerName")
        )

    async def answer(self, client: AsyncClient, channel: object, asked: BrokerToClose) -> Answer:
        for broker in self._brokers.now():
            if broker.name == asked.broker:
                there = broker.client or client
                await there.admin.set_drain(Drain.LEAVING if self._close else Drain.OPEN)
                count = len(await there.topics())
                return Answer(fields={"wipeTopicCount" if self._close else "addTopicCount": count})
        raise NotFoundError(f"there is no broker {asked.broker!r:.80}")


class NoSetting(WithoutFields):
    """25 and 318. Settings are those of `stratamq`, and are read when a service starts."""

    use_case = "RunCleaning"

    async def answer(self, client: AsyncClient, channel: object, asked: NoRequest) -> Answer:
        raise InvalidRequestError("settings are read at the start: see docs/configuration.md")


class CleanNow(WithoutFields):
    """306, 316 and 329. The janitor looks at once, and deletes what may go: expired segments at any
    hour, with the queue units and index files that point to nothing else. What belongs to deleted
    topics goes without being asked."""

    use_case = "RunCleaning"

    async def answer(self, client: AsyncClient, channel: object, asked: NoRequest) -> Answer:
        await client.admin.run_cleaning()
        return Answer()


class NameServerConfig(WithoutFields):
    """319. Lines of Java's properties."""

    use_case = "GetStatus"

    def __init__(self, where: BrokerName) -> None:
        self._where = where

    async def answer(self, client: AsyncClient, channel: object, asked: NoRequest) -> Answer:
        _, port = split_address(self._where.address)
        return Answer(body=f"listenPort={port}\n".encode())


class GroupMode(NamedTuple):
    group: str
    topic: str
    mode: str


class SetMode:
    """401. Groups of classic clients pull: who wants messages without queues uses shared groups."""

    use_case = "AlterGroup"

    def decode(self, command: Command) -> GroupMode:
        try:
            said = decode_json(command.body)
            return GroupMode(str(said["consumerGroup"]), str(said["topic"]), str(said["mode"]))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InvalidRequestError(f"a mode that cannot be decoded: {error!r}") from error

    async def answer(self, client: AsyncClient, channel: object, asked: GroupMode) -> Answer:
        if asked.mode != "PULL":
            raise InvalidRequestError(f"the mode is PULL, and not {asked.mode!r:.80}")
        return Answer()


class AllProducers(WithoutFields):
    """328."""

    use_case = "GetGatewayStatus"

    def __init__(self, members: ConnectedClients, clock: Clock) -> None:
        self._members = members
        self._clock = clock

    async def answer(self, client: AsyncClient, channel: object, asked: NoRequest) -> Answer:
        now_ms = self._clock.wall_ms()
        data = {
            group: [
                {
                    "clientId": client_id,
                    "language": one.language,
                    "lastUpdateTimestamp": now_ms,
                    "remoteIP": one.address,
                    "version": one.version,
                }
                for client_id, one in connected.items()
            ]
            for group, connected in self._members.producers.items()
        }
        return Answer(body=compact({"data": data}))


class Cloning(NamedTuple):
    """The rule of CommitOffsets reads `group`, both of them, and `offsets`."""

    group: tuple[str, str]
    topic: str

    @property
    def offsets(self) -> tuple[TopicName]:
        return (TopicName(self.topic),)


class CloneOffsets:
    """314: a group is to go on where another one is."""

    use_case = "CommitOffsets"

    def decode(self, command: Command) -> Cloning:
        fields = command.fields
        return Cloning((text(fields, "srcGroup"), text(fields, "destGroup")), text(fields, "topic"))

    async def answer(self, client: AsyncClient, channel: object, asked: Cloning) -> Answer:
        source, target = asked.group
        if not source or not target or not asked.topic:
            raise InvalidRequestError("the name of a group or of the topic is empty")
        offsets = await client.committed_offsets(source, asked.topic)
        if offsets:
            await client.commit_offsets(target, offsets)
        return Answer()
