"""Requests of consumers: pulls (11, 361), offsets (14, 15, 29 to 32), messages by their place (33).
`spec/remoting.md` 5, 6, 11."""

from typing import NamedTuple

from stratamq.client import AsyncClient
from stratamq.client.received import split_frames
from stratamq.client.values import TimeBoundary
from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.files.port import Clock
from stratamq.filters.sql92 import Filter
from stratamq.formats.message_status import PullStatus
from stratamq.formats.topics import validate_topic_name
from stratamq.service.front import Frames, FrontClient
from stratamq_gateway.codes import PULLED, ResponseCode
from stratamq_gateway.commits import Commits
from stratamq_gateway.frames import VERSION, Answer, Command, framed_head, number, text
from stratamq_gateway.group_rules import GroupRules
from stratamq_gateway.members import (
    ALL_TAGS,
    TAG,
    ConnectedClients,
    SubscriptionData,
    subscription,
)
from stratamq_gateway.read_ahead import FetchAhead, QueuePull

COMMITS, WAITS, HAS_SUBSCRIPTION, CLASS_FILTER = 1, 2, 4, 8
MAX_MESSAGES = 32
MAX_WAIT_MS = 30_000
_FOUND = (
    b'{"code":0,"flag":1,"language":"JAVA","opaque":%%d,"serializeTypeCurrentRPC":"JSON",'
    b'"version":%d,"extFields":{"suggestWhichBrokerId":"0","nextBeginOffset":"%%d",'
    b'"minOffset":"%%d","maxOffset":"%%d","topicSysFlag":"0","groupSysFlag":"0"},'
    b'"remark":"FOUND"}'
) % VERSION


class Pull(NamedTuple):
    group: str
    topic: str
    queue_id: int
    offset: int
    max_messages: int
    flags: int
    commit_offset: int
    wait_ms: int
    expression: str
    kind: str
    """TAG, SQL92, or "" where the client does not say."""
    version: int = 0
    """0: the client does not number its subscriptions."""


class PullMessages:
    """11 and 361."""

    use_case = "Pull"

    def __init__(
        self,
        members: ConnectedClients,
        rules: GroupRules,
        clock: Clock,
        commits: Commits,
        own: AsyncClient,
    ) -> None:
        self._members = members
        self._rules = rules
        self._ahead = FetchAhead(clock, own)
        self._commits = commits

    def decode(self, command: Command) -> Pull:
        fields = command.fields
        return Pull(
            text(fields, "consumerGroup"),
            text(fields, "topic"),
            number(fields, "queueId"),
            max(0, number(fields, "queueOffset")),
            number(fields, "maxMsgNums", default=MAX_MESSAGES),
            number(fields, "sysFlag", default=0),
            number(fields, "commitOffset", default=-1),
            number(fields, "suspendTimeoutMillis", default=0),
            fields.get("subscription") or "*",
            fields.get("expressionType") or "",
            number(fields, "subVersion", default=0),
        )

    def here(self, asked: Pull) -> QueuePull | None:
        """What `give` is called with, if the answer is here and is found. StrataError."""
        if asked.flags & CLASS_FILTER or self._lacks_subscription(asked):
            return None
        if not self._rules.may_consume(asked.group):
            return None
        found = self._subscription(asked)
        if found is None or found.filter() is not None:
            return None
        wanted = _queue_pull(asked, found)
        return wanted if self._ahead.is_here(wanted) else None

    def give(
        self, client: FrontClient, asked: Pull, wanted: QueuePull, opaque: int
    ) -> list[bytes | memoryview]:
        """The encoded answer of `answer`. StrataError."""
        self._commit(client, asked)
        pulled = self._ahead.give(client, wanted)
        offsets = (pulled.next_offset, pulled.min_offset, pulled.max_offset)
        head = _FOUND % (opaque, *offsets)
        return [framed_head(head, len(pulled.frames)), pulled.frames]

    def _lacks_subscription(self, asked: Pull) -> bool:
        is_said = asked.flags & HAS_SUBSCRIPTION
        return not is_said and self._members.lacks(asked.group, asked.topic, asked.version)

    def _subscription(self, asked: Pull) -> SubscriptionData | None:
        if asked.flags & HAS_SUBSCRIPTION:
            return subscription(asked.topic, asked.expression, asked.kind or TAG)
        known = self._members.subscription(asked.group, asked.topic)
        if known is None and asked.kind == TAG:
            # This process began after the group's last heartbeat. Clients look at tags again.
            known = subscription(asked.topic, ALL_TAGS)
        return known

    def _commit(self, client: FrontClient, asked: Pull) -> None:
        if asked.flags & COMMITS and asked.commit_offset >= 0:
            place = (asked.topic, asked.queue_id)
            self._commits.begin(client, asked.group, place, asked.commit_offset)

    async def answer(self, client: FrontClient, channel: object, asked: Pull) -> Answer:
        if asked.flags & CLASS_FILTER:
            raise InvalidRequestError("filters by a Java class are not supported")
        if not self._rules.may_consume(asked.group):
            return _refused(asked.group)
        validate_topic_name(asked.topic)
        if self._lacks_subscription(asked):
            await self._members.wait_for_newer(asked.group, asked.topic, asked.version)
        found = self._subscription(asked)
        if found is None:
            remark = f"the consumer's group info not exist: {asked.group}, {asked.topic}"
            return Answer(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark=remark)
        try:
            selecting = found.filter()
        except InvalidRequestError as error:
            return Answer(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark=str(error))
        self._commit(client, asked)
        pulled = await self._ahead.pull(client, _queue_pull(asked, found))
        if not self._rules.may_consume(asked.group):  # since then
            return _refused(asked.group)
        if selecting is not None and pulled.status is PullStatus.FOUND:
            pulled = _selected(pulled, selecting)
        return Answer(
            PULLED[pulled.status],
            {
                "suggestWhichBrokerId": 0,
                "nextBeginOffset": pulled.next_offset,
                "minOffset": pulled.min_offset,
                "maxOffset": pulled.max_offset,
                "topicSysFlag": 0,
                "groupSysFlag": 0,
            },
            pulled.frames if pulled.status is PullStatus.FOUND else b"",
            pulled.status.name,
        )


