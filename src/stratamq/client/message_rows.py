"""Messages from a broker as rows: the names of `dump`'s lines.

`produce --format json` takes such a row back: body, tag, keys, properties and flag make a message,
the rest is known and left out (`REPORTED`).
"""

import base64
from collections.abc import Iterable
from typing import Any

from stratamq.client.operations import tag_list
from stratamq.client.received import ReceivedMessage
from stratamq.errors import CorruptRecordError
from stratamq.formats.delay import ASKED_TIMES
from stratamq.formats.producer_item import PRODUCER_ITEM
from stratamq.formats.properties import (
    DELAY,
    DELIVERED_NOW,
    KEYS,
    PROPERTY_CRC,
    REAL_QID,
    REAL_TOPIC,
    REPLAYED_FROM,
    TAGS,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    UNIQ_KEY,
)
from stratamq.formats.shown_bodies import BodyAs, body_fields
from stratamq.formats.source_item import SOURCE_ITEM

Row = dict[str, Any]
OWN_PROPERTIES = frozenset(
    (
        *(KEYS, TAGS, UNIQ_KEY, PRODUCER_ITEM, PROPERTY_CRC),
        *(DELAY, REAL_TOPIC, REAL_QID, SOURCE_ITEM),
        *(
            *ASKED_TIMES,
            TIMER_OUT_MS,
            TIMER_ENQUEUE_MS,
            TIMER_DEQUEUE_MS,
            TIMER_ROLL_TIMES,
            DELIVERED_NOW,
            REPLAYED_FROM,
        ),
    )
)
"""Those that are fields of a message, or that its producer or the broker made."""

REPORTED = frozenset(
    (
        "kind", "broker", "topic", "queueId", "queueOffset", "phyOffset", "size", "msgId",
        "uniqKey",
        "bornTimestamp", "storeTimestamp", "bornHost", "storeHost", "sysFlag", "reconsumeTimes",
    )
)  # fmt: skip
"""What the broker gave a message, or where it was: not part of its content."""


def application_properties(message: ReceivedMessage) -> dict[str, str]:
    """Those that the application gave it."""
    return {name: value for name, value in message.properties.items() if name not in OWN_PROPERTIES}


def message_row(
    message: ReceivedMessage, body_as: BodyAs = BodyAs.AUTO, *, exact: bool = False
) -> Row:
    """`exact`: with `auto` the body is its text, or base64 if it is no UTF-8."""
    frame = message.decode()
    if exact and body_as is BodyAs.AUTO:
        body = _exact_body(message)
    else:
        body = body_fields(frame.body, frame.sys_flag, body_as)
    return {
        "kind": "message",
        **({"broker": message.broker} if message.broker else {}),
        "topic": frame.topic,
        "queueId": frame.queue_id,
        "queueOffset": frame.queue_offset,
        "phyOffset": frame.physical_offset,
        "size": frame.total_size,
        "msgId": frame.message_id,
        "uniqKey": message.unique_key,
        "tag": message.tag,
        "keys": message.keys,
        "properties": application_properties(message),
        "bornTimestamp": frame.born_timestamp_ms,
        "storeTimestamp": frame.store_timestamp_ms,
        "bornHost": str(message.born_host),
        "storeHost": str(message.store_host),
        "flag": frame.flag,
        "sysFlag": frame.sys_flag,
        "reconsumeTimes": frame.reconsume_times,
        **body,
    }


def line_row(message: ReceivedMessage, body_as: BodyAs) -> Row:
    """What a line of `consume` shows."""
    return {
        "topic": message.topic,
        "queueId": f"{message.broker}/{message.queue_id}" if message.broker else message.queue_id,
        "queueOffset": message.queue_offset,
        "storeTimestamp": message.store_timestamp_ms,
        "tag": message.tag,
        "keys": message.keys,
        **body_fields(message.stored_body, message.sys_flag, body_as),
    }


def tag_names(expressions: Iterable[str] | None) -> list[str]:
    """Parse tag options like 'a || b'; empty if one of them selects all tags."""
    lists = [tag_list(text) for text in expressions or ()]
    return [tag for tags in lists for tag in tags] if all(lists) else []


def _exact_body(message: ReceivedMessage) -> Row:
    try:
        body = message.body
    except CorruptRecordError:
        # As it is stored, with the reason.
        return body_fields(message.stored_body, message.sys_flag, BodyAs.HEX)
    try:
        return {"body": body.decode(), "bodyEncoding": "text"}
    except UnicodeDecodeError:
        return {"body": base64.b64encode(body).decode(), "bodyEncoding": "base64"}
