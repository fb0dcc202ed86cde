"""Sends that go on as they came (10, 310, 320): neither properties nor messages are decoded.

What needs more than that is decoded (`sending.py`): delayed messages, those of transactions,
requests that want a reply, messages with a priority, those that do not wait for the disk, those of
retry topics, and whatever is to be refused.
"""

import re
import struct
from typing import NamedTuple

from stratamq.client.outgoing import LARGEST_PROPERTIES_BYTES
from stratamq.client.units import Fields
from stratamq.client.values import SendResult
from stratamq.errors import InvalidRequestError
from stratamq.formats.batch_frames import Row
from stratamq.formats.producer_item import PRODUCER_ITEM
from stratamq.formats.properties import (
    ITEM_SEPARATOR,
    PRIORITY,
    REPLY_TO_CLIENT,
    UNIQ_KEY,
    decode_properties,
    find_property,
)
from stratamq.formats.sysflag import TAKEN_FLAGS
from stratamq.formats.topics import RETRY_PREFIX
from stratamq_gateway.codes import SENT, RequestCode
from stratamq_gateway.frames import IS_ANSWER, VERSION, Command, compact, framed

_DECODED = re.compile(
    rb"DELAY|TIMER_DEL|TRAN_MSG|WAIT\x01(?!true)|"
    + b"|".join(name.encode() for name in (REPLY_TO_CLIENT, PRODUCER_ITEM, PRIORITY))
)
"""What stands in the properties of a message that is to be decoded, perhaps among others."""
_KEY = UNIQ_KEY.encode()
_LONG_NAMES = (
    "topic", "queueId", "flag", "sysFlag", "bornTimestamp", "reconsumeTimes", "properties", "batch",
)  # fmt: skip
_SHORT_NAMES = ("b", "e", "h", "f", "g", "j", "i", "m")
_BATCH_HEAD, _LENGTH = struct.Struct(">iiiii"), struct.Struct(">h")
"""Length, magic, checksum, flag, length of the body; the length of the properties."""
_ANSWER = (
    '{"code":%d,"flag":%d,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON",'
    '"version":%d,"extFields":{"msgId":"%s","queueId":"%d","queueOffset":"%d","MSG_REGION":"%s",'
    '"TRACE_ON":"true","transactionId":%s}}'
)


class Rows(NamedTuple):
    """Messages for one queue, with encoded properties."""

    topic: str
    queue_id: int | None
    fields: Fields
    rows: list[Row]


def rows_of(command: Command) -> Rows | None:
    """None: the messages are to be decoded, or refused."""
    long = command.code == RequestCode.SEND_MESSAGE
    values = map(command.fields.get, _LONG_NAMES if long else _SHORT_NAMES)
    topic, queue, flag, sys_flag, born, times, properties, batch = values
    if not topic or topic.startswith(RETRY_PREFIX):
        return None
    try:
        outer = (properties or "").encode()
        queue_id = int(queue or -1)
        fields = (int(flag or 0), int(sys_flag or 0) & TAKEN_FLAGS, int(born or 0), int(times or 0))
        if command.code == RequestCode.SEND_BATCH_MESSAGE or batch == "true":
            rows = _of_batch(command.body, outer, fields[0])
        else:
            rows = _of_one(command.body, outer)
    except (InvalidRequestError, ValueError):
        return None  # it is refused where it is decoded
    if rows is None or not fields[2]:
        return None
    return Rows(topic, None if queue_id < 0 else queue_id, fields, rows)


def _of_one(body: bytes, properties: bytes) -> list[Row] | None:
    properties = properties.removesuffix(ITEM_SEPARATOR)
    return [(body, properties)] if _goes(properties) else None


def _of_batch(body: bytes, outer: bytes, outer_flag: int) -> list[Row] | None:
    """Each message has the properties of the batch that it has not itself, but its own key."""
    common = decode_properties(outer)
    key = common.pop(UNIQ_KEY, "").encode()
    items = [(name.encode(), f"\x02{name}\x01{common[name]}".encode()) for name in common]
    rows = []
    for flag, inner, properties in entries(body):
        properties = properties.removesuffix(ITEM_SEPARATOR)
        for name, item in items:
            if find_property(properties, name) is None:
                properties += item
        if flag != outer_flag or not _goes(properties) or find_property(properties, _KEY) == key:
            return None
        rows.append((inner, properties))
    return rows


def _goes(properties: bytes) -> bool:
    """ValueError for what is not UTF-8."""
    if not properties.isascii():
        properties.decode()
    return (
        len(properties) <= LARGEST_PROPERTIES_BYTES
        and _DECODED.search(properties) is None
        and find_property(properties, _KEY) is not None
    )


def encode_sent(results: list[SendResult], opaque: int, region: str) -> bytes:
    """The answer of `sending.Send` in one piece."""
    first = results[0]
    worst = first if len(results) == 1 else max(results, key=lambda one: one.status.value)
    ids = first.message_id if len(results) == 1 else ",".join([one.message_id for one in results])
    key = compact(first.unique_key).decode()
    numbers = (SENT[worst.status], IS_ANSWER, opaque, VERSION)
    places = (ids, first.queue_id, first.queue_offset, region, key)
    return framed((_ANSWER % (*numbers, *places)).encode())


def entries(body: bytes) -> list[tuple[int, bytes, bytes]]:
    """Flag, body and properties of each message of a batch. InvalidRequestError."""
    found, at = [], 0
    while at < len(body):
        try:
            length, _, _, flag, body_length = _BATCH_HEAD.unpack_from(body, at)
            body_at = at + _BATCH_HEAD.size
            properties_at = body_at + body_length + 2
            (properties_length,) = _LENGTH.unpack_from(body, properties_at - 2)
        except struct.error as error:
            raise InvalidRequestError("a batch that cannot be decoded") from error
        end = properties_at + properties_length
        if body_length < 0 or properties_length < 0 or at + length != end or end > len(body):
            raise InvalidRequestError("a batch whose lengths do not add up")
        found.append((flag, body[body_at : body_at + body_length], body[properties_at:end]))
        at = end
    if not found:
        raise InvalidRequestError("a batch without messages")
    return found
