"""Messages that go to the log as their clients sent them. No Python object is made for a message,
and one task answers all sends of a batch.

What needs more than that is decoded (`messages.to_store`): messages with a time, those of
transactions, and whatever is to be refused.
"""

import asyncio
from functools import lru_cache
from typing import NamedTuple

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client._async.sending import AsyncSharedStream
from stratamq.client.outgoing import LARGEST_PROPERTIES_BYTES
from stratamq.client.units import Batch, BatchRun, Fields
from stratamq.client.values import SendResult
from stratamq.errors import StrataError
from stratamq.formats import sysflag
from stratamq.formats.batch_frames import Row
from stratamq.formats.properties import (
    BORN_HOST,
    BORN_TIMESTAMP,
    CLUSTER,
    KEYS,
    MESSAGE_GROUP,
    MSG_REGION,
    PGROUP,
    PRIORITY,
    RECONSUME_TIME,
    TAGS,
    TRACE_CONTEXT,
    TRACE_ON,
    UNIQ_KEY,
)
from stratamq.rpc.framing import encode_varint
from stratamq_gateway.codes import REGION
from stratamq_gateway.messaging.messages import (
    MAX_BODY_BYTES,
    MAX_MESSAGE_GROUP_BYTES,
    MAX_PROPERTIES,
    MAX_PROPERTY_BYTES,
    RESERVED_NAMES,
    check_digest,
    topic_name,
)
from stratamq_gateway.messaging.statuses import RefusedError, status

_MAX_PROPERTIES_BYTES = min(MAX_PROPERTY_BYTES, LARGEST_PROPERTIES_BYTES)
_LAST_S = 253_402_300_799
"""What a timestamp can say: the year 9999."""
_NANOS, _NANOS_OF_MS = 1_000_000_000, 1_000_000
_OTHER_KINDS = (
    "delivery_timestamp",
    "lite_topic",
    "orphaned_transaction_recovery_duration",
)
_SENT = pb.SendMessageResponse(status=status(pb.OK)).SerializeToString()
_ENTRY_TAG = encode_varint(pb.SendMessageResponse.ENTRIES_FIELD_NUMBER << 3 | 2)
_ENTRY = pb.SendResultEntry(status=status(pb.OK)).SerializeToString()
_ID_TAG = encode_varint(pb.SendResultEntry.MESSAGE_ID_FIELD_NUMBER << 3 | 2)
_TRANSACTION_TAG = encode_varint(pb.SendResultEntry.TRANSACTION_ID_FIELD_NUMBER << 3 | 2)
_OFFSET_TAG = encode_varint(pb.SendResultEntry.OFFSET_FIELD_NUMBER << 3)


class MessageRow(NamedTuple):
    """A message with encoded properties."""

    topic: str
    fields: Fields
    row: Row
    message_id: str
    kind: pb.MessageType = pb.NORMAL
    """A FIFO or PRIORITY message has its queue; the log chooses one for others."""

    @property
    def messages(self) -> tuple["MessageRow"]:
        """What the permission is asked for."""
        return (self,)


def row_of(given: pb.Message, cluster: str) -> MessageRow | None:
    """None: it is to be decoded, or refused. RefusedError for a body without its checksum."""
    system, topic, body = given.system_properties, given.topic.name, given.body
    if given.topic.resource_namespace or not _is_topic(topic):
        return None
    if not 0 < len(body) <= MAX_BODY_BYTES or system.message_type == pb.TRANSACTION:
        return None
    for kind in _OTHER_KINDS:
        if system.HasField(kind):
            return None
    born = system.born_timestamp
    if not (0 < born.seconds <= _LAST_S and 0 <= born.nanos < _NANOS):
        return None
    born_ms = born.seconds * 1_000 + born.nanos // _NANOS_OF_MS
    kind = pb.NORMAL
    if system.HasField("message_group"):
        kind = pb.FIFO
    elif system.HasField("priority"):
        kind = pb.PRIORITY
    properties = _properties_of(given, system, kind, born_ms, cluster)
    if properties is None:
        return None
    if system.HasField("body_digest"):
        check_digest(given)
    sys_flag = sysflag.COMPRESSED if system.body_encoding == pb.GZIP else 0
    row = body, properties
    return MessageRow(topic, (0, sys_flag, born_ms, 0), row, system.message_id, kind)


@lru_cache(maxsize=4096)
def _is_topic(name: str) -> bool:
    try:
        topic_name(pb.Resource(name=name))
    except RefusedError:
        return False
    return True


