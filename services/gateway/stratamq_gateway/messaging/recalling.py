"""RecallMessage: a producer cancels a delayed message before its time. `spec/gateway.md` 3.12.

Its handle is base64 of `v1 TOPIC OFFSET@BROKER DELIVER_MS MESSAGE_ID`: RocketMQ's, with the
message's offset in the log before the broker's name, which is percent-encoded. So any gateway asks
the broker that has it, and that finds it without an index. A handle that names no broker is of the
gateway's own.
"""

import base64
import binascii
from typing import NamedTuple
from urllib.parse import quote, unquote

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client.admin_operations import recall_message
from stratamq.errors import NotFoundError
from stratamq_gateway.brokers import Brokers
from stratamq_gateway.messaging.messages import taken_types, topic_name
from stratamq_gateway.messaging.sessions import ClientSession
from stratamq_gateway.messaging.statuses import RefusedError, status
from stratamq_gateway.messaging.topics import existing

_VERSION, _PARTS = "v1", 5
_OFFSET_BITS = 63


class RecallHandle(NamedTuple):
    """A delayed message, as its producer names it."""

    topic: str
    physical_offset: int
    broker: str
    deliver_ms: int
    message_id: str

    def encode(self) -> str:
        place = f"{self.physical_offset}@{quote(self.broker, safe='')}"
        text = f"{_VERSION} {self.topic} {place} {self.deliver_ms} {self.message_id}"
        return base64.urlsafe_b64encode(text.encode()).decode()


def decode_handle(given: str) -> RecallHandle:
    """RefusedError."""
    try:
        text = base64.b64decode(given, b"-_", validate=True).decode()
        version, topic, place, deliver_ms, message_id = text.split(" ", _PARTS - 1)
        offset, _, broker = place.partition("@")
        handle = RecallHandle(topic, int(offset), unquote(broker), int(deliver_ms), message_id)
    except (binascii.Error, ValueError):  # UnicodeDecodeError is one
        version, handle = "", RecallHandle("", -1, "", 0, "")
    if version != _VERSION or not 0 <= handle.physical_offset < 1 << _OFFSET_BITS:
        raise RefusedError(pb.BAD_REQUEST, f"no handle of a delayed message: {given!r:.200}")
    return handle


class RecallMessage:
    use_case = "RecallMessage"
    response = pb.RecallMessageResponse

    def __init__(self, broker: str, brokers: Brokers) -> None:
        """`broker`: the name of the gateway's own."""
        self._broker = broker
        self._brokers = brokers

    def asked(self, request: pb.RecallMessageRequest) -> RecallHandle:
        handle, topic = decode_handle(request.recall_handle), topic_name(request.topic)
        if handle.topic != topic:
            raise RefusedError(pb.BAD_REQUEST, f"the handle is not of a message of topic {topic}")
        return handle

    async def answer(
        self, session: ClientSession, request: pb.RecallMessageRequest, asked: RecallHandle
    ) -> pb.RecallMessageResponse:
        call = recall_message(asked.topic, asked.physical_offset, asked.message_id)
        try:
            broker = self._brokers.named(asked.broker or self._broker)
            client = broker.client or session.client
            topic = await existing(client, asked.topic)
            if pb.DELAY not in taken_types(topic.message_type):
                raise RefusedError(
                    pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                    f"topic {topic.name} takes no delayed messages",
                )
            await client.run(call)
        except NotFoundError as error:
            raise RefusedError(pb.NOT_FOUND, str(error)) from error
        return pb.RecallMessageResponse(status=status(pb.OK), message_id=asked.message_id)