def _refused(group: str) -> Answer:
    remark = f"subscription group no permission, {group}"
    return Answer(ResponseCode.NO_PERMISSION, remark=remark)


def _queue_pull(asked: Pull, found: SubscriptionData) -> QueuePull:
    return QueuePull(
        asked.topic,
        asked.queue_id,
        asked.offset,
        found.tags_codes,
        max(1, asked.max_messages),
        min(asked.wait_ms, MAX_WAIT_MS) if asked.flags & WAITS else 0,
    )


def _selected(pulled: Frames, selecting: Filter) -> Frames:
    """The messages that the filter selects. Without one the client goes on behind them."""
    messages = split_frames(pulled.frames)
    kept = [one.frame for one in messages if selecting.selects(one.properties)]
    status = pulled.status if kept else PullStatus.NO_MATCHED_MESSAGE
    return pulled._replace(status=status, frames=memoryview(b"".join(kept)))


class QueueOffset(NamedTuple):
    group: str
    topic: str
    queue_id: int
    offset: int = 0

    @property
    def offsets(self) -> tuple["QueueOffset"]:
        return (self,)


def _queue_offset(command: Command) -> QueueOffset:
    fields = command.fields
    return QueueOffset(
        text(fields, "consumerGroup"),
        text(fields, "topic"),
        number(fields, "queueId"),
        number(fields, "commitOffset", default=0),
    )


class CommittedOffset:
    """14."""

    use_case = "GetCommittedOffsets"

    def __init__(self, commits: Commits) -> None:
        self._commits = commits

    def decode(self, command: Command) -> QueueOffset:
        return _queue_offset(command)

    async def answer(self, client: AsyncClient, channel: object, asked: QueueOffset) -> Answer:
        await self._commits.settled(asked.group)
        offsets = await client.committed_offsets(asked.group, asked.topic)
        offset = offsets.get((asked.topic, asked.queue_id))
        if offset is None:
            return Answer(ResponseCode.QUERY_NOT_FOUND, remark="Not found, maybe this group is new")
        return Answer(fields={"offset": offset})


class CommitOffset:
    """15."""

    use_case = "CommitOffsets"

    def __init__(self, commits: Commits) -> None:
        self._commits = commits

    def decode(self, command: Command) -> QueueOffset:
        return _queue_offset(command)

    async def answer(self, client: FrontClient, channel: object, asked: QueueOffset) -> Answer:
        if asked.offset >= 0:  # Go's client commits -1 for a queue that it never read
            place = (asked.topic, asked.queue_id)
            await self._commits.commit(client, asked.group, place, asked.offset)
        return Answer()


