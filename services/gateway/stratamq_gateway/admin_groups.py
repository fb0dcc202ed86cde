"""Requests of tools about groups: 200, 201, 207, 352, who is connected (203, 204), offsets (208,
222). `spec/remoting.md` 11."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from stratamq.client import LATEST, AsyncClient, AtTime, GroupReset
from stratamq.client.group_receipts import GroupSettings
from stratamq.errors import InvalidRequestError
from stratamq.formats.json_files import DEFAULT_RETRIES, NEW_GROUP
from stratamq_gateway.admin_cluster import consume_stats
from stratamq_gateway.brokers import BrokerName
from stratamq_gateway.codes import RequestCode, ResponseCode
from stratamq_gateway.elsewhere import ClientsElsewhere, tell_here
from stratamq_gateway.frames import (
    Answer,
    Command,
    boolean,
    compact,
    decode_json,
    number,
    text,
    with_table,
)
from stratamq_gateway.group_rules import GroupRules, settings_of, without_settings
from stratamq_gateway.grouping import OfGroup
from stratamq_gateway.members import DETAILS, Channel, ConnectedClients, Group, SubscriptionData
from stratamq_gateway.routes import NoRequest, TopicName, WithoutFields, data_version

LISTED_AT_ONCE = 256
"""Connections that are listed before others get a turn: less than a millisecond."""
_LATEST = -1
"""This time stands for a queue's end."""
_PASSED_ON = (
    "consumerGroup", "clientId", "jstackEnable", "msgId", "brokerName", "topic", "topicSysFlag",
    "groupSysFlag",
)  # fmt: skip
"""Fields that a consumer is asked with: not the signature of who asks."""

# --- settings ---


