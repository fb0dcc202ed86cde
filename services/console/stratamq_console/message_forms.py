"""What people type about messages: places, times, and a message of their own."""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from stratamq.client import AsyncClient, Message, ReceivedMessage
from stratamq.client.message_rows import application_properties
from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.formats.numbers import INT32_MAX, INT64_MAX
from stratamq.formats.properties import (
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
)

MAX_SELECTED = 100
_PLACE = re.compile(r"(\d{1,10})\.(\d{1,19})", re.ASCII)
ENCODINGS = ("text", "base64", "hex")
_OF_DEAD_LETTERS = frozenset(
    (DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID, RETRY_TOPIC, ORIGIN_MESSAGE_ID)
)


def number_of(text: str, what: str, largest: int = INT64_MAX) -> int | None:
    """None for an empty text. InvalidRequestError."""
    text = text.strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > largest:
        raise InvalidRequestError(f"{what} {text[:40]!r} is no number from 0 to {largest}")
    return int(text)


def moment_of(text: str, what: str) -> int:
    """Milliseconds of a time as a browser sends it, which counts as UTC; also milliseconds. 0 for
    an empty text. InvalidRequestError."""
    text = text.strip()
    if not text:
        return 0
    if text.isascii() and text.isdigit() and len(text) < 16:
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidRequestError(
            f"{what} {text[:40]!r} is no time: write 2026-03-12T04:00, in UTC"
        ) from error
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return max(0, round(time.timestamp() * 1000))


def places_of(texts: Iterable[str]) -> list[tuple[int, int]]:
    """Selected messages: queue and offset of each. InvalidRequestError."""
    places: list[tuple[int, int]] = []
    for text in texts:
        found = _PLACE.fullmatch(text)
        if found is None or int(found[1]) > INT32_MAX:
            raise InvalidRequestError("the selection is damaged: load the list again")
        places.append((int(found[1]), int(found[2])))
    if not places:
        raise InvalidRequestError("no message is selected: tick some first")
    if len(places) > MAX_SELECTED:
        raise InvalidRequestError(f"at most {MAX_SELECTED} messages can be selected at a time")
    return list(dict.fromkeys(places))


async def readable_message(
    client: AsyncClient, topic: str, queue_id: int, offset: int
) -> ReceivedMessage:
    """A message that consumers can get. NotFoundError."""
    pulled = await client.pull(topic, queue_id, offset, max_messages=1)
    for message in pulled.messages:
        if message.queue_offset == offset:
            return message
    raise NotFoundError(
        f"queue {queue_id} of {topic} has no message {offset} that can be read: it has "
        f"{pulled.min_offset} up to {pulled.max_offset - 1}"
        if pulled.max_offset > pulled.min_offset
        else f"queue {queue_id} of {topic} has no messages"
    )


def copy_to(topic: str, message: ReceivedMessage) -> Message:
    """What is sent when a message is sent again: its content, without what the broker gave it."""
    return Message(
        topic,
        message.body,
        tag=message.tag,
        keys=tuple(message.keys),
        properties=copied_properties(message),
        flag=message.flag,
    )


def copied_properties(message: ReceivedMessage) -> dict[str, str]:
    """The application's; without those by which a dead letter names where it was."""
    own = application_properties(message)
    return {name: value for name, value in own.items() if name not in _OF_DEAD_LETTERS}


def typed_message(fields: Mapping[str, str]) -> Message:
    """A message as a form gives it. InvalidRequestError."""
    topic = fields.get("topic", "").strip()
    if not topic:
        raise InvalidRequestError("name the topic to send to")
    properties: dict[str, str] = {}
    for line in fields.get("properties", "").splitlines():
        name, equals, value = line.partition("=")
        if line.strip() and not (equals and name.strip()):
            raise InvalidRequestError(f"{line[:80]!r} is no property: write name=value")
        if line.strip():
            properties[name.strip()] = value.strip()
    return Message(
        topic,
        _body(fields.get("body", ""), fields.get("encoding", "text")),
        tag=fields.get("tag", "").strip(),
        keys=tuple(fields.get("keys", "").split()),
        properties=properties,
        queue_id=number_of(fields.get("queue", ""), "queue", INT32_MAX),
    )


def _body(text: str, encoding: str) -> bytes:
    if encoding not in ENCODINGS:
        raise InvalidRequestError(f"a body is written as {', '.join(ENCODINGS)}")
    if encoding == "text":
        # A form sends line ends as \r\n, whatever was typed.
        return text.replace("\r\n", "\n").encode()
    try:
        if encoding == "hex":
            return bytes.fromhex(text)
        return base64.b64decode("".join(text.split()), validate=True)
    except (ValueError, binascii.Error) as error:
        raise InvalidRequestError(f"the body is not valid {encoding}: {error}") from error
