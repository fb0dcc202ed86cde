"""The documents of a broker's services that stand in no message: read on a master, taken over on a
slave. Of one event loop.

    TOPICS            the commit log    the file's content
    QUEUE_OFFSETS     the commit log    {"offset": the log's end, "queues": [[topic, id, next], …]}
    CONSUMER_OFFSETS  the dispatcher    the file's content
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from stratamq.api.v1 import commitlog_pb2, common_pb2, dispatcher_pb2
from stratamq.client.endpoints import Channels
from stratamq.client.lost import stream_error
from stratamq.client.wire import METHODS
from stratamq.errors import CorruptRecordError, InvalidRequestError, UnavailableError
from stratamq.formats.json_files import parse_json_object
from stratamq.formats.replication_metadata import Kind

ANSWER_S = 30.0


class Owners:
    """Calls raise StrataError; UnavailableError when a service does not answer."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._exports: dict[Kind, Callable[[], Awaitable[bytes]]] = {
            Kind.TOPICS: self._topics,
            Kind.QUEUE_OFFSETS: self._queue_offsets,
            Kind.CONSUMER_OFFSETS: self._consumer_offsets,
        }

    async def export(self, kind: Kind) -> bytes:
        """The owner's document as it is now; the same bytes while nothing changes."""
        return await self._exports[kind]()

    async def take(self, kind: Kind, document: bytes, generation: int) -> None:
        """Let the owner take a master's document over. InvalidRequestError when it is none;
        NotWritableError (`behind`) for queue offsets that come too early."""
        if kind is Kind.CONSUMER_OFFSETS:
            request = dispatcher_pb2.ImportConsumerOffsetsRequest(consumer_offset_json=document)
            await self._call("ImportConsumerOffsets", request)
        elif kind is Kind.TOPICS:
            await self._call(
                "ImportMetadata", commitlog_pb2.ImportMetadataRequest(topics_json=document)
            )
        else:
            end, queues = parse_queue_offsets(document)
            request = commitlog_pb2.ImportMetadataRequest(
                generation=generation, appended_offset=end, queues=queues
            )
            await self._call("ImportMetadata", request)

    async def _topics(self) -> bytes:
        answer = await self._call("ExportMetadata", commitlog_pb2.ExportMetadataRequest())
        return bytes(answer.topics_json)

    async def _queue_offsets(self) -> bytes:
        table = await self._call("GetQueueTable", commitlog_pb2.GetQueueTableRequest())
        queues = [[one.topic, one.queue_id, one.next_queue_offset] for one in table.queues]
        return json.dumps({"offset": table.appended_offset, "queues": queues}).encode()

    async def _consumer_offsets(self) -> bytes:
        request = dispatcher_pb2.ExportConsumerOffsetsRequest()
        answer = await self._call("ExportConsumerOffsets", request)
        return bytes(answer.consumer_offset_json)

    async def _call(self, name: str, request: Any) -> Any:
        method = METHODS[name]
        try:
            return await self._channels.callable(method)(request, timeout=ANSWER_S)
        except grpc.RpcError as failure:
            error = stream_error(failure)
            if isinstance(error, UnavailableError):
                self._channels.renew(method.room)
            raise error from failure


def parse_queue_offsets(document: bytes) -> tuple[int, list[common_pb2.QueueOffset]]:
    """The log's end and the table. InvalidRequestError."""
    try:
        data = parse_json_object(document)
        return int(data["offset"]), [
            common_pb2.QueueOffset(topic=topic, queue_id=queue_id, next_queue_offset=following)
            for topic, queue_id, following in data["queues"]
        ]
    except (CorruptRecordError, KeyError, TypeError, ValueError) as error:
        raise InvalidRequestError(f"no queue offsets: {error}") from error
