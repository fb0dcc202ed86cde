"""The properties of a message: one text of `name 0x01 value` items joined by 0x02. Spec 3.1, 3.2.

Written as 4.9.1 to 5.1.4 do, without a 0x02 after the last item; read with or without. An item
without a name, without a value or without 0x01 is dropped in reading, a value may contain 0x01, and
of two items with one name the last wins: so does RocketMQ's decoder.
"""

from collections.abc import Mapping

from stratamq.errors import InvalidRequestError
from stratamq.formats.text import decode_text, encode_text

NAME_VALUE_SEPARATOR = b"\x01"
ITEM_SEPARATOR = b"\x02"
MAX_PROPERTIES_BYTES = 32767
"""PROPERTIESLENGTH is a signed 16-bit number."""

KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
DELIVERED_NOW = "DELIVERED_NOW"
"""Ours, of a copy that an operator wanted before its time: when it would have been due, ms."""
REPLAYED_FROM = "REPLAYED_FROM"
"""Ours, of a dead letter's copy in a retry topic: the dead-letter topic."""
UNIQ_KEY = "UNIQ_KEY"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
RETRY_TOPIC = "RETRY_TOPIC"
TRAN_MSG = "TRAN_MSG"
PGROUP = "PGROUP"
MESSAGE_GROUP = "__SHARDINGKEY"
"""Messages that have the same value here keep their order."""
PRIORITY = "_SYS_MSG_PRIORITY_"
"""A number from 0: the higher, the sooner (RocketMQ 5.4)."""
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME = "CHECK_IMMUNITY_TIME_IN_SECONDS"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
INSTANCE_ID = "INSTANCE_ID"
CLUSTER = "CLUSTER"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
"""A request and its reply name the client that waits for the reply."""
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
DUP_INFO = "DUP_INFO"
PROPERTY_CRC = "__CRC32#"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
TRANSACTION_ID = "__transactionId__"
TRACE_CONTEXT = "TRACE_CONTEXT"
BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"

RESERVED = frozenset(
    f"""
    {KEYS} {TAGS} {WAIT} {DELAY} {RETRY_TOPIC} {REAL_TOPIC} {REAL_QID} {TRAN_MSG} {PGROUP}
    {MIN_OFFSET} {MAX_OFFSET} BUYER_ID {ORIGIN_MESSAGE_ID} TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG
    {RECONSUME_TIME} {MSG_REGION} {TRACE_ON} {UNIQ_KEY} {MAX_RECONSUME_TIMES} CONSUME_START_TIME
    TRAN_PREPARED_QUEUE_OFFSET {TRANSACTION_CHECK_TIMES} {CHECK_IMMUNITY_TIME} {INSTANCE_ID}
    CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME {CLUSTER} MSG_TYPE
    INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET EXTEND_UNIQ_INFO {INNER_NUM} {INNER_BASE}
    {DUP_INFO} {TRANSACTION_ID} {MESSAGE_GROUP} {PRIORITY} POP_CK POP_CK_OFFSET 1ST_POP_TIME
    {TIMER_DELAY_SEC} {TIMER_DELAY_MS} {TIMER_DELIVER_MS} {TIMER_OUT_MS} {TIMER_ENQUEUE_MS}
    {TIMER_DEQUEUE_MS} {TIMER_ROLL_TIMES} TIMER_DEL_UNIQKEY {BORN_HOST} {BORN_TIMESTAMP}
    {TRACE_CONTEXT} {PROPERTY_CRC} {DLQ_ORIGIN_TOPIC} {DLQ_ORIGIN_MESSAGE_ID}
    {DELIVERED_NOW} {REPLAYED_FROM}
    """.split()
)
"""Names of properties that are no user's (`spec/store.md` 3.2), and ours."""

_ITEM = ord(ITEM_SEPARATOR)


def encode_properties(properties: Mapping[str, str | None]) -> bytes:
    """In the order of the mapping. None values are skipped; empty ones written, lost on reading.

    InvalidRequestError for what would come back as something else: an empty name, a separator in a
    name, 0x02 in a value.
    """
    items = []
    for name, value in properties.items():
        if value is None:
            continue
        if not name or "\x01" in name or "\x02" in name or "\x02" in value:
            raise InvalidRequestError(f"property {name[:80]!r}: empty name, or a separator inside")
        items.append(f"{name}\x01{value}")
    return encode_text("\x02".join(items))


def decode_properties(raw: bytes) -> dict[str, str]:
    properties: dict[str, str] = {}
    for item in decode_text(raw).split("\x02"):
        name, _, value = item.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


def find_property(raw: bytes, name: bytes) -> bytes | None:
    """What `decode_properties` would give for an ASCII `name`, without reading the others."""
    prefix = name + NAME_VALUE_SEPARATOR
    end = len(raw)
    while (start := raw.rfind(prefix, 0, end)) >= 0:
        if start == 0 or raw[start - 1] == _ITEM:
            value_start = start + len(prefix)
            value_end = raw.find(ITEM_SEPARATOR, value_start)
            value = raw[value_start:] if value_end < 0 else raw[value_start:value_end]
            if value:
                return value
        end = start + len(prefix) - 1
    return None


def split_keys(keys: str) -> list[str]:
    """The single keys in a KEYS text, in order."""
    return [key for key in keys.split(" ") if key]


def has_key(properties: Mapping[str, str], key: str, *, unique_only: bool = False) -> bool:
    """Whether a message has a key: its UNIQ_KEY or, unless `unique_only`, a word of KEYS."""
    if properties.get(UNIQ_KEY) == key:
        return True
    return not unique_only and key in split_keys(properties.get(KEYS, ""))


def waits_for_store(wait: str | None) -> bool:
    """WAIT: absent means yes, otherwise only the word `true` does."""
    return wait is None or wait.lower() == "true"
