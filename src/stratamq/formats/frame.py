"""Frames and blanks of the commit log: bytes to values and back.

`frame_layout` has the byte table, `frame_check` the validation that builds no value. `decode` has
five outcomes: a `Frame`, a `Blank`, `ZEROED` (nothing written yet), None (not enough bytes) and
CorruptRecordError, whose `reason` is the name of the check's outcome in lower case.
"""

import struct
from dataclasses import dataclass
from typing import Final

from stratamq.errors import CorruptRecordError, InvalidRequestError
from stratamq.formats.crc import crc32_31
from stratamq.formats.frame_check import FrameOutcome, check
from stratamq.formats.frame_layout import (
    AFTER_STORE_HOST,
    BLANK,
    END_FILE_MIN_BLANK_LENGTH,
    FIXED_BYTES_WITHOUT_HOSTS,
    HEAD,
    I8,
    I16,
    I64,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    Buffer,
)
from stratamq.formats.message_id import encode_message_id
from stratamq.formats.numbers import Offset, Position, QueueIndex
from stratamq.formats.properties import decode_properties
from stratamq.formats.sysflag import BORN_HOST_V6, STORE_HOST_V6, host_bytes
from stratamq.formats.text import decode_text, utf16_length
from stratamq.formats.topics import MAX_TOPIC_BYTES


@dataclass(frozen=True, slots=True)
class Frame:
    """One stored message. Hosts, topic and properties are kept as the bytes they were."""

    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: QueueIndex
    physical_offset: Offset
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    store_timestamp_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: Offset
    body: bytes
    topic_raw: bytes
    properties_raw: bytes

    @property
    def topic(self) -> str:
        return decode_text(self.topic_raw)

    @property
    def properties(self) -> dict[str, str]:
        return decode_properties(self.properties_raw)

    @property
    def message_id(self) -> str:
        return encode_message_id(self.store_host, self.physical_offset)


@dataclass(frozen=True, slots=True)
class Blank:
    """The rest of the file is declared empty: `length` bytes, the eight of the blank included."""

    length: int


@dataclass(frozen=True, slots=True)
class Zeroed:
    """Eight zero bytes: nothing was written here yet."""


ZEROED: Final = Zeroed()


def encode(
    *,
    topic: bytes,
    body: bytes,
    born_host: bytes,
    store_host: bytes,
    properties: bytes = b"",
    queue_id: int = 0,
    flag: int = 0,
    queue_offset: int = 0,
    physical_offset: int = 0,
    sys_flag: int = 0,
    born_timestamp_ms: int = 0,
    store_timestamp_ms: int = 0,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    body_crc: int | None = None,
    magic: int = MAGIC_V1,
) -> bytes:
    """One frame. TOTALSIZE, BODYCRC (unless given) and SYSFLAG's host bits follow from the rest.

    InvalidRequestError when a field does not fit its place.
    """
    try:
        topic_length = (I8 if magic == MAGIC_V1 else I16).pack(len(topic))
        properties_length = I16.pack(len(properties))
        sys_flag &= ~(BORN_HOST_V6 | STORE_HOST_V6)
        sys_flag |= _HOST_BIT[len(born_host)] & BORN_HOST_V6
        sys_flag |= _HOST_BIT[len(store_host)] & STORE_HOST_V6
        total_size = (
            FIXED_BYTES_WITHOUT_HOSTS
            + len(born_host)
            + len(store_host)
            + len(body)
            + len(topic_length)
            + len(topic)
            + len(properties_length)
            + len(properties)
        )
        return b"".join(
            (
                HEAD.pack(
                    total_size,
                    magic,
                    (crc32_31(body) if body else 0) if body_crc is None else body_crc,
                    queue_id,
                    flag,
                    queue_offset,
                    physical_offset,
                    sys_flag,
                    born_timestamp_ms,
                ),
                born_host,
                I64.pack(store_timestamp_ms),
                store_host,
                AFTER_STORE_HOST.pack(reconsume_times, prepared_transaction_offset, len(body)),
                body,
                topic_length,
                topic,
                properties_length,
                properties,
            )
        )
    except struct.error as error:
        raise InvalidRequestError(
            f"a field does not fit its place in the frame ({error}); topic {len(topic)} bytes, "
            f"properties {len(properties)} bytes, body {len(body)} bytes"
        ) from error
    except KeyError as error:
        raise InvalidRequestError(f"a host has 8 or 20 bytes, not {error}") from error


