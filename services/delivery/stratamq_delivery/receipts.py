"""Receipts as clients have them: opaque bytes that any start of the service can judge.

     0   1  format, 2
     1   4  queue
     5   8  offset
    13   8  token of the hand-out
    21   4  attempt
    25   8  until, ms
    33   8  the generation in which the message was appended; 0: before the first one
    41   8  the message's offset in the log
    49   8  BLAKE2b of the 49 bytes before, the incarnation of the topic, group and topic

The sum shows a receipt of another group or topic, and one that was damaged. It is no secret: who
may acknowledge for a group may acknowledge whatever the group holds. Place and generation show a
message that the log has lost, whose offset another one may have by now.
"""

from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from stratamq.errors import InvalidRequestError
from stratamq.follow.fold import FoldPlace
from stratamq.formats.source_item import MessageSource
from stratamq_delivery.entries import Receipt
from stratamq_delivery.reading import ReadMessages
from stratamq_delivery.records import GroupPlace

_FIELDS = Struct(">BiQQIQqq")
_SUM_BYTES = 8
_FORMAT = 2


class Handed(NamedTuple):
    """One message for a worker."""

    frame: bytes
    receipt: bytes
    attempt: int
    until_ms: int


def encode_receipt(place: GroupPlace, receipt: Receipt) -> bytes:
    return _encoded(_names(place.group, place.topic, place.incarnation), place.queue_id, *receipt)


def decode_receipt(
    data: bytes, group: str, topic: str, incarnation: int
) -> tuple[GroupPlace, Receipt]:
    """InvalidRequestError for what is no receipt of this group and topic."""
    fields, own_sum = data[: _FIELDS.size], data[_FIELDS.size :]
    names = _names(group, topic, incarnation)
    if (
        len(data) != _FIELDS.size + _SUM_BYTES
        or fields[0] != _FORMAT
        or own_sum != _sum(fields, names)
    ):
        raise InvalidRequestError(f"no receipt of group {group} for topic {topic}")
    _, queue_id, offset, token, attempt, until_ms, *source = _FIELDS.unpack(fields)
    receipt = Receipt(offset, token, attempt, until_ms, MessageSource(*source))
    return GroupPlace(group, topic, incarnation, queue_id), receipt


class ReceiptRun(NamedTuple):
    """The receipts of consecutive messages that were handed out at once."""

    place: GroupPlace
    start: int
    end: int
    token: int
    lowest: MessageSource
    highest: MessageSource
    """Between these two all messages lie."""


def run_of_receipts(
    receipts: Sequence[bytes], group: str, topic: str, incarnation: int
) -> ReceiptRun | None:
    """None: they are none of this group and topic, or not in order, or one is damaged. Then each is
    judged by itself."""
    names = _names(group, topic, incarnation)
    if {*map(len, receipts)} != {_FIELDS.size + _SUM_BYTES}:
        return None
    first, sources = _FIELDS.unpack_from(receipts[0]), list[int]()
    kind, queue_id, start, *alike, _ = first
    for offset, data in enumerate(receipts, start):
        *head, source = _FIELDS.unpack_from(data)
        fields = data[: _FIELDS.size]
        if head != [kind, queue_id, offset, *alike] or data[_FIELDS.size :] != _sum(fields, names):
            return None
        sources.append(source)
    if kind != _FORMAT:
        return None
    token, *_, generation = alike
    lowest, highest = (MessageSource(generation, one) for one in (min(sources), max(sources)))
    place = GroupPlace(group, topic, incarnation, queue_id)
    return ReceiptRun(place, start, start + len(receipts), token, lowest, highest)


def place_in_log(followed: FoldPlace, offset: int) -> MessageSource:
    """Where a message is, in the history of the log as it is now."""
    own = offset >= followed.begins
    return MessageSource(followed.generation_of(offset) if own else 0, offset)


def handed_of(
    place: GroupPlace, read: ReadMessages, token: int, until_ms: int, followed: FoldPlace
) -> list[Handed]:
    """What was read for a hand-out, as its client gets it."""
    handed, names = [], _names(place.group, place.topic, place.incarnation)
    for queue_offset, physical_offset, raw in read.messages:
        source = place_in_log(followed, physical_offset)
        receipt = _encoded(
            names, place.queue_id, queue_offset, token, read.attempt, until_ms, source
        )
        handed.append(Handed(raw, receipt, read.attempt, until_ms))
    return handed


def _encoded(
    names: bytes,
    queue_id: int,
    offset: int,
    token: int,
    attempt: int,
    until_ms: int,
    source: MessageSource,
) -> bytes:
    fields = _FIELDS.pack(_FORMAT, queue_id, offset, token, attempt, until_ms, *source)
    return fields + _sum(fields, names)


def _names(group: str, topic: str, incarnation: int) -> bytes:
    return f"{incarnation}\0{group}\0{topic}".encode()


def _sum(fields: bytes, names: bytes) -> bytes:
    return blake2b(fields + names, digest_size=_SUM_BYTES).digest()
