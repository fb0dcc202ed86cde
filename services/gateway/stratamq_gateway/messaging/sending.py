"""Calls that store messages and end transactions: SendMessage, EndTransaction. `spec/gateway.md`
3.3 and 3.8."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client import Message
from stratamq.client.values import HalfMessage, SendResult
from stratamq.errors import InvalidRequestError, NotFoundError, StrataError
from stratamq.formats.topic_types import MessageType, queue_of_priority
from stratamq_gateway.brokers import BrokerName
from stratamq_gateway.messaging.messages import (
    message_type,
    queue_of_group,
    taken_types,
    to_store,
    topic_name,
)
from stratamq_gateway.messaging.recalling import RecallHandle
from stratamq_gateway.messaging.rows import MessageRow, MessageRowSends, row_of, sent
from stratamq_gateway.messaging.sessions import ClientSession
from stratamq_gateway.messaging.statuses import SENT, RefusedError, code_of, common_status, status
from stratamq_gateway.messaging.topics import existing

_OFFSET_DIGITS = 16
MAX_MESSAGES = 256
"""In one request. Clients send one; each is a call of its own to the log."""
MAX_OFFSET = 1 << 63


class ToStore(NamedTuple):
    messages: list[Message]


class SendMessage:
    use_case = "Append"
    response = pb.SendMessageResponse

    def __init__(self, where: BrokerName) -> None:
        self._cluster = where.cluster
        self._broker = where.broker
        self._rows = MessageRowSends()

    def asked(self, request: pb.SendMessageRequest) -> ToStore | MessageRow:
        given = request.messages
        if len(given) == 1:  # as clients send
            row = row_of(given[0], self._cluster)
            if row is not None:
                return row
        if not given:
            raise RefusedError(pb.MESSAGE_CORRUPTED, "no message to send")
        if len(given) > MAX_MESSAGES:
            raise RefusedError(pb.BAD_REQUEST, f"{len(given)} messages: at most {MAX_MESSAGES}")
        if any(one.topic != given[0].topic for one in given):
            raise RefusedError(pb.MESSAGE_CORRUPTED, "the messages are of several topics")
        if len({message_type(one) for one in given}) > 1:
            raise RefusedError(pb.BAD_REQUEST, "the messages are of several types")
        return self._decoded(request)

    def _decoded(self, request: pb.SendMessageRequest) -> ToStore:
        return ToStore([to_store(one, self._cluster) for one in request.messages])

    async def answer(
        self, session: ClientSession, request: pb.SendMessageRequest, asked: ToStore | MessageRow
    ) -> pb.SendMessageResponse | bytes:
        if isinstance(asked, ToStore):
            return await self._answer(session, request, asked)
        queue_id = None
        if asked.kind != pb.NORMAL:
            count = await session.queues.of(asked.topic)
            queue_id = _queue_of(request.messages[0].system_properties, count)
        try:
            result = await self._rows.send(session.client.rows, asked, queue_id)
        except StrataError as error:
            # In no variable: the error's traceback has this frame, which has the message.
            return self._response(
                request, [await _explained(session, asked.topic, asked.kind, error)]
            )
        if result is None:
            return await self._answer(session, request, self._decoded(request))
        if isinstance(result, int):
            return sent(asked.message_id, result)
        return self._response(request, [result])

    async def _answer(
        self, session: ClientSession, request: pb.SendMessageRequest, asked: ToStore
    ) -> pb.SendMessageResponse:
        kind = message_type(request.messages[0])
        messages = asked.messages
        if kind in (pb.FIFO, pb.PRIORITY):
            messages = await self._in_queues(session, request, messages)
        if len(messages) == 1:  # without a task of its own
            results = [await self._send(session, messages[0], kind)]
        else:
            results = await asyncio.gather(*(self._send(session, one, kind) for one in messages))
        return self._response(request, results)

    async def _in_queues(
        self, session: ClientSession, request: pb.SendMessageRequest, messages: list[Message]
    ) -> list[Message]:
        count = await session.queues.of(messages[0].topic)
        return [
            replace(one, queue_id=_queue_of(given.system_properties, count))
            for one, given in zip(messages, request.messages, strict=True)
        ]

    async def _send(
        self, session: ClientSession, message: Message, kind: pb.MessageType
    ) -> SendResult | StrataError:
        try:
            return await session.client.send_message(message)
        except StrataError as error:
            return await _explained(session, message.topic, kind, error)

    def _response(
        self, request: pb.SendMessageRequest, results: Sequence[SendResult | StrataError]
    ) -> pb.SendMessageResponse:
        entries = [
            self._entry(given, result)
            for given, result in zip(request.messages, results, strict=True)
        ]
        top = common_status([one.status for one in entries])
        return pb.SendMessageResponse(status=top, entries=entries)

    def _entry(self, given: pb.Message, result: SendResult | StrataError) -> pb.SendResultEntry:
        message_id = given.system_properties.message_id
        if isinstance(result, StrataError):
            return pb.SendResultEntry(status=status(code_of(result), str(result)))
        entry = pb.SendResultEntry(
            status=status(SENT[result.status]),
            message_id=message_id,
            transaction_id=message_id,
            offset=result.queue_offset,
        )
        kind = message_type(given)
        if kind == pb.TRANSACTION:
            entry.transaction_id = transaction_id(result.physical_offset, message_id)
        elif kind == pb.DELAY:
            due_ms = given.system_properties.delivery_timestamp.ToMilliseconds()
            place = topic_name(given.topic), result.physical_offset, self._broker
            entry.recall_handle = RecallHandle(*place, due_ms, message_id).encode()
        return entry


async def _explained(
    session: ClientSession, topic: str, kind: pb.MessageType, error: StrataError
) -> StrataError:
    """What a client is told of a message that the log has not taken."""
    session.queues.forget(topic)
    if isinstance(error, InvalidRequestError):
        try:
            await _require_type(session, topic, kind)
        except StrataError as reason:
            return reason
    return error


def _queue_of(system: pb.SystemProperties, count: int) -> int | None:
    """Each message group, and each priority, has its queue. None: the topic has no queues."""
    if not count:
        return None
    if system.HasField("message_group"):
        return queue_of_group(system.message_group, count)
    return queue_of_priority(system.priority, count)


async def _require_type(session: ClientSession, topic: str, kind: pb.MessageType) -> None:
    """Whether that is why the log refused it."""
    found = await existing(session.client, topic)
    if kind not in taken_types(found.message_type):
        wanted = MessageType(found.message_type).value
        raise RefusedError(
            pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"topic {topic} takes {wanted} messages, and this one is {pb.MessageType.Name(kind)}",
        )


def transaction_id(physical_offset: int, message_id: str) -> str:
    """It finds the half message by itself, through any gateway, as long as the log has it."""
    return f"{physical_offset:0{_OFFSET_DIGITS}X}{message_id}"


class HalfToEnd(NamedTuple):
    half: HalfMessage

    @property
    def messages(self) -> tuple[HalfMessage]:
        return (self.half,)


class EndTransactionCall:
    use_case = "EndTransaction"
    response = pb.EndTransactionResponse

    def asked(self, request: pb.EndTransactionRequest) -> HalfToEnd:
        text = request.transaction_id
        try:
            offset = int(text[:_OFFSET_DIGITS], 16)
        except ValueError:
            offset = -1
        key = text[_OFFSET_DIGITS:]
        if not 0 <= offset < MAX_OFFSET or not key:
            raise RefusedError(pb.INVALID_TRANSACTION_ID, f"no transaction id: {text!r:.80}")
        return HalfToEnd(HalfMessage(topic_name(request.topic), offset, key))

    async def answer(
        self, session: ClientSession, request: pb.EndTransactionRequest, asked: HalfToEnd
    ) -> pb.EndTransactionResponse:
        if request.resolution in (pb.COMMIT, pb.ROLLBACK):
            commit = request.resolution == pb.COMMIT
            try:
                await session.client.end_transaction(asked.half.topic, [asked.half], commit=commit)
            except (NotFoundError, InvalidRequestError) as error:
                raise RefusedError(pb.INVALID_TRANSACTION_ID, str(error)) from error
        return pb.EndTransactionResponse(status=status(pb.OK))
