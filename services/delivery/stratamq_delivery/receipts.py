"""Receipts as clients have them: opaque bytes that any start of the service can judge.

     0   1  format, 1
     1   4  queue
     5   8  offset
    13   8  token of the hand-out
    21   4  attempt
    25   8  until, ms
    33   8  BLAKE2b of the 33 bytes before, the incarnation of the topic, group and topic

The sum shows a receipt of another group or topic, and one that was damaged. It is no secret: who
may acknowledge for a group may acknowledge whatever the group holds.
"""

from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct

from stratamq.errors import InvalidRequestError
from stratamq_delivery.entries import Receipt
from stratamq_delivery.reading import ReadMessages
from stratamq_delivery.records import GroupPlace

_FIELDS = Struct(">BiQQIQ")
_SUM_BYTES = 8
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Handed:
    """One message for a worker."""

    frame: bytes
    receipt: bytes
    attempt: int
    until_ms: int


def encode_receipt(place: GroupPlace, receipt: Receipt) -> bytes:
    fields = _FIELDS.pack(
        _FORMAT,
        place.queue_id,
        receipt.offset,
        receipt.token,
        receipt.attempt,
        receipt.until_ms,
    )
    return fields + _sum(fields, place.group, place.topic, place.incarnation)


def decode_receipt(
    data: bytes, group: str, topic: str, incarnation: int
) -> tuple[GroupPlace, Receipt]:
    """InvalidRequestError for what is no receipt of this group and topic."""
    fields, own_sum = data[: _FIELDS.size], data[_FIELDS.size :]
    if (
        len(data) != _FIELDS.size + _SUM_BYTES
        or fields[0] != _FORMAT
        or own_sum != _sum(fields, group, topic, incarnation)
    ):
        raise InvalidRequestError(f"no receipt of group {group} for topic {topic}")
    _, queue_id, offset, token, attempt, until_ms = _FIELDS.unpack(fields)
    return GroupPlace(group, topic, incarnation, queue_id), Receipt(
        offset, token, attempt, until_ms
    )


def handed_of(place: GroupPlace, read: ReadMessages, token: int, until_ms: int) -> list[Handed]:
    """What was read for a hand-out, as its client gets it."""
    handed = []
    for frame, raw in zip(read.frames, read.raw, strict=True):
        receipt = Receipt(frame.queue_offset, token, read.attempt, until_ms)
        handed.append(Handed(raw, encode_receipt(place, receipt), read.attempt, until_ms))
    return handed


def _sum(fields: bytes, group: str, topic: str, incarnation: int) -> bytes:
    names = f"{incarnation}\0{group}\0{topic}".encode()
    return blake2b(fields + names, digest_size=_SUM_BYTES).digest()
