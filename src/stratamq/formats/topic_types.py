"""What a topic takes: the attribute `message.type` of RocketMQ 5, and the type of a message.

    "attributes": {"message.type": "FIFO"}

In `config/topics.json`. A topic without the attribute takes every message, and so does one with a
type that is not known here (RocketMQ's LITE): its attribute is kept as it was found.
"""

import enum
from collections.abc import Mapping, Sequence

from stratamq.errors import InvalidRequestError
from stratamq.formats.delay import ASKED_TIMES
from stratamq.formats.properties import (
    DELAY,
    ITEM_SEPARATOR,
    MESSAGE_GROUP,
    PRIORITY,
    decode_properties,
)

ATTRIBUTES = "attributes"
MESSAGE_TYPE = "message.type"


class MessageType(enum.StrEnum):
    """The type of a message, or what a topic takes. The values are RocketMQ's, in the order of
    `TopicMessageType` on the wire."""

    UNSPECIFIED = "UNSPECIFIED"
    """The topic has no type, and takes every message."""
    NORMAL = "NORMAL"
    FIFO = "FIFO"
    """A message with a message group (`__SHARDINGKEY`)."""
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"
    MIXED = "MIXED"
    """The topic takes messages of all types."""
    PRIORITY = "PRIORITY"
    """A message with a priority (`_SYS_MSG_PRIORITY_`), which chooses its queue: of a topic of this
    type shared groups get the highest queue first."""

    @property
    def number(self) -> int:
        """On the wire."""
        return _IN_ORDER.index(self)

    @property
    def takes_all(self) -> bool:
        return self is MessageType.UNSPECIFIED or self is MessageType.MIXED


_IN_ORDER = tuple(MessageType)
_TYPED = _IN_ORDER[1:]
_OF_DELAY = (DELAY, *ASKED_TIMES)
_MAX_PRIORITY_DIGITS = 10
_GROUP = f"\x02{MESSAGE_GROUP}\x01".encode()
_UNCERTAIN = (
    *(f"\x02{name}\x01".encode() for name in (*_OF_DELAY, PRIORITY)),
    _GROUP + ITEM_SEPARATOR,
)
"""Where none of these is found, `_GROUP` alone says the type: an item without a value is none."""


def numbered_type(number: int) -> MessageType:
    """InvalidRequestError for what is no type."""
    if not 0 <= number < len(_IN_ORDER):
        raise InvalidRequestError(f"there is no type {number} of topics")
    return _IN_ORDER[number]


def type_of_topic(entry: Mapping[str, object]) -> MessageType:
    """By the topic's entry in `config/topics.json`."""
    attributes = entry.get(ATTRIBUTES)
    name = attributes.get(MESSAGE_TYPE) if isinstance(attributes, dict) else None
    return MessageType(name) if name in _TYPED else MessageType.UNSPECIFIED


def attributes_with(kept: object, wanted: MessageType) -> dict[str, object]:
    """The entry's member for a topic's attributes as they were found and its type; nothing when it
    stays as it is."""
    attributes = dict(kept) if isinstance(kept, dict) else {}
    if wanted is not MessageType.UNSPECIFIED:
        attributes[MESSAGE_TYPE] = wanted.value
    elif attributes.get(MESSAGE_TYPE) not in _TYPED:
        return {}
    else:
        del attributes[MESSAGE_TYPE]
    return {ATTRIBUTES: attributes}


def type_of_message(properties: Mapping[str, str]) -> MessageType:
    """The type of what is no half message: a delay counts before a message group, and this before
    a priority."""
    if any(name in properties for name in _OF_DELAY):
        return MessageType.DELAY
    if MESSAGE_GROUP in properties:
        return MessageType.FIFO
    return MessageType.PRIORITY if PRIORITY in properties else MessageType.NORMAL


def priority_of(properties: Mapping[str, str]) -> int | None:
    """None: the message has none, or not a number from 0 to 2³¹ - 1."""
    text = properties.get(PRIORITY, "")
    if not (text.isascii() and text.isdecimal()) or len(text) > _MAX_PRIORITY_DIGITS:
        return None
    priority = int(text)
    return priority if priority < 1 << 31 else None


def queue_of_priority(priority: int, queues: int) -> int:
    """Priorities beyond the last queue share it, as at RocketMQ's broker."""
    return max(0, min(priority, queues - 1))


def types_of(texts: Sequence[bytes]) -> list[MessageType]:
    """The types of messages that are no half messages, by their properties texts."""
    joined = b"".join((ITEM_SEPARATOR, ITEM_SEPARATOR.join(texts), ITEM_SEPARATOR))
    # Found by memmem in all texts at once: a decoder takes 3 µs for each of them.
    is_certain = not any(name in joined for name in _UNCERTAIN)
    if is_certain and _GROUP not in joined:
        return [MessageType.NORMAL] * len(texts)
    if not is_certain:
        return [type_of_message(decode_properties(text)) for text in texts]
    return [
        MessageType.FIFO if text.startswith(_GROUP[1:]) or _GROUP in text else MessageType.NORMAL
        for text in texts
    ]
