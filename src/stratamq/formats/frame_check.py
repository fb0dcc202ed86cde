"""Whether there is a frame at a place: RocketMQ's `check message`, without building a value. Spec
2.7.

Recovery walks the log with this, so it is written for speed. What RocketMQ answers as *size −1,
failure* is split here into the reasons; its *size = TOTALSIZE, failure* is BAD_LENGTH.
PHYSICALOFFSET is not compared with the place, and bytes after a blank are not looked at.
"""

import struct
from enum import Enum
from typing import Final, NamedTuple

from stratamq.formats.crc import CRC_MASK, crc32
from stratamq.formats.delay import parse_java_int
from stratamq.formats.frame_layout import (
    BLANK,
    FIXED_BYTES_WITHOUT_HOSTS,
    I16,
    I32,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_FRAME_BYTES,
    Buffer,
)
from stratamq.formats.numbers import Position
from stratamq.formats.properties import find_property
from stratamq.formats.sysflag import BORN_HOST_V6, STORE_HOST_V6, host_bytes
from stratamq.formats.text import decode_text
from stratamq.formats.topics import MAX_TOPIC_BYTES, SCHEDULE_TOPIC


class FrameOutcome(Enum):
    """The value is the sentence for people."""

    GOOD = "a whole frame"
    BLANK = "the rest of the file is declared empty"
    ZERO = "nothing was written here"
    INCOMPLETE = "the bytes end before the frame does"
    BAD_MAGIC = "the magic number is neither a frame's nor a blank's"
    BAD_LENGTH = "TOTALSIZE is not the sum of the parts"
    BODY_CRC = "the body does not have the checksum of the frame"
    STRUCTURE = "a length inside the frame is impossible, or DELAY is not a number"


class CheckResult(NamedTuple):
    """`size` is TOTALSIZE for GOOD and BAD_LENGTH (there it can be anything), the declared length
    for BLANK, otherwise 0."""

    outcome: FrameOutcome
    size: int


_GOOD: Final = FrameOutcome.GOOD
_ZERO: Final = CheckResult(FrameOutcome.ZERO, 0)
_INCOMPLETE: Final = CheckResult(FrameOutcome.INCOMPLETE, 0)
_BAD_MAGIC: Final = CheckResult(FrameOutcome.BAD_MAGIC, 0)
_BODY_CRC: Final = CheckResult(FrameOutcome.BODY_CRC, 0)
_STRUCTURE: Final = CheckResult(FrameOutcome.STRUCTURE, 0)

_FIXED_IPV4 = struct.Struct(
    ">"
    "i"  # TOTALSIZE
    "I"  # MAGICCODE
    "i"  # BODYCRC
    "24x"
    "i"  # SYSFLAG
    "44x"
    "i"  # BODYLENGTH, when both hosts are IPv4
)
_FIXED_IPV4_BYTES = _FIXED_IPV4.size
assert _FIXED_IPV4_BYTES == FIXED_BYTES_WITHOUT_HOSTS + 8 + 8

_ANY_HOST_V6 = BORN_HOST_V6 | STORE_HOST_V6
_SCHEDULE_TOPIC = SCHEDULE_TOPIC.encode()


def check(
    buffer: Buffer,
    position: Position | int = 0,
    *,
    limit: int | None = None,
    verify_body: bool = True,
) -> CheckResult:
    """Reads no byte at or after `limit` (default: the end of the buffer).

    Every proper prefix of a good frame is INCOMPLETE. Bodies of length ≤ 0 are not checked.
    """
    if limit is None:
        limit = len(buffer)
    if limit - position < _FIXED_IPV4_BYTES:
        return _check_short(buffer, position, limit)
    total_size, magic, body_crc, sys_flag, body_length = _FIXED_IPV4.unpack_from(buffer, position)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return _not_a_frame(total_size, magic)
    if total_size > limit - position:
        return _INCOMPLETE
    cursor = position + _FIXED_IPV4_BYTES
    if sys_flag & _ANY_HOST_V6:
        cursor = position + FIXED_BYTES_WITHOUT_HOSTS + sum(host_bytes(sys_flag))
        if cursor > limit:
            return _STRUCTURE
        (body_length,) = I32.unpack_from(buffer, cursor - I32.size)
    if body_length > 0:
        body_at = cursor
        cursor += body_length
        if cursor > limit:
            return _STRUCTURE
        if verify_body and crc32(memoryview(buffer)[body_at:cursor]) & CRC_MASK != body_crc:
            return _BODY_CRC
    if magic == MAGIC_V1:
        if cursor >= limit:
            return _STRUCTURE
        topic_length = buffer[cursor]
        topic_at = cursor + 1
        if topic_length > MAX_TOPIC_BYTES:
            return _STRUCTURE
    else:
        if cursor + 2 > limit:
            return _STRUCTURE
        (topic_length,) = I16.unpack_from(buffer, cursor)
        topic_at = cursor + 2
        if topic_length < 0:
            return _STRUCTURE
    cursor = topic_at + topic_length
    if cursor + 2 > limit:
        return _STRUCTURE
    (properties_length,) = I16.unpack_from(buffer, cursor)
    end = cursor + 2
    if properties_length > 0:
        end += properties_length
        if end > limit:
            return _STRUCTURE
        if (
            topic_length == len(_SCHEDULE_TOPIC)
            and bytes(buffer[topic_at:cursor]) == _SCHEDULE_TOPIC
            and not _delay_is_readable(bytes(buffer[cursor + 2 : end]))
        ):
            return _STRUCTURE
    if end - position != total_size:
        return CheckResult(FrameOutcome.BAD_LENGTH, total_size)
    return CheckResult(_GOOD, total_size)


def _check_short(buffer: Buffer, position: int, limit: int) -> CheckResult:
    """Fewer bytes than the fixed part of a frame: room for a blank, or for a wrong beginning."""
    if limit - position < BLANK.size:
        return _INCOMPLETE
    total_size, magic = BLANK.unpack_from(buffer, position)
    if magic not in (MAGIC_V1, MAGIC_V2):
        return _not_a_frame(total_size, magic)
    if total_size < MIN_FRAME_BYTES:
        return CheckResult(FrameOutcome.BAD_LENGTH, total_size)
    return _INCOMPLETE


def _not_a_frame(total_size: int, magic: int) -> CheckResult:
    if magic == MAGIC_BLANK:
        return CheckResult(FrameOutcome.BLANK, total_size)
    return _ZERO if magic == 0 and total_size == 0 else _BAD_MAGIC


def _delay_is_readable(properties: bytes) -> bool:
    delay = find_property(properties, b"DELAY")
    if delay is None:
        return True
    try:
        parse_java_int(decode_text(delay))
    except ValueError:
        return False
    return True
