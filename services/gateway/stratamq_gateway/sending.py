"""Requests that store messages: 10, 310, 320, 36, 37. `spec/remoting.md` 4, 8, 9."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

from stratamq.client import AsyncClient, Message
from stratamq.client.received import ReceivedMessage
from stratamq.client.values import HalfMessage, SendResult
from stratamq.errors import InvalidRequestError
from stratamq.formats.delay import FIRST_RETRY_LEVEL
from stratamq.formats.json_files import DEFAULT_RETRIES
from stratamq.formats.properties import (
    CLUSTER,
    DELAY,
    KEYS,
    ORIGIN_MESSAGE_ID,
    REAL_QID,
    REAL_TOPIC,
    REPLY_TO_CLIENT,
    RETRY_TOPIC,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRAN_MSG,
    UNIQ_KEY,
    WAIT,
    decode_properties,
    split_keys,
    waits_for_store,
)
from stratamq.formats.sysflag import TAKEN_FLAGS
from stratamq.formats.topic_types import (
    MessageType,
    priority_of,
    queue_of_priority,
    type_of_message,
)
from stratamq.formats.topics import DEAD_LETTER_PREFIX, HALF_TOPIC, RETRY_PREFIX
from stratamq.service.front import FrontClient
from stratamq_gateway.brokers import topics_named
from stratamq_gateway.codes import SENT, RequestCode, ResponseCode
from stratamq_gateway.frames import Answer, Command, boolean, number, text
from stratamq_gateway.group_rules import GroupRules
from stratamq_gateway.repeats import RepeatedSends, name_of
from stratamq_gateway.routes import RetryTopics
from stratamq_gateway.rows import entries

_COMMIT, _ROLLBACK = 8, 12
_EPOCH = datetime.fromtimestamp(0, UTC)
LONG_NAMES = {
    "producerGroup": "a", "topic": "b", "defaultTopic": "c", "defaultTopicQueueNums": "d",
    "queueId": "e", "sysFlag": "f", "bornTimestamp": "g", "flag": "h", "properties": "i",
    "reconsumeTimes": "j", "unitMode": "k", "maxReconsumeTimes": "l", "batch": "m",
}  # fmt: skip
"""The names of fields of request 10, with those of 310."""


SENDS = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)


class Sent(NamedTuple):
    """A message, or the messages of a batch, for one queue."""

    messages: tuple[Message, ...]
    is_batch: bool
    max_reconsume_times: int
    properties: str
    body: bytes
    """Both are those of the request: a batch has one of each."""


class Send:
    """10, 310 and 320: those that `rows` does not take, and all where repeated ones are looked
    for."""

    use_case = "Append"

    def __init__(
        self, code: RequestCode, region: str, cluster: str, repeats: RepeatedSends | None
    ) -> None:
        """`repeats`: None: each send is stored."""
        self._code = code
        self.region = region
        self._cluster = cluster
        self.repeats = repeats

    def decode(self, command: Command) -> Sent:
        fields: Mapping[str, str] = command.fields
        if self._code is RequestCode.SEND_MESSAGE:
            fields = {LONG_NAMES[name]: fields[name] for name in fields if name in LONG_NAMES}
        properties = fields.get("i", "")
        outer = decode_properties(properties.encode())
        if REPLY_TO_CLIENT in outer:
            outer.setdefault(CLUSTER, self._cluster)  # who replies sends to the topic of its name
        queue_id = number(fields, "e", default=-1)
        blank = Message(
            text(fields, "b"),
            command.body,
            queue_id=None if queue_id < 0 else queue_id,
            flag=number(fields, "h", default=0),
            sys_flag=number(fields, "f", default=0) & TAKEN_FLAGS,
            born_timestamp_ms=number(fields, "g", default=0),
            reconsume_times=number(fields, "j", default=0),
        )
        times = number(fields, "l", default=DEFAULT_RETRIES)
        is_batch = self._code is RequestCode.SEND_BATCH_MESSAGE or boolean(fields, "m")
        if not is_batch:
            one = with_properties(blank, outer)
            return Sent((one,), False, times, properties, command.body)
        inner = [
            with_properties(
                replace(blank, body=body, flag=flag), {**outer, **decode_properties(of_one)}
            )
            for flag, body, of_one in entries(command.body)
        ]
        if outer.get(UNIQ_KEY) and len(inner) > 1:
            # Java 5 sends the batch's own key here, which is not that of any of its messages.
            inner = [
                replace(one, unique_key=None) if one.unique_key == outer[UNIQ_KEY] else one
                for one in inner
            ]
        if any(one.alone for one in inner):
            raise InvalidRequestError("a batch has no delayed messages and no half messages")
        return Sent(tuple(inner), True, times, properties, command.body)

    async def answer(self, client: FrontClient, channel: object, asked: Sent) -> Answer:
        if self.repeats is None:
            return await self._store(client, asked)
        name = await name_of(client.user, asked.messages, asked.properties, asked.body)
        if name is None:
            return await self._store(client, asked)
        # A client that repeats a send has often closed the first one's connection.
        store = partial(self._store, client, asked)
        stored = asked.messages if asked.is_batch else (_retried(asked),)
        once = self.repeats.once(name, stored, store)
        return await asyncio.shield(client.finish(once))

    async def _store(self, client: FrontClient, asked: Sent) -> Answer:
        try:
            if asked.is_batch:
                await client.rows.open()  # what the next ones go by
                results = await client.send_all(list(asked.messages), all_or_nothing=True)
                for one in results:
                    one.check()
            else:
                message = await _in_its_queue(client, _retried(asked))
                results = [await client.send_message(message)]
        except InvalidRequestError as error:
            return Answer(ResponseCode.MESSAGE_ILLEGAL, remark=str(error))
        return sent_answer(results, self.region)


def sent_answer(results: Sequence[SendResult], region: str) -> Answer:
    """`rows.encode_sent` makes the same of what was stored together."""
    first = results[0]
    worst = max(results, key=lambda one: one.status.value)
    return Answer(
        SENT[worst.status],
        {
            "msgId": ",".join(one.message_id for one in results),
            "queueId": first.queue_id,
            "queueOffset": first.queue_offset,
            "MSG_REGION": region,
            "TRACE_ON": True,
            "transactionId": first.unique_key,
        },
    )


def with_properties(message: Message, properties: Mapping[str, str]) -> Message:
    """The message whose properties text the client wrote. InvalidRequestError."""
    rest = dict(properties)
    delay_level = number(rest, DELAY, default=0)
    delay: timedelta | None = None
    deliver_at: datetime | None = None
    if TIMER_DELIVER_MS in rest:
        deliver_at = _EPOCH + timedelta(milliseconds=number(rest, TIMER_DELIVER_MS))
    elif TIMER_DELAY_MS in rest:
        delay = timedelta(milliseconds=number(rest, TIMER_DELAY_MS))
    elif TIMER_DELAY_SEC in rest:
        delay = timedelta(seconds=number(rest, TIMER_DELAY_SEC))
    half = rest.get(TRAN_MSG) == "true"
    wait = rest.get(WAIT)
    tag, keys = rest.pop(TAGS, ""), split_keys(rest.pop(KEYS, ""))
    unique_key = rest.pop(UNIQ_KEY, None)
    for name in (DELAY, TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC):
        rest.pop(name, None)
    return replace(
        message,
        tag=tag,
        keys=keys,
        unique_key=unique_key,
        properties=rest,
        delay_level=0 if half or delay is not None or deliver_at is not None else delay_level,
        delay=None if half else delay,
        deliver_at=None if half else deliver_at,
        half=half,
        wait_store_ok=waits_for_store(wait),
    )


def _retried(asked: Sent) -> Message:
    """A consumer that keeps order sends what failed to its group's retry topic, or to the dead
    letters once it has failed too often."""
    (message,) = asked.messages
    if not message.topic.startswith(RETRY_PREFIX):
        return message
    if message.reconsume_times <= asked.max_reconsume_times:
        return message
    group = message.topic.removeprefix(RETRY_PREFIX)
    return replace(message, topic=DEAD_LETTER_PREFIX + group, queue_id=0, delay_level=0)


async def _in_its_queue(client: AsyncClient, message: Message) -> Message:
    """A priority chooses the queue, as at RocketMQ's broker, whatever the client has chosen."""
    priority = None if message.alone else priority_of(message.properties)
    if priority is None or type_of_message(message.properties) is not MessageType.PRIORITY:
        return message
    topics = await topics_named(client, message.topic)
    if not topics or not topics[0].write_queue_count:
        return message  # the log creates the topic, or refuses
    return replace(message, queue_id=queue_of_priority(priority, topics[0].write_queue_count))