class PutGroup:
    """200. What a group's settings have here is kept: its order, its retries, and whether it may
    consume."""

    use_case = "AlterGroup"

    def __init__(self, rules: GroupRules) -> None:
        self._rules = rules

    def decode(self, command: Command) -> GroupSettings:
        try:
            said = decode_json(command.body)
            return GroupSettings(
                str(said["groupName"]),
                said.get("consumeMessageOrderly") is True,
                int(said.get("retryMaxTimes", DEFAULT_RETRIES)),
                said.get("consumeEnable") is not False,
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InvalidRequestError(f"a group that cannot be decoded: {error!r}") from error

    async def answer(self, client: AsyncClient, channel: object, asked: GroupSettings) -> Answer:
        await client.admin.alter_group(
            asked.group,
            ordered=asked.ordered,
            retries=asked.retries,
            consume_enabled=asked.consume_enabled,
        )
        self._rules.change(asked)
        return Answer()


def _config(asked: GroupSettings) -> dict[str, object]:
    return {
        **NEW_GROUP,
        "attributes": {},
        "consumeEnable": asked.consume_enabled,
        "consumeMessageOrderly": asked.ordered,
        "consumeTimeoutMinute": 15,
        "groupName": asked.group,
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "retryMaxTimes": asked.retries,
    }


class Groups(WithoutFields):
    """201: groups with settings, with offsets and with a connected consumer."""

    use_case = "ListGroups"

    def __init__(self, members: ConnectedClients) -> None:
        self._members = members

    async def answer(self, client: AsyncClient, channel: object, asked: NoRequest) -> Answer:
        names = {one.group for one in await client.groups()} | set(self._members.groups)
        found = {name: without_settings(name) for name in names}
        found |= {one.group: one for one in await client.group_settings()}
        table = {name: _config(found[name]) for name in sorted(found)}
        said = {
            "dataVersion": data_version(len(table)),
            "forbiddenTable": {},
            "subscriptionGroupTable": table,
        }
        return Answer(body=compact(said))


class GroupConfig:
    """352. A group without settings has RocketMQ's."""

    use_case = "GetGroupSettings"

    def decode(self, command: Command) -> OfGroup:
        return OfGroup(text(command.fields, "group"))

    async def answer(self, client: AsyncClient, channel: object, asked: OfGroup) -> Answer:
        if not asked.group:
            return Answer(body=compact(_config(without_settings(""))))
        found = await settings_of(asked.group, client.group_settings(asked.group))
        return Answer(body=compact(_config(found)))


class GroupToDelete(NamedTuple):
    group: str
    topic: str
    with_offsets: bool


class DeleteGroup:
    """207. A group that is not there is deleted, as in RocketMQ."""

    use_case = "DeleteGroup"

    def __init__(self, rules: GroupRules) -> None:
        self._rules = rules

    def decode(self, command: Command) -> GroupToDelete:
        fields = command.fields
        group = text(fields, "groupName")
        if not group:
            raise InvalidRequestError("the name of the group is empty")
        return GroupToDelete(group, "", boolean(fields, "cleanOffset"))

    async def answer(self, client: AsyncClient, channel: object, asked: GroupToDelete) -> Answer:
        await client.admin.delete_group_settings(asked.group)
        self._rules.change(without_settings(asked.group))
        if asked.with_offsets and await client.committed_offsets(asked.group):
            await client.admin.delete_group(asked.group)
        return Answer()


# --- who is connected ---


def _connection(client_id: str, channel: Channel) -> dict[str, object]:
    return {
        "clientAddr": channel.address,
        "clientId": client_id,
        "language": channel.language,
        "version": channel.version,
    }


class ConnectedConsumers:
    """203."""

    use_case = "ListGroupMembers"

    def __init__(self, members: ConnectedClients) -> None:
        self._members = members

    def decode(self, command: Command) -> OfGroup:
        return OfGroup(text(command.fields, "consumerGroup"))

    async def answer(self, client: AsyncClient, channel: object, asked: OfGroup) -> Answer:
        group = self._members.groups.get(asked.group)
        if group is None:
            return not_online(asked.group)
        return Answer(body=await _connected(group))


def not_online(group: str) -> Answer:
    remark = f"the consumer group[{group}] not online"
    return Answer(ResponseCode.CONSUMER_NOT_ONLINE, remark=remark)


async def _connected(group: Group) -> bytes:
    members = list(group.members.items())
    _, newest = members[-1]
    rest = {
        **{detail: newest.named(detail) for detail in DETAILS},
        "subscriptionTable": {
            topic: _subscription(one) for topic, one in group.subscriptions.items()
        },
    }
    listed = []
    for at in range(0, len(members), LISTED_AT_ONCE):
        some = [_connection(name, one.channel) for name, one in members[at : at + LISTED_AT_ONCE]]
        listed.append(compact(some)[1:-1])
        await asyncio.sleep(0)
    return b'{"connectionSet":[%b],%b' % (b",".join(listed), compact(rest)[1:])


def _subscription(one: SubscriptionData) -> dict[str, object]:
    tags = [tag.strip() for tag in one.expression.split("||")] if one.tags_codes else []
    return {
        "classFilterMode": False,
        "codeSet": one.tags_codes,
        "expressionType": one.kind,
        "subString": one.expression,
        "subVersion": one.version,
        "tagsSet": tags,
        "topic": one.topic,
    }


class ConnectedProducers:
    """204."""

    use_case = "GetGatewayStatus"

    def __init__(self, members: ConnectedClients) -> None:
        self._members = members

    def decode(self, command: Command) -> OfGroup:
        return OfGroup(text(command.fields, "producerGroup"))

    async def answer(self, client: AsyncClient, channel: object, asked: OfGroup) -> Answer:
        found = self._members.producers.get(asked.group)
        if not found:
            remark = f"the producer group[{asked.group}] not exist"
            return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        connections = [_connection(client_id, one) for client_id, one in found.items()]
        return Answer(body=compact({"connectionSet": connections}))


class AskedConsumer(NamedTuple):
    group: str
    client_id: str
    message_id: str
    fields: Mapping[str, str]


class AskConsumer:
    """307, 309 and its like: the consumer is asked, and its answer is given as it is. 309 has the
    message that the consumer is to consume."""

    def __init__(self, members: ConnectedClients, code: RequestCode, use_case: str) -> None:
        self._members = members
        self._code = code
        self.use_case = use_case

    def decode(self, command: Command) -> AskedConsumer:
        fields = command.fields
        return AskedConsumer(
            text(fields, "consumerGroup"),
            text(fields, "clientId"),
            text(fields, "msgId") if self._code == RequestCode.CONSUME_MESSAGE_DIRECTLY else "",
            {name: fields[name] for name in _PASSED_ON if name in fields},
        )

    async def answer(self, client: AsyncClient, channel: object, asked: AskedConsumer) -> Answer:
        group = self._members.groups.get(asked.group)
        consumer = group and group.members.get(asked.client_id)
        if not consumer:
            return not_online(asked.group)
        body = b""
        if asked.message_id:
            body = (await client.message_by_id(asked.message_id)).frame
        try:
            said = await consumer.channel.ask(self._code, asked.fields, body)
        except TimeoutError:
            remark = f"the consumer {asked.group} {asked.client_id} has not answered"
            return Answer(ResponseCode.CONSUME_MSG_TIMEOUT, remark=remark)
        return Answer(said.code, said.fields, said.body, said.remark)


# --- offsets ---


class StatsAsked(NamedTuple):
    group: str
    topic: str


class ConsumeStats:
    """208, of the queues of which the group has an offset."""

    use_case = "ListGroups"

    def __init__(self, where: BrokerName) -> None:
        self._where = where

    def decode(self, command: Command) -> StatsAsked:
        fields = command.fields
        return StatsAsked(text(fields, "consumerGroup"), fields.get("topic", ""))

    async def answer(self, client: AsyncClient, channel: object, asked: StatsAsked) -> Answer:
        found = await client.groups(asked.group) if asked.group else []
        queues = [one for one in found if asked.topic in ("", one.topic)]
        return Answer(body=consume_stats(self._where, queues))


class Reset(NamedTuple):
    group: str
    topic: str
    timestamp_ms: int
    forced: bool
    queue_id: int
    offset: int

    @property
    def offsets(self) -> tuple[TopicName]:
        """The rule of CommitOffsets reads it."""
        return (TopicName(self.topic),)


class ResetOffsets:
    """222: offsets of a group are set to a time, without force only where that is back. Connected
    consumers are told (220), since they would commit what they have."""

    use_case = "CommitOffsets"

    def __init__(
        self, where: BrokerName, members: ConnectedClients, elsewhere: ClientsElsewhere
    ) -> None:
        self._where = where
        self._members = members
        self._elsewhere = elsewhere

    def decode(self, command: Command) -> Reset:
        fields = command.fields
        asked = Reset(
            text(fields, "group"),
            text(fields, "topic"),
            number(fields, "timestamp", default=_LATEST),
            boolean(fields, "isForce"),
            number(fields, "queueId", default=-1),
            number(fields, "offset", default=-1),
        )
        if not asked.group or not asked.topic:
            raise InvalidRequestError("the name of the group or the topic is empty")
        return asked

    async def answer(self, client: AsyncClient, channel: object, asked: Reset) -> Answer:
        resets = await self._planned(client, asked)
        await client.admin.reset_group(asked.group, resets)
        offsets = [(self._where.queue(one.topic, one.queue_id), one.offset) for one in resets]
        if offsets:
            await self._tell(asked, offsets)
        return Answer(body=with_table("offsetTable", offsets))

    async def _planned(self, client: AsyncClient, asked: Reset) -> list[GroupReset]:
        to: AtTime | str | int = LATEST
        if asked.queue_id >= 0 and asked.offset >= 0:
            to = asked.offset
        elif asked.timestamp_ms >= 0:
            to = AtTime(asked.timestamp_ms)
        planned = await client.admin.plan_group_reset(asked.group, to, asked.topic)
        return [
            one
            for one in planned
            if asked.queue_id in (-1, one.queue_id)
            and (asked.forced or isinstance(to, int) or one.before < 0 or one.offset < one.before)
        ]

    async def _tell(self, asked: Reset, offsets: list[tuple[dict[str, object], int]]) -> None:
        fields: dict[str, object] = {
            "group": asked.group,
            "isForce": asked.forced,
            "timestamp": asked.timestamp_ms,
            "topic": asked.topic,
        }
        as_list = compact({"offsetTable": [queue | {"offset": to} for queue, to in offsets]})
        as_table = with_table("offsetTable", offsets)
        told = (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, as_table, as_list)
        tell_here(self._members, asked.group, *told)
        await self._elsewhere.tell(asked.group, *told)
