"""The tables of a broker's services that stand in no message: read on a master, taken over on a
slave, a page at a time. Of one event loop.

    TOPICS            the commit log    what changed of the file's topics
    QUEUE_OFFSETS     the commit log    {"offset": the log's end, "queues": [[topic, id, next], …]}
    CONSUMER_OFFSETS  the dispatcher    what changed of the file's topics of groups
"""

import json
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from stratamq.api.v1 import commitlog_pb2, common_pb2, dispatcher_pb2
from stratamq.errors import CorruptRecordError, InvalidRequestError
from stratamq.formats.json_files import parse_json_object
from stratamq.formats.replication_metadata import MetadataKind, Page
from stratamq.rpc.asking import ask
from stratamq.rpc.endpoints import Channels

ANSWER_S = 30.0


class Owners:
    """Calls raise StrataError; UnavailableError when a service does not answer."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._exports: dict[MetadataKind, Callable[[bytes], Awaitable[Page]]] = {
            MetadataKind.TOPICS: self._topics,
            MetadataKind.QUEUE_OFFSETS: self._queue_offsets,
            MetadataKind.CONSUMER_OFFSETS: self._consumer_offsets,
        }

    async def export(self, kind: MetadataKind, mark: bytes) -> Page:
        """What is new in the owner's table since `mark`. InvalidRequestError for
        what can be no mark; one that a start before this one gave out gets everything again."""
        return await self._exports[kind](mark)

    async def take(self, kind: MetadataKind, page: Page, generation: int) -> None:
        """Let the owner take over a page of its master's table. InvalidRequestError when it is
        none; NotWritableError (`behind`) for queue offsets that come too early."""
        if not page.document:
            return
        if kind is MetadataKind.CONSUMER_OFFSETS:
            request = dispatcher_pb2.ImportConsumerOffsetsRequest(
                consumer_offset_json=page.document
            )
            await self._call("ImportConsumerOffsets", request)
        elif kind is MetadataKind.TOPICS:
            await self._call(
                "ImportMetadata", commitlog_pb2.ImportMetadataRequest(topics_json=page.document)
            )
        else:
            end, queues = parse_queue_offsets(page.document)
            request = commitlog_pb2.ImportMetadataRequest(
                generation=generation, appended_offset=end, queues=queues, more=page.more
            )
            await self._call("ImportMetadata", request)

    async def _topics(self, mark: bytes) -> Page:
        request = commitlog_pb2.ExportMetadataRequest(mark=_mark(mark))
        answer = await self._call("ExportMetadata", request)
        return _page(bytes(answer.topics_json), answer.mark)

    async def _queue_offsets(self, mark: bytes) -> Page:
        position = _mark(mark).position
        request = commitlog_pb2.GetQueueTableRequest(position=position)
        table = await self._call("GetQueueTable", request)
        queues = [[one.topic, one.queue_id, one.next_queue_offset] for one in table.queues]
        document = json.dumps({"offset": table.appended_offset, "queues": queues}).encode()
        return _page(document, common_pb2.ChangeMark(position=table.next_position))

    async def _consumer_offsets(self, mark: bytes) -> Page:
        request = dispatcher_pb2.ExportConsumerOffsetsRequest(mark=_mark(mark))
        answer = await self._call("ExportConsumerOffsets", request)
        return _page(bytes(answer.consumer_offset_json), answer.mark)

    async def _call(self, name: str, request: Any) -> Any:
        return await ask(self._channels, name, request, ANSWER_S)


_MARK = struct.Struct(
    ">"
    "q"  # incarnation
    "q"  # since
    "q"  # up to
    "q"  # position
)


def _mark(raw: bytes) -> common_pb2.ChangeMark:
    incarnation, since, upto, position = _MARK.unpack(raw)
    return common_pb2.ChangeMark(incarnation=incarnation, since=since, upto=upto, position=position)


def _page(document: bytes, mark: common_pb2.ChangeMark) -> Page:
    raw = _MARK.pack(mark.incarnation, mark.since, mark.upto, mark.position)
    return Page(document, raw, more=mark.position > 0)


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