class SentBack(NamedTuple):
    group: str
    topic: str
    failed: ReceivedMessage
    delay_level: int
    max_reconsume_times: int


class SendBack:
    """36: a message that a consumer failed at goes to the group's retry topic, or to its dead
    letters. It is copied by the gateway itself, so its consumer must be one who may read it."""

    use_case = "ReturnMessages"

    def __init__(self, retry_topics: RetryTopics, rules: GroupRules, own: AsyncClient) -> None:
        self._retry_topics = retry_topics
        self._rules = rules
        self._own = own

    async def decode(self, command: Command) -> SentBack:
        fields = command.fields
        group, offset = text(fields, "group"), number(fields, "offset")
        level, times = (
            number(fields, name, default=default)
            for name, default in (("delayLevel", 0), ("maxReconsumeTimes", -1))
        )
        failed = await self._own.message_at(offset)
        if "maxReconsumeTimes" not in fields:
            times = await self._rules.retries(group)
        return SentBack(group, failed.topic, failed, level, DEFAULT_RETRIES if times < 0 else times)

    async def answer(self, client: AsyncClient, channel: object, asked: SentBack) -> Answer:
        failed = asked.failed
        properties = failed.properties
        first_topic = properties.get(RETRY_TOPIC) or failed.topic
        rest = {
            name: properties[name]
            for name in properties
            if name not in (DELAY, REAL_TOPIC, REAL_QID, WAIT)
        }
        rest[RETRY_TOPIC] = first_topic
        rest.setdefault(ORIGIN_MESSAGE_ID, failed.message_id)
        times = failed.reconsume_times
        buried = times >= asked.max_reconsume_times or asked.delay_level < 0
        await self._retry_topics.require(asked.group, dead=buried)
        copy = with_properties(
            Message(
                (DEAD_LETTER_PREFIX if buried else RETRY_PREFIX) + asked.group,
                failed.stored_body,
                queue_id=0,
                flag=failed.flag,
                sys_flag=failed.sys_flag & TAKEN_FLAGS,
                born_timestamp_ms=failed.born_timestamp_ms,
                reconsume_times=times + 1,
            ),
            rest,
        )
        level = asked.delay_level or FIRST_RETRY_LEVEL + times
        await self._own.send_message(copy if buried else replace(copy, delay_level=level))
        return Answer()


class Decided(NamedTuple):
    group: str
    half: HalfMessage
    decision: int

    @property
    def messages(self) -> tuple[HalfMessage]:
        return (self.half,)


class EndTransaction:
    """37. Clients of 4.x do not name the topic, and those of 5.x name that of the check, which is
    the half topic: the half message has it."""

    use_case = "EndTransaction"

    def __init__(self, own: AsyncClient) -> None:
        self._own = own

    async def decode(self, command: Command) -> Decided:
        fields = command.fields
        offset, topic = number(fields, "commitLogOffset"), fields.get("topic", "")
        key = fields.get("transactionId") or text(fields, "msgId")
        group, decision = text(fields, "producerGroup"), number(fields, "commitOrRollback")
        if topic in ("", HALF_TOPIC):
            half = await self._own.message_at(offset)
            topic = half.properties.get(REAL_TOPIC, "")
        return Decided(group, HalfMessage(topic, offset, key), decision)

    async def answer(self, client: AsyncClient, channel: object, asked: Decided) -> Answer:
        if asked.decision not in (_COMMIT, _ROLLBACK):
            return Answer()
        await client.end_transaction(asked.group, [asked.half], commit=asked.decision == _COMMIT)
        return Answer()
