"""The property `PSRC`: the message of which this one is a delivered copy.

    off   size   content
    0     4      `PSRC`
    4     1      0x01
    5     11     the generation in which the source was appended
    16    11     the source's offset in the log

It is the last item of the properties, in front of the record checksum where there is one; no 0x02
follows it otherwise. Digits are those of `producer_item`. To every reader it is an ordinary
property. Ours: RocketMQ has no such name (spec 3.2).

A copy is the proof that its source was delivered. Only services of the broker write it: the log
refuses producers' frames that end in this item. A consumer that sends on what it received, with all
properties, proves nothing with it: the item is then not the last one, or the generation is another
log's.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stratamq.formats.columns import windows
from stratamq.formats.producer_item import decode_digits, encode_digits
from stratamq.formats.properties import ITEM_SEPARATOR, NAME_VALUE_SEPARATOR, PROPERTY_CRC
from stratamq.formats.property_crc import PROPERTY_CRC_BYTES

SOURCE_ITEM = "PSRC"
_PREFIX = SOURCE_ITEM.encode() + NAME_VALUE_SEPARATOR
_DIGITS = 11
SOURCE_ITEM_BYTES = len(_PREFIX) + 2 * _DIGITS
_BEFORE_CHECKSUM = ITEM_SEPARATOR + PROPERTY_CRC.encode() + NAME_VALUE_SEPARATOR
_TAILS = (SOURCE_ITEM_BYTES, SOURCE_ITEM_BYTES + len(ITEM_SEPARATOR) + PROPERTY_CRC_BYTES)
"""How far before a frame's end the item begins, without and with a record checksum behind it."""
_WORD = np.frombuffer(_PREFIX[:4], np.uint32)[0]


class MessageSource(NamedTuple):
    """A message's place in the history of one log."""

    generation: int
    offset: int


def encode_source(source: MessageSource) -> bytes:
    """Encode the item."""
    return (
        _PREFIX + encode_digits(source.generation, _DIGITS) + encode_digits(source.offset, _DIGITS)
    )


def source_of(properties: bytes) -> MessageSource | None:
    """Return the source that the properties of a copy end in; None: it is no copy."""
    for tail in _TAILS:
        at = len(properties) - tail
        if at < 0 or not properties.startswith(_PREFIX, at):
            continue
        end = at + SOURCE_ITEM_BYTES
        if end < len(properties) and not properties.startswith(_BEFORE_CHECKSUM, end):
            continue
        generation = decode_digits(properties[at + len(_PREFIX) : end - _DIGITS])
        offset = decode_digits(properties[end - _DIGITS : end])
        if generation is not None and offset is not None:
            return MessageSource(generation, offset)
    return None


def may_end_in_source(raw: bytes | bytearray, end: int) -> bool:
    """Whether the frame that ends at `end` can be a copy; `source_of` knows."""
    return any(raw.startswith(_PREFIX, end - tail) for tail in _TAILS)


def possible_copies(raw: NDArray[np.uint8], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of the frames with these ends that can be copies; `source_of` knows."""
    words = windows(raw, 4)
    found = np.zeros(len(ends), np.bool_)
    for tail in _TAILS:
        found |= words[ends - tail].view(np.uint32)[:, 0] == _WORD
    return np.flatnonzero(found)
