"""What was decided about half messages while one flush ran, as the body of one message.

The format is ours, in `rmq_sys_STRATAMQ_DELIVERY`. Big-endian:

    0   4   magic, "STX1"
    4       entries of 17 bytes until the end:
            0   1   kind: 1 checked, 2 committed, 3 rolled back, 4 given up
            1   8   the generation in which the half message was appended
            9   8   its offset in the log

The checksum is the frame's. CorruptRecordError for what is no record: the fold never skips one.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from struct import Struct

from stratamq.errors import CorruptRecordError
from stratamq.formats.source_item import MessageSource

MAGIC = b"STX1"
_ENTRY = Struct(">Bqq")
MAX_ENTRIES = 4_096


class Outcome(IntEnum):
    """What a record says of a half message."""

    CHECKED = 1
    """Its producers are about to be asked, once more."""
    COMMITTED = 2
    ROLLED_BACK = 3
    GIVEN_UP = 4
    """No producer decided, however often they were asked: it goes to TRANS_CHECK_MAX_TIME_TOPIC."""


Entry = tuple[Outcome, MessageSource]


def encode_entries(entries: Iterable[Entry]) -> bytes:
    return MAGIC + b"".join(_ENTRY.pack(outcome, *source) for outcome, source in entries)


def decode_entries(body: bytes) -> Iterator[Entry]:
    """CorruptRecordError for a length or a kind that is none."""
    if not body.startswith(MAGIC) or (len(body) - len(MAGIC)) % _ENTRY.size:
        raise CorruptRecordError(
            f"a record about transactions of {len(body)} bytes is damaged", 0, "length"
        )
    for kind, generation, offset in _ENTRY.iter_unpack(body[len(MAGIC) :]):
        if kind not in Outcome.__members__.values():
            raise CorruptRecordError(f"kind {kind} of a record about transactions", 0, "kind")
        yield Outcome(kind), MessageSource(generation, offset)
