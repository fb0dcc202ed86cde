"""RecallMessage: a producer cancels a delayed message before its time. `spec/gateway.md` 3.12.

Its handle is base64 of `v1 TOPIC OFFSET DELIVER_MS MESSAGE_ID`: RocketMQ's, with the message's
offset in the log where that has the broker's name. So any gateway recalls it, without an index.
"""

import base64
import binascii
from typing import NamedTuple

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client.admin_operations import recall_message
from stratamq.errors import NotFoundError
from stratamq_gateway.messaging.messages import taken_types, topic_name
from stratamq_gateway.messaging.routing import existing
from stratamq_gateway.messaging.sessions import ClientSession
from stratamq_gateway.messaging.statuses import RefusedError, status

_VERSION, _PARTS = "v1", 5
_OFFSET_BITS = 63


class RecallHandle(NamedTuple):
    """A delayed message, as its producer names it."""

    topic: str
    physical_offset: int
    deliver_ms: int
    message_id: str

    def encode(self) -> str:
        text = " ".join([_VERSION, *map(str, self)])
        return base64.urlsafe_b64encode(text.encode()).decode()


def decode_handle(given: str) -> RecallHandle:
    """RefusedError."""
    try:
        text = base64.b64decode(given, b"-_", validate=True).decode()
        version, topic, offset, deliver_ms, message_id = text.split(" ", _PARTS - 1)
        handle = RecallHandle(topic, int(offset), int(deliver_ms), message_id)
    except (binascii.Error, ValueError):  # UnicodeDecodeError is one
        version, handle = "", RecallHandle("", -1, 0, "")
    if version != _VERSION or not 0 <= handle.physical_offset < 1 << _OFFSET_BITS:
        raise RefusedError(pb.BAD_REQUEST, f"no handle of a delayed message: {given!r:.200}")
    return handle


class RecallMessage:
    use_case = "RecallMessage"
    response = pb.RecallMessageResponse

    def asked(self, request: pb.RecallMessageRequest) -> RecallHandle:
        handle, topic = decode_handle(request.recall_handle), topic_name(request.topic)
        if handle.topic != topic:
            raise RefusedError(pb.BAD_REQUEST, f"the handle is not of a message of topic {topic}")
        return handle

    async def answer(
        self, session: ClientSession, request: pb.RecallMessageRequest, asked: RecallHandle
    ) -> pb.RecallMessageResponse:
        topic = await existing(session, asked.topic)
        if pb.DELAY not in taken_types(topic.message_type):
            raise RefusedError(
                pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"topic {topic.name} takes no delayed messages",
            )
        call = recall_message(asked.topic, asked.physical_offset, asked.message_id)
        try:
            await session.client.run(call)
        except NotFoundError as error:
            raise RefusedError(pb.NOT_FOUND, str(error)) from error
        return pb.RecallMessageResponse(status=status(pb.OK), message_id=asked.message_id)
