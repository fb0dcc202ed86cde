"""Messages as clients have them, and as the log has them. `spec/gateway.md` 3.3 and 6."""

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client import Message
from stratamq.client.received import ReceivedMessage
from stratamq.errors import CorruptionError
from stratamq.formats import sysflag
from stratamq.formats.hosts import Host
from stratamq.formats.javahash import java_string_hash
from stratamq.formats.producer_item import PRODUCER_ITEM
from stratamq.formats.properties import (
    BORN_HOST,
    BORN_TIMESTAMP,
    CHECK_IMMUNITY_TIME,
    CLUSTER,
    DELAY,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    MESSAGE_GROUP,
    MSG_REGION,
    PGROUP,
    PRIORITY,
    RECONSUME_TIME,
    RESERVED,
    TIMER_DELIVER_MS,
    TRACE_CONTEXT,
    TRACE_ON,
    TRAN_MSG,
    TRANSACTION_ID,
)
from stratamq.formats.source_item import SOURCE_ITEM
from stratamq.formats.topic_types import MessageType, priority_of
from stratamq.formats.topics import MAX_TOPIC_BYTES, is_system_topic
from stratamq.rpc.address import join_address
from stratamq_gateway.codes import REGION
from stratamq_gateway.messaging.statuses import RefusedError