def _properties_of(
    given: pb.Message, system: pb.SystemProperties, kind: pb.MessageType, born_ms: int, cluster: str
) -> bytes | None:
    """The text of `to_store`'s message. None where anything in it is unusual."""
    tag, message_id = system.tag, system.message_id
    items, texts = [], [message_id]
    if system.keys:
        keys = [*system.keys]
        joined = " ".join(keys)
        if joined.count(" ") >= len(keys) or not all(keys):
            return None
        items.append(f"{KEYS}\x01{joined}")
        texts.append(joined)
    if tag:
        if "|" in tag or tag.isspace():
            return None
        items.append(f"{TAGS}\x01{tag}")
        texts.append(tag)
    elif system.HasField("tag"):
        return None
    if not message_id or message_id.isspace():
        return None
    items.append(f"{UNIQ_KEY}\x01{message_id}")
    if len(given.user_properties):
        if len(given.user_properties) > MAX_PROPERTIES:
            return None
        for name, value in given.user_properties.items():
            if not name or name in RESERVED_NAMES:
                return None
            items.append(f"{name}\x01{value}")
            texts += (name, value)
    items.append(
        f"{PGROUP}\x01{given.topic.name}\x02{RECONSUME_TIME}\x010\x02{BORN_TIMESTAMP}\x01{born_ms}"
        f"\x02{MSG_REGION}\x01{REGION}\x02{TRACE_ON}\x01true\x02{CLUSTER}\x01{cluster}"
    )
    if host := system.born_host:
        items.append(f"{BORN_HOST}\x01{host}")
        texts.append(host)
    if system.HasField("trace_context"):
        context = system.trace_context
        items.append(f"{TRACE_CONTEXT}\x01{context}")
        texts.append(context)
    if kind != pb.NORMAL:
        ordering = _ordering_of(system, kind)
        if ordering is None:
            return None
        items.append(ordering)
        texts.append(system.message_group)
    if not "".join(texts).isprintable():  # neither separators nor other control characters
        return None
    properties = "\x02".join(items).encode()
    return properties if len(properties) <= _MAX_PROPERTIES_BYTES else None


def _ordering_of(system: pb.SystemProperties, kind: pb.MessageType) -> str | None:
    """The item of a message group or of a priority. None where it is to be refused."""
    if system.priority < 0:
        return None
    if kind == pb.PRIORITY:
        return f"{PRIORITY}\x01{system.priority}"
    group = system.message_group
    if not group.strip() or len(group.encode()) >= MAX_MESSAGE_GROUP_BYTES:
        return None
    return f"{MESSAGE_GROUP}\x01{group}"


def sent(message_id: str, queue_offset: int) -> bytes:
    """The answer to a message that is stored: a `SendMessageResponse`."""
    text = message_id.encode()
    length = encode_varint(len(text))
    offset = _OFFSET_TAG + encode_varint(queue_offset) if queue_offset else b""
    entry = b"".join((_ENTRY, _ID_TAG, length, text, _TRANSACTION_TAG, length, text, offset))
    return b"".join((_SENT, _ENTRY_TAG, encode_varint(len(entry)), entry))


class MessageRowSends:
    """Belongs to the event loop."""

    def __init__(self) -> None:
        self._waiting: dict[Batch, list[_Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(
        self, stream: AsyncSharedStream, message: MessageRow, queue_id: int | None
    ) -> int | SendResult | None:
        """The message's queue offset where it is stored as its topic wants it; else what became of
        it. None, and nothing is sent: it is to be decoded.

        StrataError when it is not stored; after UnavailableError it may be.
        """
        place = stream.add_row(message.topic, queue_id, message.fields, message.row)
        if place is None:
            return None
        batch, run, index = place
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()  # a system call, on Python 3.11
        waiting = self._waiting.get(batch)
        if waiting is None:
            waiting = self._waiting[batch] = []
            task = loop.create_task(self._settle(stream, batch, waiting))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        result: asyncio.Future[_Outcome] = loop.create_future()
        waiting.append((run, index, result))
        found = await result
        if isinstance(found, StrataError):
            raise found.fresh_copy()
        return found if isinstance(found, int) else found.check()

    async def _settle(
        self, stream: AsyncSharedStream, batch: Batch, waiting: "list[_Waiting]"
    ) -> None:
        failure: StrataError | None = None
        try:
            await stream.settled(batch)
        except StrataError as error:
            failure = error.fresh_copy()  # without this frame, which has the messages
        except BaseException as error:
            for _, _, result in waiting:
                if not result.done():
                    result.set_exception(error)
            raise
        finally:
            del self._waiting[batch]
        offsets = None if failure is not None else batch.first_queue_offsets()
        for run, index, result in waiting:
            if result.done():
                continue  # its client has left
            if failure is not None:
                result.set_result(failure)
            elif offsets is not None:
                result.set_result(offsets[run.number] + index)
            else:
                result.set_result(batch.result_of(run, index))


_Outcome = int | SendResult | StrataError
_Waiting = tuple[BatchRun, int, asyncio.Future[_Outcome]]
