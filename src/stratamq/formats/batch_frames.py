"""Many messages to the frames that a producer puts on the append stream, quickly.

The broker's fields are blank: QUEUEID, QUEUEOFFSET, PHYSICALOFFSET, STORETIMESTAMP and STOREHOST
are zero, room for the property checksum (spec 2.5) is left when the broker asks for it, and the
sequence of a numbered producer's item is blank. Messages
that share everything but body and properties share one packed middle part; the kernel writes their
frames, or each costs two `struct` calls and a checksum. `frame_layout` has the byte table,
`frame.encode` the same bytes one at a time: a test holds them equal.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType

from stratamq.errors import InvalidRequestError
from stratamq.formats import kernel
from stratamq.formats.crc import CRC_MASK, crc32
from stratamq.formats.frame_layout import (
    FIXED_BYTES_WITHOUT_HOSTS,
    I8,
    I16,
    I64,
    MAGIC_V1,
    MAGIC_V2,
)
from stratamq.formats.hosts import HOST_V4_BYTES, HOST_V6_BYTES
from stratamq.formats.producer_item import blank_item
from stratamq.formats.properties import ITEM_SEPARATOR, MAX_PROPERTIES_BYTES
from stratamq.formats.property_crc import encode_property_crc
from stratamq.formats.sysflag import BORN_HOST_V6, STORE_HOST_V6
from stratamq.formats.topics import MAX_TOPIC_BYTES

_SIZE_MAGIC_CRC = struct.Struct(
    ">"
    "i"  # TOTALSIZE
    "I"  # MAGICCODE
    "I"  # BODYCRC, top bit off
)
_MIDDLE = struct.Struct(
    ">"
    "i"  # QUEUEID
    "i"  # FLAG
    "q"  # QUEUEOFFSET
    "q"  # PHYSICALOFFSET
    "i"  # SYSFLAG
    "q"  # BORNTIMESTAMP
)
_AFTER_STORE_HOST = struct.Struct(
    ">"
    "i"  # RECONSUMETIMES
    "q"  # PREPAREDTRANSACTIONOFFSET
)
_BODY_LENGTH_BYTES = 4
assert (
    _SIZE_MAGIC_CRC.size + _MIDDLE.size + I64.size + _AFTER_STORE_HOST.size + _BODY_LENGTH_BYTES
) == FIXED_BYTES_WITHOUT_HOSTS

_EMPTY_CHECKSUM = encode_property_crc(0)
_SEPARATOR = ITEM_SEPARATOR[0]

Row = tuple[bytes, bytes]
"""Body as it is to be stored, and encoded properties."""


@dataclass(frozen=True, slots=True)
class FrameShape:
    """The frame format that one broker requires of one client, by `AppendOpened`."""

    born_host: bytes
    """8 or 20 bytes, as they go into BORNHOST."""
    store_host_bytes: int = HOST_V4_BYTES
    property_checksum: bool = False
    version2: bool = False
    """Topics of more than 127 bytes may be sent, as version 2 frames."""
    producer: int = 0
    """Every frame ends in the item of this numbered producer; 0: in none."""

    def __post_init__(self) -> None:
        sizes = (HOST_V4_BYTES, HOST_V6_BYTES)
        if len(self.born_host) not in sizes or self.store_host_bytes not in sizes:
            raise InvalidRequestError(
                f"hosts have 8 or 20 bytes, not {len(self.born_host)} and {self.store_host_bytes}"
            )

    @property
    def ending(self) -> bytes:
        """What follows the properties, behind a separator if there are any."""
        if not self.producer:
            return _EMPTY_CHECKSUM if self.property_checksum else b""
        item = blank_item(self.producer)
        return item + ITEM_SEPARATOR + _EMPTY_CHECKSUM if self.property_checksum else item


class BatchEncoder:
    """Collects one batch. Not thread-safe; begin a new one after `finish`."""

    def __init__(self, shape: FrameShape) -> None:
        self._shape = shape
        self._ending = shape.ending
        self._middle: tuple[tuple[int, ...], bytes] = (), b""
        """That of the last run, and the numbers that it was made of."""
        self._parts: list[bytes] = []
        self.lengths: list[int] = []
        """Bytes of each frame so far."""

    def add(
        self,
        topic: str,
        rows: Iterable[Row],
        *,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp_ms: int = 0,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
    ) -> None:
        """Append a frame for each row.

        SYSFLAG's host bits follow from the shape. InvalidRequestError, with its number in the field
        `row`, when something does not fit its place; the batch is then of no further use.
        """
        shape = self._shape
        numbers = flag, sys_flag, born_timestamp_ms, reconsume_times, prepared_offset
        if self._middle[0] != numbers:
            self._middle = numbers, _middle(shape, *numbers)
        middle = self._middle[1]
        topic_raw, magic = _topic_and_magic(topic, shape.version2)
        if kernel.NATIVE is not None:
            rows = rows if type(rows) is list else list(rows)
            if self._add_by_kernel(kernel.NATIVE, rows, magic, middle, topic_raw):
                return
        self._add_singly(rows, magic, middle, topic_raw)

    def _add_by_kernel(
        self, native: ModuleType, rows: list[Row], magic: int, middle: bytes, topic_raw: bytes
    ) -> bool:
        """False: frames are large, and copied once less without it, or something does not fit."""
        sizes = memoryview(bytearray(4 * len(rows))).cast("i")
        frames = native.encode(rows, magic, middle, topic_raw, self._ending, sizes)
        if frames is None:
            return False
        self._parts.append(frames)
        self.lengths += sizes.tolist()
        return True

    def _add_singly(self, rows: Iterable[Row], magic: int, middle: bytes, topic_raw: bytes) -> None:
        head, tail = _head_and_tail(len(middle), len(topic_raw))
        fixed = head.size + tail.size
        rows = _with_ending(rows, self._ending) if self._ending else rows
        pack_head, pack_tail = head.pack, tail.pack
        parts, lengths = self._parts, self.lengths
        first = len(lengths)
        try:
            for body, properties in rows:
                body_length = len(body)
                properties_length = len(properties)
                if properties_length > MAX_PROPERTIES_BYTES:
                    raise struct.error(f"properties of {properties_length} bytes")
                size = fixed + body_length + properties_length
                parts += (
                    pack_head(size, magic, crc32(body) & CRC_MASK, middle, body_length),
                    body,
                    pack_tail(topic_raw, properties_length),
                    properties,
                )
                lengths.append(size)
        except struct.error as error:
            number = len(lengths) - first
            raise InvalidRequestError(
                f"message {number} of the run does not fit a frame: {error}", row=number
            ) from error

    def finish(self) -> tuple[bytes, bytes]:
        """Packed big-endian u32 lengths, and the frames one behind the other."""
        lengths, pieces = self.pieces()
        return lengths, b"".join(pieces)

    def pieces(self) -> tuple[bytes, list[bytes]]:
        """The same with the frames in pieces, for who joins them to something else."""
        return struct.pack(f">{len(self.lengths)}I", *self.lengths), self._parts


@lru_cache(1024)
def _head_and_tail(middle_bytes: int, topic_bytes: int) -> tuple[struct.Struct, struct.Struct]:
    """Everything before the body, and what lies between it and the properties."""
    head = struct.Struct(f"{_SIZE_MAGIC_CRC.format}{middle_bytes}si")
    return head, struct.Struct(f">{topic_bytes}sH")


def _middle(
    shape: FrameShape, flag: int, sys_flag: int, born_timestamp_ms: int, *after: int
) -> bytes:
    """Everything between BODYCRC and BODYLENGTH."""
    sys_flag &= ~(BORN_HOST_V6 | STORE_HOST_V6)
    if len(shape.born_host) == HOST_V6_BYTES:
        sys_flag |= BORN_HOST_V6
    if shape.store_host_bytes == HOST_V6_BYTES:
        sys_flag |= STORE_HOST_V6
    try:
        return b"".join(
            (
                _MIDDLE.pack(0, flag, 0, 0, sys_flag, born_timestamp_ms),
                shape.born_host,
                bytes(I64.size + shape.store_host_bytes),
                _AFTER_STORE_HOST.pack(*after),
            )
        )
    except struct.error as error:
        raise InvalidRequestError(f"a field does not fit its place in a frame: {error}") from error


@lru_cache(1024)
def _topic_and_magic(topic: str, version2: bool) -> tuple[bytes, int]:
    """TOPICLENGTH and TOPIC, and the frame version they need."""
    raw = topic.encode("utf-8", "replace")
    if len(raw) <= MAX_TOPIC_BYTES:
        return I8.pack(len(raw)) + raw, MAGIC_V1
    if version2 and len(raw) <= MAX_PROPERTIES_BYTES:
        return I16.pack(len(raw)) + raw, MAGIC_V2
    raise InvalidRequestError(f"the topic name has {len(raw)} bytes, more than {MAX_TOPIC_BYTES}")


def _with_ending(rows: Iterable[Row], ending: bytes) -> Iterable[Row]:
    for body, properties in rows:
        if properties and properties[-1] != _SEPARATOR:
            properties += ITEM_SEPARATOR
        yield body, properties + ending