MAX_BODY_BYTES = 4 << 20
MAX_PROPERTIES = 128
MAX_PROPERTY_BYTES = 16 << 10
MAX_MESSAGE_GROUP_BYTES = 64
MAX_GROUP_BYTES = 255
MAX_RECOVERY_S = 3_600
NO_LITE_TOPICS = "LITE topics are not served: use a topic, or a tag, for each of them"
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""What a timestamp can say: the years 1 to 9999."""
_TIME_DIGITS = 19
_SYSTEM_GROUP = "CID_RMQ_SYS_"
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
RESERVED_NAMES = RESERVED | {SOURCE_ITEM, PRODUCER_ITEM}
"""A client sets no property of these names."""
_TYPES = {
    pb.NORMAL: MessageType.NORMAL,
    pb.FIFO: MessageType.FIFO,
    pb.DELAY: MessageType.DELAY,
    pb.TRANSACTION: MessageType.TRANSACTION,
    pb.PRIORITY: MessageType.PRIORITY,
}


def topic_name(topic: pb.Resource) -> str:
    """RefusedError."""
    name = _named(topic)
    if not _NAME.fullmatch(name) or len(name) > MAX_TOPIC_BYTES or is_system_topic(name):
        raise RefusedError(pb.ILLEGAL_TOPIC, f"no name of a topic for clients: {name!r:.160}")
    return name


def group_name(group: pb.Resource) -> str:
    """RefusedError."""
    name = _named(group)
    if not _NAME.fullmatch(name) or len(name) > MAX_GROUP_BYTES or name.startswith(_SYSTEM_GROUP):
        raise RefusedError(pb.ILLEGAL_CONSUMER_GROUP, f"no name of a group: {name!r:.300}")
    return name


def _named(resource: pb.Resource) -> str:
    namespace = resource.resource_namespace
    return f"{namespace}%{resource.name}" if namespace else resource.name


# --- from clients ---


def message_type(message: pb.Message) -> pb.MessageType:
    """By what it has, as RocketMQ derives it."""
    system = message.system_properties
    if system.message_type == pb.TRANSACTION:
        return pb.TRANSACTION
    if system.HasField("delivery_timestamp"):
        return pb.DELAY
    if system.HasField("message_group"):
        return pb.FIFO
    return pb.PRIORITY if system.HasField("priority") else pb.NORMAL


def taken_types(kind: MessageType) -> list[pb.MessageType]:
    """What a topic takes, as routes say it. Clients refuse to send to a topic without a type, and
    those before priorities a route with a type that they do not know."""
    if kind.takes_all:
        return [one for one in _TYPES if one != pb.PRIORITY]
    return [one for one, same in _TYPES.items() if same is kind]


def to_store(given: pb.Message, cluster: str) -> Message:
    """A message of a client. RefusedError with the code of what is wrong with it."""
    system = given.system_properties
    topic = topic_name(given.topic)
    _check(given)
    kind = message_type(given)
    born_ms = milliseconds(system.born_timestamp)
    properties = {
        **given.user_properties,
        PGROUP: topic,
        RECONSUME_TIME: "0",
        BORN_TIMESTAMP: str(born_ms),
        MSG_REGION: REGION,
        TRACE_ON: "true",
        CLUSTER: cluster,
    }
    if system.born_host:
        properties[BORN_HOST] = system.born_host
    if system.HasField("trace_context"):
        properties[TRACE_CONTEXT] = system.trace_context
    if kind == pb.FIFO:
        properties[MESSAGE_GROUP] = system.message_group
    if kind == pb.PRIORITY:
        properties[PRIORITY] = str(system.priority)
    deliver_at = None
    if kind == pb.DELAY:
        due_ms = milliseconds(system.delivery_timestamp, pb.ILLEGAL_DELIVERY_TIME)
        deliver_at = datetime.fromtimestamp(due_ms / 1e3, UTC)
    if kind == pb.TRANSACTION:
        properties[TRANSACTION_ID] = system.message_id
        if recovery_s := system.orphaned_transaction_recovery_duration.seconds:
            properties[CHECK_IMMUNITY_TIME] = str(recovery_s)
    compressed = system.body_encoding == pb.GZIP
    return Message(
        topic,
        given.body,
        tag=system.tag,
        keys=tuple(system.keys),
        properties=properties,
        unique_key=system.message_id,
        sys_flag=sysflag.COMPRESSED if compressed else 0,
        born_timestamp_ms=born_ms,
        half=kind == pb.TRANSACTION,
        deliver_at=deliver_at,
    )


def milliseconds(given: Timestamp, code: pb.Code = pb.BAD_REQUEST) -> int:
    """RefusedError."""
    try:
        return given.ToMilliseconds()
    except ValueError as error:
        raise RefusedError(code, str(error)) from error


def _check(given: pb.Message) -> None:
    system = given.system_properties
    if not given.body:
        raise RefusedError(pb.MESSAGE_BODY_EMPTY, "the body is empty")
    if len(given.body) > MAX_BODY_BYTES:
        raise RefusedError(
            pb.MESSAGE_BODY_TOO_LARGE, f"the body has {len(given.body)} bytes: 4 MiB at most"
        )
    if not system.message_id.strip():
        raise RefusedError(pb.ILLEGAL_MESSAGE_ID, "the message has no id")
    _check_properties(given.user_properties, [system.tag, *system.keys])
    if system.HasField("tag") and (
        not system.tag.strip() or "|" in system.tag or _CONTROL.search(system.tag)
    ):
        raise RefusedError(pb.ILLEGAL_MESSAGE_TAG, f"no tag: {system.tag!r:.80}")
    for key in system.keys:
        if not key.strip() or " " in key or _CONTROL.search(key):
            raise RefusedError(pb.ILLEGAL_MESSAGE_KEY, f"no key: {key!r:.80}")
    if system.HasField("message_group"):
        group = system.message_group
        size = len(group.encode())
        if not group.strip() or size >= MAX_MESSAGE_GROUP_BYTES or _CONTROL.search(group):
            raise RefusedError(pb.ILLEGAL_MESSAGE_GROUP, f"no message group: {group!r:.80}")
    if system.HasField("lite_topic"):
        raise RefusedError(pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, NO_LITE_TOPICS)
    if system.priority < 0:
        raise RefusedError(pb.BAD_REQUEST, f"no priority: {system.priority}; 0 is the lowest")
    if system.orphaned_transaction_recovery_duration.seconds > MAX_RECOVERY_S:
        raise RefusedError(pb.BAD_REQUEST, "a transaction is asked about within an hour")
    check_digest(given)


def _check_properties(properties: Mapping[str, str], texts: list[str]) -> None:
    if len(properties) > MAX_PROPERTIES:
        raise RefusedError(
            pb.MESSAGE_PROPERTIES_TOO_LARGE, f"{len(properties)} properties: at most 128"
        )
    for name, value in properties.items():
        texts += (name, value)
        if not name or name in RESERVED_NAMES or _CONTROL.search(name) or _CONTROL.search(value):
            raise RefusedError(pb.ILLEGAL_MESSAGE_PROPERTY_KEY, f"no property: {name!r:.80}")
    size = sum(len(text.encode()) for text in texts)
    if size > MAX_PROPERTY_BYTES:
        raise RefusedError(
            pb.MESSAGE_PROPERTIES_TOO_LARGE, f"{size} bytes of properties: at most 16 KiB"
        )


def check_digest(given: pb.Message) -> None:
    """RefusedError for a body that does not have its checksum."""
    digest = given.system_properties.body_digest
    algorithm = {pb.MD5: "md5", pb.SHA1: "sha1"}.get(digest.type)
    if algorithm is None or not digest.checksum:
        return
    if hashlib.new(algorithm, given.body).hexdigest().upper() != digest.checksum.upper():
        raise RefusedError(pb.MESSAGE_CORRUPTED, "the body does not have its checksum")


def queue_of_group(message_group: str, queues: int) -> int:
    """The queue of a message group: a jump consistent hash, so that most groups keep their queue
    when some are added. That of Guava, over Java's hash of strings."""
    state, queue, mask = java_string_hash(message_group), 0, (1 << 64) - 1
    while True:
        state = (2862933555777941757 * state + 1) & mask
        further = int((queue + 1) / (((state >> 33) + 1) / (1 << 31)))
        if not 0 <= further < queues:
            return queue
        queue = further


