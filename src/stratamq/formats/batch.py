"""A batch as the client sends it: messages one after the other, without topic and queue.

    off    size   field
    0      4      total size, of this message here
    4      4      magic, 0 (ignored, as RocketMQ does)
    8      4      body CRC, 0 (ignored)
    12     4      FLAG
    16     4      body length
    20     n      body
    20+n   2      properties length
    22+n   p      properties

Spec 3.4. The broker makes a complete frame of each.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stratamq.errors import CorruptRecordError, InvalidRequestError

_HEAD = struct.Struct(
    ">"
    "i"  # total size
    "i"  # magic
    "i"  # body CRC
    "i"  # FLAG
    "i"  # body length
)
_PROPERTIES_LENGTH = struct.Struct(">h")
BATCH_MEMBER_FIXED_BYTES = _HEAD.size + _PROPERTIES_LENGTH.size
assert BATCH_MEMBER_FIXED_BYTES == 22


@dataclass(frozen=True, slots=True)
class BatchMember:
    flag: int
    body: bytes
    properties_raw: bytes


def encode_batch(members: Iterable[BatchMember]) -> bytes:
    """InvalidRequestError when a field does not fit its place."""
    parts: list[bytes] = []
    for number, member in enumerate(members):
        body, properties = member.body, member.properties_raw
        total_size = BATCH_MEMBER_FIXED_BYTES + len(body) + len(properties)
        try:
            parts.append(_HEAD.pack(total_size, 0, 0, member.flag, len(body)))
            parts.append(body)
            parts.append(_PROPERTIES_LENGTH.pack(len(properties)))
        except struct.error as error:
            raise InvalidRequestError(f"message {number} of the batch: {error}") from error
        parts.append(properties)
    return b"".join(parts)


def decode_batch(buffer: bytes | bytearray | memoryview) -> list[BatchMember]:
    """All messages, or CorruptRecordError that names the first bad one: a batch is one thing."""
    return list(_members(memoryview(buffer)))


def _members(view: memoryview) -> Iterator[BatchMember]:
    position = 0
    number = 0
    while position < len(view):
        if len(view) - position < BATCH_MEMBER_FIXED_BYTES:
            raise _bad(number, position, "its fixed part is cut off", "incomplete")
        total_size, _, _, flag, body_length = _HEAD.unpack_from(view, position)
        body_at = position + _HEAD.size
        properties_length_at = body_at + body_length
        if body_length < 0:
            raise _bad(number, position, f"body length {body_length}", "length")
        if properties_length_at + _PROPERTIES_LENGTH.size > len(view):
            raise _bad(number, position, f"a body of {body_length} bytes is cut off", "incomplete")
        (properties_length,) = _PROPERTIES_LENGTH.unpack_from(view, properties_length_at)
        properties_at = properties_length_at + _PROPERTIES_LENGTH.size
        end = properties_at + properties_length
        if properties_length < 0:
            raise _bad(number, position, f"properties length {properties_length}", "length")
        if end > len(view):
            raise _bad(number, position, "its properties are cut off", "incomplete")
        if end - position != total_size:
            what = f"total size {total_size}, but its parts have {end - position} bytes"
            raise _bad(number, position, what, "length")
        yield BatchMember(
            flag, bytes(view[body_at:properties_length_at]), bytes(view[properties_at:end])
        )
        position = end
        number += 1


def _bad(number: int, position: int, what: str, reason: str) -> CorruptRecordError:
    return CorruptRecordError(
        f"message {number} of the batch, at byte {position}: {what}", position, reason
    )
