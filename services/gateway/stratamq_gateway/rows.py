"""Sends that go to the log undecoded (10, 310, 320), neither their properties nor their messages.

What needs more than that is decoded (`sending.py`): delayed messages, those of transactions,
requests that want a reply, messages with a priority, those that do not wait for the disk, those of
retry topics, and whatever is to be refused.
"""

import re
import struct
from typing import NamedTuple

from stratamq.client.outgoing import LARGEST_PROPERTIES_BYTES
from stratamq.client.units import Fields, PlacedRun
from stratamq.errors import InvalidRequestError
from stratamq.formats.batch_frames import Row
from stratamq.formats.producer_item import PRODUCER_ITEM
from stratamq.formats.properties import (
    ITEM_SEPARATOR,
    NAME_VALUE_SEPARATOR,
    PRIORITY,
    REPLY_TO_CLIENT,
    UNIQ_KEY,
    decode_properties,
    find_property,
)
from stratamq.formats.sysflag import TAKEN_FLAGS
from stratamq.formats.topics import RETRY_PREFIX
from stratamq_gateway.codes import SENT, RequestCode
from stratamq_gateway.frames import IS_ANSWER, VERSION, Command, encode_text, framed_head

_DECODED = re.compile(
    rb"DELAY|TIMER_DEL|TRAN_MSG|WAIT\x01(?!true)|"
    + b"|".join(name.encode() for name in (REPLY_TO_CLIENT, PRODUCER_ITEM, PRIORITY))
)
"""What stands in the properties of a message that is to be decoded, perhaps among others."""
_KEY = UNIQ_KEY.encode()
_KEY_ITEM = _KEY + NAME_VALUE_SEPARATOR
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
    key: str
    """The first one's unique key."""


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
            rows = [(command.body, outer.removesuffix(ITEM_SEPARATOR))]
        if rows is None or not fields[2] or not _go([row[1] for row in rows]):
            return None
        key = find_property(rows[0][1], _KEY) or b""
        return Rows(topic, None if queue_id < 0 else queue_id, fields, rows, key.decode())
    except (InvalidRequestError, ValueError):
        return None  # it is refused where it is decoded


def _of_batch(body: bytes, outer: bytes, outer_flag: int) -> list[Row] | None:
    """Each message has the properties of the batch that it has not itself, but its own key."""
    common = decode_properties(outer)
    key = common.pop(UNIQ_KEY, "").encode()
    items = [(name.encode(), f"\x02{name}\x01{common[name]}\x02".encode()) for name in common]
    rows = []
    for flag, inner, properties in entries(body):
        if flag != outer_flag:
            return None
        if properties[-1:] == ITEM_SEPARATOR:
            properties = properties[:-1]
        for name, item in items:
            # Most messages of a client have the very item: looking for that is quick.
            delimited = b"\x02%b\x02" % properties
            if item not in delimited and find_property(properties, name) is None:
                properties += item[:-1]
        if key and key in properties and find_property(properties, _KEY) == key:
            return None
        rows.append((inner, properties))
    return rows


def _go(properties: list[bytes]) -> bool:
    """Whether messages with these go on as they are. ValueError for what is not UTF-8."""
    together = ITEM_SEPARATOR.join(properties)
    if not together.isascii():
        for one in properties:
            one.decode()
    return (
        max(map(len, properties)) <= LARGEST_PROPERTIES_BYTES
        and _DECODED.search(together) is None
        and all(map(_has_key, properties))
    )


def _has_key(properties: bytes) -> bool:
    at = properties.find(_KEY_ITEM)
    if at < 0:
        return False
    end = at + len(_KEY_ITEM)
    is_item = at == 0 or properties[at - 1] == ITEM_SEPARATOR[0]
    if is_item and properties[end : end + 1] not in (b"", ITEM_SEPARATOR):
        return True
    return find_property(properties, _KEY) is not None


def encode_sent(stored: PlacedRun, key: str, opaque: int, region: str) -> bytes:
    """The answer of `sending.Send` in one piece. `key`: the first message's."""
    ids = stored.message_ids
    numbers = (SENT[stored.status], IS_ANSWER, opaque, VERSION)
    places = (
        ids[0] if len(ids) == 1 else ",".join(ids), stored.queue_id, stored.queue_offset, region,
        encode_text(key),
    )  # fmt: skip
    return framed_head((_ANSWER % (*numbers, *places)).encode("utf-8", "replace"))


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