# --- to clients ---


def to_deliver(
    found: ReceivedMessage, topic: pb.Resource, *, attempt: int = 1, receipt: str = ""
) -> pb.Message:
    """`topic`: as the client has named it."""
    properties = found.properties
    system = pb.SystemProperties(
        message_id=found.unique_key or found.message_id,
        keys=found.keys,
        message_type=_stored_type(found),
        born_host=properties.get(BORN_HOST, host_text(found.born_host)),
        store_host=host_text(found.store_host),
        queue_id=found.queue_id,
        queue_offset=found.queue_offset,
        delivery_attempt=attempt,
    )
    _set(system.born_timestamp, found.born_timestamp_ms)
    _set(system.store_timestamp, found.store_timestamp_ms)
    body = _body(found, system)
    system.body_digest.type = pb.MD5
    system.body_digest.checksum = hashlib.md5(body).hexdigest().upper()
    if receipt:
        system.receipt_handle = receipt
    if found.tag:
        system.tag = found.tag
    if MESSAGE_GROUP in properties:
        system.message_group = properties[MESSAGE_GROUP]
    if (priority := priority_of(properties)) is not None:
        system.priority = priority
    if TRACE_CONTEXT in properties:
        system.trace_context = properties[TRACE_CONTEXT]
    if (due := properties.get(TIMER_DELIVER_MS, "")).isdecimal() and len(due) <= _TIME_DIGITS:
        _set(system.delivery_timestamp, int(due))
    if DLQ_ORIGIN_TOPIC in properties and DLQ_ORIGIN_MESSAGE_ID in properties:
        system.dead_letter_queue.topic = properties[DLQ_ORIGIN_TOPIC]
        system.dead_letter_queue.message_id = properties[DLQ_ORIGIN_MESSAGE_ID]
    made = pb.Message(topic=topic, system_properties=system, body=body)
    for name, value in properties.items():
        if name not in RESERVED_NAMES:
            made.user_properties[name] = value
    return made


def _set(timestamp: Timestamp, time_ms: int) -> None:
    """Producers of other protocols give any number, and one odd message must not stop others."""
    seconds, milliseconds = divmod(max(FIRST_MS, min(time_ms, LAST_MS)), 1_000)
    timestamp.seconds, timestamp.nanos = seconds, milliseconds * 1_000_000


def _body(found: ReceivedMessage, system: pb.SystemProperties) -> bytes:
    """GZIP is what clients undo. What another compressor made, they get as it was before."""
    system.body_encoding = pb.IDENTITY
    try:
        return found.body
    except CorruptionError:
        system.body_encoding = pb.GZIP
        return found.stored_body


def _stored_type(found: ReceivedMessage) -> pb.MessageType:
    properties = found.properties
    committed = found.sys_flag & sysflag.TRANSACTION_MASK == sysflag.TRANSACTION_COMMIT
    if committed or properties.get(TRAN_MSG) == "true":
        return pb.TRANSACTION
    if TIMER_DELIVER_MS in properties or DELAY in properties:
        return pb.DELAY
    if MESSAGE_GROUP in properties:
        return pb.FIFO
    return pb.PRIORITY if PRIORITY in properties else pb.NORMAL


def host_text(host: Host) -> str:
    return join_address(host.address, host.port)
