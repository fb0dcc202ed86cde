"""Receipts: what a worker of a shared group gives back for consecutive messages of one hand-out.

     0   1  format, 3                                  ┐
     1   4  queue                                      │
     5   8  token of the hand-out                      │ the ticket, which the service made
    13   4  attempt                                    │
    17   8  until, ms                                  │
    25   8  the generation of the messages             │
    33   8  BLAKE2b of the 33 bytes before, and names  ┘
    41   8  the first message's offset in the queue
    49   4  how many messages, one after the other
    53   8  where the first one is in the log
    61   8  where the last one is
    69   4  CRC-32 of the 69 bytes before

The service gives a ticket with the frames of a hand-out; their worker makes receipts of it for as
many messages as it settles at once. Only the service reads a ticket.
"""

from struct import Struct
from typing import NamedTuple
from zlib import crc32

TICKET_BYTES = 41
_MESSAGES = Struct(">QIqq")
_CRC = Struct(">I")
_CRC_AT = TICKET_BYTES + _MESSAGES.size
RECEIPT_BYTES = _CRC_AT + _CRC.size
_COUNT_AT = TICKET_BYTES + 8


class ReceiptParts(NamedTuple):
    ticket: bytes
    offset: int
    count: int
    first: int
    last: int
    """Where the first and the last message are in the log."""


def make_receipt(ticket: bytes, offset: int, count: int, first: int, last: int) -> bytes:
    data = ticket + _MESSAGES.pack(offset, count, first, last)
    return data + _CRC.pack(crc32(data))


def split_receipt(data: bytes) -> ReceiptParts | None:
    """None: it is none, or a damaged one."""
    if len(data) != RECEIPT_BYTES or _CRC.unpack_from(data, _CRC_AT)[0] != crc32(data[:_CRC_AT]):
        return None
    parts = ReceiptParts(data[:TICKET_BYTES], *_MESSAGES.unpack_from(data, TICKET_BYTES))
    return parts if parts.count else None


def messages_of(data: bytes) -> int:
    """How many messages a receipt says it is of; one for what is none."""
    if len(data) != RECEIPT_BYTES:
        return 1
    return max(1, int.from_bytes(data[_COUNT_AT : _COUNT_AT + 4], "big"))
