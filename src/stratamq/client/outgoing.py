"""What a producer makes of a message before it is sent: properties text, unique key, checks.

The checks are those whose failure would have the broker refuse a whole batch.
"""

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil, isfinite
from numbers import Real

from stratamq.client.values import Message
from stratamq.errors import InvalidRequestError
from stratamq.files.port import Clock, Random
from stratamq.formats.delay import ASKED_TIMES
from stratamq.formats.producer_item import PRODUCER_ITEM, PRODUCER_ITEM_BYTES
from stratamq.formats.properties import (
    DELAY,
    ITEM_SEPARATOR,
    KEYS,
    MAX_PROPERTIES_BYTES,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    encode_properties,
)
from stratamq.formats.property_crc import PROPERTY_CRC_BYTES

LARGEST_PROPERTIES_BYTES = (
    MAX_PROPERTIES_BYTES - PRODUCER_ITEM_BYTES - PROPERTY_CRC_BYTES - 2 * len(ITEM_SEPARATOR)
)
"""So that the producer's item and the broker's checksum of the whole record fit behind them."""

_OWN_NAMES = frozenset((KEYS, TAGS, UNIQ_KEY, DELAY, *ASKED_TIMES))
_EPOCH, _MILLISECOND = datetime.fromtimestamp(0, UTC), timedelta(milliseconds=1)
_KEYS_ITEM, _TAGS_ITEM, _UNIQ_KEY_ITEM = f"{KEYS}\x01", f"{TAGS}\x01", f"{UNIQ_KEY}\x01"


class UniqueKeys:
    """Keys as RocketMQ's clients make them: 20 hex digits of the producer, 12 that grow.

    The last twelve are the milliseconds since the producer's month began, and a counter; they never
    repeat, whatever the clock does. Not thread-safe.
    """

    def __init__(self, clock: Clock, random: Random) -> None:
        now = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC)
        month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        self._month_ms = int(month.timestamp()) * 1000
        self._prefix = (
            f"{random.getrandbits(32):08X}{os.getpid() & 0xFFFF:04X}{random.getrandbits(32):08X}"
        )
        self._last = 0

    def next(self, now_ms: int) -> str:
        number = self._last + 1
        earliest = (now_ms - self._month_ms) << 16
        if earliest > number:
            number = earliest
        self._last = number
        return self._prefix + "%012X" % (number & 0xFFFF_FFFF_FFFF)


def check_properties(properties: Mapping[str, str]) -> None:
    """InvalidRequestError for properties that are fields of a message, or no texts."""
    refuse_fields(properties)
    refuse_values(properties)


def refuse_fields(properties: Mapping[str, str]) -> None:
    twice = _OWN_NAMES & properties.keys()
    if twice:
        raise InvalidRequestError(f"{', '.join(sorted(twice))}: give the field instead")


def time_properties(message: Message) -> dict[str, str]:
    """What tells the broker when to deliver the message, rounded up to milliseconds.
    InvalidRequestError for several times, and for what is no time."""
    delay, deliver_at = message.delay, message.deliver_at
    if (delay is not None) + (deliver_at is not None) + (message.delay_level > 0) > 1:
        raise InvalidRequestError("a message takes one of delay, deliver_at and delay_level")
    if delay is not None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        if isinstance(seconds, bool) or not isinstance(seconds, Real) or not isfinite(seconds):
            raise InvalidRequestError(f"delay is {delay!r:.100}: timedelta or a number is expected")
        return {TIMER_DELAY_MS: str(ceil(round(seconds * 1_000, 3)))}
    if deliver_at is not None:
        if not isinstance(deliver_at, datetime):
            raise InvalidRequestError(f"deliver_at is {deliver_at!r:.100}: datetime is expected")
        since = deliver_at.astimezone(UTC) - _EPOCH
        return {TIMER_DELIVER_MS: str(-(-since // _MILLISECOND))}
    return {}


def refuse_values(properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise InvalidRequestError(
                f"property {name!r:.100} is {value!r:.100}: names and values are texts"
            )


def checked_text(text: str) -> bytes:
    """In UTF-8. InvalidRequestError for what would be stored as something else."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"{text[error.start]!r} is half of a character, and no text has it in UTF-8"
        ) from error


def encode_message_properties(
    tag: str, keys: Sequence[str], unique_key: str, properties: Mapping[str, str]
) -> bytes:
    """The properties text; InvalidRequestError for what would come back as something else."""
    if not isinstance(tag, str) or not isinstance(unique_key, str):
        raise InvalidRequestError(
            f"tag and unique_key are texts: {tag!r:.100}, {unique_key!r:.100}"
        )
    items = []
    if keys:
        words = [keys] if isinstance(keys, str) else keys
        try:
            joined = " ".join(words)
        except TypeError as error:
            raise InvalidRequestError(f"keys is a text or texts: {keys!r:.200}") from error
        if joined.count(" ") != len(words) - 1 or not all(words):
            raise InvalidRequestError(f"a key is a word without spaces: {list(words)!r:.200}")
        items.append(_KEYS_ITEM + joined)
    if tag:
        items.append(_TAGS_ITEM + tag)
    if unique_key:
        items.append(_UNIQ_KEY_ITEM + unique_key)
    text = "\x02".join(items)
    if text.count("\x02") >= len(items) > 0:
        raise InvalidRequestError("a tag or a key contains the separator 0x02")
    raw = checked_text(text)
    if properties:
        if type(properties) is not dict and not isinstance(properties, Mapping):
            raise InvalidRequestError(f"properties is a mapping: {properties!r:.200}")
        refuse_fields(properties)
        if None in properties.values():  # else left out in silence
            refuse_values(properties)
        if PRODUCER_ITEM in properties:  # a message that was received is sent on
            properties = {key: properties[key] for key in properties if key != PRODUCER_ITEM}
        try:
            more = encode_properties(properties)
        except TypeError as error:
            refuse_values(properties)
            raise InvalidRequestError(f"the properties: {error}") from error
        checked_text("".join((*properties, *properties.values())))
        raw = raw + ITEM_SEPARATOR + more if raw and more else raw or more
    if len(raw) > LARGEST_PROPERTIES_BYTES:
        raise InvalidRequestError(
            f"the properties have {len(raw)} bytes, more than {LARGEST_PROPERTIES_BYTES}"
        )
    return raw
