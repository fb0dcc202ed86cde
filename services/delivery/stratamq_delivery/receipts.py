"""Receipts as this service makes and reads them: any start of it can judge those of another one.

The sum in a ticket (`formats/receipts.py`) is over its fields, the incarnation of the topic, group
and topic. It shows a receipt of another group or topic. It is no secret: who may acknowledge for a
group may acknowledge whatever the group holds. Places and generation show messages that the log has
lost, whose offsets others may have by now.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from stratamq.errors import InvalidRequestError
from stratamq.follow.fold import FoldPlace
from stratamq.formats.receipts import make_receipt, split_receipt
from stratamq.formats.source_item import MessageSource
from stratamq_delivery.entries import Receipt
from stratamq_delivery.reading import CheckedMessage, ReadMessages, frames_of
from stratamq_delivery.records import GroupPlace

_FIELDS = Struct(">BiQIQq")
_SUM_BYTES = 8
_FORMAT = 3


class SingleMessage(NamedTuple):
    """One message for a worker."""

    frame: bytes
    receipt: bytes
    attempt: int
    until_ms: int


class Handed(NamedTuple):
    """Messages for a worker, with one ticket."""

    ticket: bytes
    attempt: int
    until_ms: int
    messages: Sequence[CheckedMessage]

    def each(self) -> Iterator[SingleMessage]:
        for offset, source, raw in self.messages:
            receipt = make_receipt(self.ticket, offset, 1, source, source)
            yield SingleMessage(raw, receipt, self.attempt, self.until_ms)


class ReceiptRun(NamedTuple):
    """Consecutive messages of one hand-out."""

    place: GroupPlace
    start: int
    end: int
    token: int
    attempt: int
    until_ms: int
    lowest: MessageSource
    highest: MessageSource
    """Between these two all messages lie."""

    def each(self) -> Iterator[Receipt]:
        for offset in range(self.start, self.end):
            source = self.highest if offset == self.end - 1 else self.lowest
            yield Receipt(offset, self.token, self.attempt, self.until_ms, source)


def encode_receipt(place: GroupPlace, receipt: Receipt) -> bytes:
    """Return the receipt of a single message."""
    offset, token, attempt, until_ms, (generation, source) = receipt
    ticket = make_ticket(place, token, attempt, until_ms, generation)
    return make_receipt(ticket, offset, 1, source, source)


def decode_receipt(data: bytes, group: str, topic: str, incarnation: int) -> ReceiptRun:
    """InvalidRequestError for what is no receipt of this group and topic."""
    parts = split_receipt(data)
    if parts is not None:
        fields, own_sum = parts.ticket[: _FIELDS.size], parts.ticket[_FIELDS.size :]
        if fields[0] == _FORMAT and own_sum == _sum(fields, group, topic, incarnation):
            _, queue_id, token, attempt, until_ms, generation = _FIELDS.unpack(fields)
            place = GroupPlace(group, topic, incarnation, queue_id)
            _, start, count, first, last = parts
            ends = MessageSource(generation, first), MessageSource(generation, last)
            return ReceiptRun(place, start, start + count, token, attempt, until_ms, *ends)
    raise InvalidRequestError(f"no receipt of group {group} for topic {topic}")


def make_ticket(
    place: GroupPlace, token: int, attempt: int, until_ms: int, generation: int
) -> bytes:
    fields = _FIELDS.pack(_FORMAT, place.queue_id, token, attempt, until_ms, generation)
    return fields + _sum(fields, place.group, place.topic, place.incarnation)


def place_in_log(followed: FoldPlace, offset: int) -> MessageSource:
    """Where a message is, in the history of the log as it is now."""
    own = offset >= followed.begins
    return MessageSource(followed.generation_of(offset) if own else 0, offset)


def handed_of(
    place: GroupPlace, read: ReadMessages, token: int, until_ms: int, followed: FoldPlace
) -> list[Handed]:
    """What was read for a hand-out, as its client gets it: with a ticket for each generation."""
    messages, handed = read.messages, list[Handed]()
    while messages:
        # Generations rise with the offsets of the log.
        generation, _ = place_in_log(followed, messages[0].physical_offset)
        count = len(messages)
        if place_in_log(followed, messages[-1].physical_offset).generation != generation:
            sources = [place_in_log(followed, one.physical_offset) for one in messages]
            count = next(n for n, one in enumerate(sources) if one.generation != generation)
        ticket = make_ticket(place, token, read.attempt, until_ms, generation)
        handed.append(Handed(ticket, read.attempt, until_ms, messages[:count]))
        messages = messages[count:]
    return handed


def bytes_of(handed: Sequence[Handed]) -> int:
    return sum([len(frames_of(one.messages)) for one in handed])


def _sum(fields: bytes, group: str, topic: str, incarnation: int) -> bytes:
    names = f"{incarnation}\0{group}\0{topic}".encode()
    return blake2b(fields + names, digest_size=_SUM_BYTES).digest()