class QueueTime(NamedTuple):
    topic: str
    queue_id: int
    timestamp_ms: int = 0
    boundary: str = ""


def _queue_time(command: Command) -> QueueTime:
    fields = command.fields
    return QueueTime(
        text(fields, "topic"),
        number(fields, "queueId"),
        number(fields, "timestamp", default=0),
        fields.get("boundaryType", "").lower(),
    )


class OffsetAtTime:
    """29."""

    use_case = "GetOffsetByTime"

    def decode(self, command: Command) -> QueueTime:
        return _queue_time(command)

    async def answer(self, client: AsyncClient, channel: object, asked: QueueTime) -> Answer:
        boundary = TimeBoundary.UPPER if asked.boundary == "upper" else TimeBoundary.LOWER
        offset = await client.offset_at_time(
            asked.topic, asked.queue_id, asked.timestamp_ms, boundary
        )
        return Answer(fields={"offset": offset})


class QueueBound:
    """30 and 31."""

    use_case = "ListQueues"

    def __init__(self, *, end: bool) -> None:
        self._end = end

    def decode(self, command: Command) -> QueueTime:
        return _queue_time(command)

    async def answer(self, client: AsyncClient, channel: object, asked: QueueTime) -> Answer:
        for queue in await client.queues(asked.topic):
            if queue.queue_id == asked.queue_id:
                return Answer(
                    fields={"offset": queue.max_offset if self._end else queue.min_offset}
                )
        return Answer(fields={"offset": 0})


class EarliestStoreTime:
    """32."""

    use_case = "Pull"

    def decode(self, command: Command) -> Pull:
        asked = _queue_time(command)
        return Pull("", asked.topic, asked.queue_id, 0, 1, 0, -1, 0, "*", TAG)

    async def answer(self, client: AsyncClient, channel: object, asked: Pull) -> Answer:
        first = await client.pull(asked.topic, asked.queue_id, 0, max_messages=1)
        if first.status is PullStatus.OFFSET_TOO_SMALL:
            first = await client.pull(
                asked.topic, asked.queue_id, first.next_offset, max_messages=1
            )
        time_ms = first.messages[0].store_timestamp_ms if first.messages else -1
        return Answer(fields={"timestamp": time_ms})


class MessageAt(NamedTuple):
    topic: str
    key: str


class ViewMessage:
    """33: by the physical offset of an offset id."""

    use_case = "GetFrame"

    def decode(self, command: Command) -> MessageAt:
        return MessageAt("", str(number(command.fields, "offset")))

    async def answer(self, client: AsyncClient, channel: object, asked: MessageAt) -> Answer:
        try:
            found = await client.message_at(int(asked.key))
        except (NotFoundError, InvalidRequestError) as error:
            return Answer(ResponseCode.SYSTEM_ERROR, remark=str(error))
        return Answer(body=found.frame)


class QueryMessages:
    """12."""

    use_case = "QueryKey"

    def decode(self, command: Command) -> "MessagesByKey":
        fields = command.fields
        return MessagesByKey(
            text(fields, "topic"),
            text(fields, "key"),
            number(fields, "maxNum", default=MAX_MESSAGES),
            number(fields, "beginTimestamp", default=0),
            number(fields, "endTimestamp", default=0),
            fields.get("_UNIQUE_KEY_QUERY") == "true",
        )

    async def answer(self, client: AsyncClient, channel: object, asked: "MessagesByKey") -> Answer:
        most = min(max(1, asked.max_messages), 64)
        if asked.is_unique_key:
            found = await client.query_unique_key(asked.topic, asked.key, max_messages=most)
        else:
            found = await client.query_key(
                asked.topic,
                asked.key,
                max_messages=most,
                begin_ms=max(0, asked.begin_ms),
                end_ms=max(0, min(asked.end_ms, (1 << 62))),
            )
        if not found.messages:
            remark = "can not find message, maybe time range not correct"
            return Answer(ResponseCode.QUERY_NOT_FOUND, remark=remark)
        newest = max(one.physical_offset for one in found.messages)
        times = max(one.store_timestamp_ms for one in found.messages)
        return Answer(
            fields={"indexLastUpdateTimestamp": times, "indexLastUpdatePhyoffset": newest},
            body=b"".join(one.frame for one in found.messages),
        )


class MessagesByKey(NamedTuple):
    topic: str
    key: str
    max_messages: int
    begin_ms: int
    end_ms: int
    is_unique_key: bool
