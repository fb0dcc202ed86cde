"""Replies to requests: 324 and 325 of who replies, 326 to who waits. `spec/remoting.md` 14.2.

A request is a message like others, that names its sender's client and a number. The reply goes to
that client's connection, and is not stored: RocketMQ with `storeReplyMessageEnable` off.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from stratamq.client import AsyncClient
from stratamq.errors import NotFoundError, UnavailableError
from stratamq.files.port import Clock
from stratamq.formats.properties import REPLY_TO_CLIENT, decode_properties
from stratamq_gateway.brokers import BrokerName
from stratamq_gateway.codes import RequestCode, ResponseCode
from stratamq_gateway.elsewhere import ClientsElsewhere
from stratamq_gateway.frames import Answer, Command, text
from stratamq_gateway.members import Channel, ConnectedClients
from stratamq_gateway.routes import TopicName
from stratamq_gateway.sending import LONG_NAMES

TAKEN_S = 3.0
"""How long the waiting client has to take a reply: as in RocketMQ, before the call of who replies
times out, since Java's clients then close the connection."""
_SHORT_NAMES = {short: name for name, short in LONG_NAMES.items() if name != "batch"}


class Reply(NamedTuple):
    """The rule of Append reads `messages`."""

    messages: tuple[TopicName]
    to: str
    fields: Mapping[str, str]
    body: bytes


class PassReply:
    """324, whose fields have long names, and 325. The body may be empty: those of Go's client
    are."""

    use_case = "Append"

    def __init__(
        self,
        where: BrokerName,
        members: ConnectedClients,
        elsewhere: ClientsElsewhere,
        clock: Clock,
        code: RequestCode,
    ) -> None:
        self._where = where
        self._members = members
        self._elsewhere = elsewhere
        self._clock = clock
        self._code = code

    def decode(self, command: Command) -> Reply:
        fields = command.fields
        if self._code is RequestCode.SEND_REPLY_MESSAGE_V2:
            fields = {_SHORT_NAMES[one]: fields[one] for one in fields if one in _SHORT_NAMES}
        topic, properties = (
            text(fields, "topic"),
            decode_properties(text(fields, "properties").encode()),
        )
        known = {name: fields[name] for name in LONG_NAMES if name in fields}
        return Reply((TopicName(topic),), text(properties, REPLY_TO_CLIENT), known, command.body)

    async def answer(self, client: AsyncClient, channel: Channel, asked: Reply) -> Answer:
        waiting = self._members.producer(asked.to)
        ask = waiting.ask if waiting else partial(self._elsewhere.ask, "", asked.to)
        now_ms = self._clock.wall_ms()
        said = {
            **asked.fields,
            "bornHost": channel.address,
            "properties": f"PUSH_REPLY_TIME\1{now_ms}\2{asked.fields['properties']}",
            "storeHost": self._where.address,
            "storeTimestamp": now_ms,
        }
        try:
            async with asyncio.timeout(TAKEN_S):
                code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
                taken = await ask(code, said, asked.body)
        except NotFoundError as error:
            return _not_taken(str(error))
        except (TimeoutError, UnavailableError):
            return _not_taken(f"the client {asked.to} has not taken it")
        if taken.code != ResponseCode.SUCCESS:
            return _not_taken(taken.remark)
        return Answer(fields={"msgId": "0", "queueId": 0, "queueOffset": 0})


def _not_taken(why: str) -> Answer:
    return Answer(ResponseCode.SYSTEM_ERROR, remark=f"push reply message fail: {why}")