_HOST_BIT = {8: 0, 20: BORN_HOST_V6 | STORE_HOST_V6}


def encode_frame(frame: Frame) -> bytes:
    """The bytes `frame` was decoded from. Its body CRC is written as it is, right or wrong."""
    return encode(
        topic=frame.topic_raw,
        body=frame.body,
        born_host=frame.born_host,
        store_host=frame.store_host,
        properties=frame.properties_raw,
        queue_id=frame.queue_id,
        flag=frame.flag,
        queue_offset=frame.queue_offset,
        physical_offset=frame.physical_offset,
        sys_flag=frame.sys_flag,
        born_timestamp_ms=frame.born_timestamp_ms,
        store_timestamp_ms=frame.store_timestamp_ms,
        reconsume_times=frame.reconsume_times,
        prepared_transaction_offset=frame.prepared_transaction_offset,
        body_crc=frame.body_crc,
        magic=frame.magic,
    )


def encode_blank(remaining: int) -> bytes:
    """The eight bytes that declare the last `remaining` bytes of a file empty."""
    if remaining < END_FILE_MIN_BLANK_LENGTH:
        raise InvalidRequestError(f"a blank needs 8 bytes, not {remaining}")
    return BLANK.pack(remaining, MAGIC_BLANK)


def magic_for_topic(topic: str) -> int:
    """The version 5.x chooses: V2 only where the topic's UTF-16 units are too many for V1."""
    return MAGIC_V2 if utf16_length(topic) > MAX_TOPIC_BYTES else MAGIC_V1


def decode(
    buffer: Buffer,
    position: Position | int = 0,
    *,
    limit: int | None = None,
    verify_body: bool = True,
) -> Frame | Blank | Zeroed | None:
    """What is at `position`, reading no byte at or after `limit`.

    None when the bytes end before the frame does. Negative body and properties lengths count as 0,
    as RocketMQ reads them.
    """
    outcome, size = check(buffer, position, limit=limit, verify_body=verify_body)
    if outcome is FrameOutcome.GOOD:
        return _build(buffer, position)
    if outcome is FrameOutcome.BLANK:
        return Blank(size)
    if outcome is FrameOutcome.ZERO:
        return ZEROED
    if outcome is FrameOutcome.INCOMPLETE:
        return None
    raise CorruptRecordError(
        f"no frame at position {position}: {outcome.value}", position, outcome.name.lower()
    )


def _build(buffer: Buffer, position: int) -> Frame:
    """Build the frame from bytes that `check` has accepted."""
    view = memoryview(buffer)
    head = HEAD.unpack_from(view, position)
    born_bytes, store_bytes = host_bytes(head[7])
    born_at = position + HEAD.size
    store_time_at = born_at + born_bytes
    store_at = store_time_at + I64.size
    after_at = store_at + store_bytes
    reconsume_times, prepared_offset, body_length = AFTER_STORE_HOST.unpack_from(view, after_at)
    body_at = after_at + AFTER_STORE_HOST.size
    topic_length_at = body_at + max(body_length, 0)
    topic_length_format = I8 if head[1] == MAGIC_V1 else I16
    topic_at = topic_length_at + topic_length_format.size
    (topic_length,) = topic_length_format.unpack_from(view, topic_length_at)
    properties_length_at = topic_at + topic_length
    return Frame(
        *head,
        bytes(view[born_at:store_time_at]),
        I64.unpack_from(view, store_time_at)[0],
        bytes(view[store_at:after_at]),
        reconsume_times,
        prepared_offset,
        bytes(view[body_at:topic_length_at]),
        bytes(view[topic_at:properties_length_at]),
        bytes(view[properties_length_at + I16.size : position + head[0]]),
    )
