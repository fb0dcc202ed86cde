"""Received messages: frames as they lie on disk, decoded on access.

A pull returns frames one behind the other. Splitting them reads one length each; topic, body and
properties are read from the frame when they are used.
"""

import struct
from collections.abc import Callable, Iterator
from itertools import starmap
from typing import Any, Generic, TypeVar, overload

from stratamq.errors import CorruptionError
from stratamq.formats import frame, kernel
from stratamq.formats.compression import decompress_body
from stratamq.formats.frame_layout import (
    AFTER_STORE_HOST,
    HEAD,
    I8,
    I16,
    I64,
    MAGIC_V1,
    MAGIC_V2,
    MIN_FRAME_BYTES,
)
from stratamq.formats.hosts import Host, decode_host
from stratamq.formats.message_id import encode_message_id
from stratamq.formats.properties import KEYS, TAGS, UNIQ_KEY, decode_properties, split_keys
from stratamq.formats.sysflag import host_bytes
from stratamq.formats.text import decode_text

T = TypeVar("T")

SPLIT_AT_ONCE = 32
"""Frames that are copied out of an answer before the first is given: few, whose memory the next
ones get while it is in the processor's cache."""


class kept(Generic[T]):
    """An attribute that is computed at its first use: `functools.cached_property` without the lock
    that Python 3.11 takes there, which costs more than all the rest."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> "kept[T]": ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> "T | kept[T]":
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


class ReceivedMessage:
    """One stored message. Attributes are decoded at their first use and kept, but for a body that
    is not compressed: each use copies it out of the frame.

    `frame` is the record as it is on disk. CorruptionError when an attribute is asked for that the
    bytes cannot give; the service checked the frame when it stored it.
    """

    deserializer: Callable[[bytes], Any] | None = None
    """The deserializer of the client that received it."""
    broker = ""
    """The name of the broker that has it, where a reader reads brokers of several names."""

    def __init__(self, frame: bytes, head: tuple[int, ...] | None = None) -> None:
        """`head`: the frame's first fields, if the caller has decoded them already."""
        self.frame = frame
        if head is not None:
            self._head = head

    @kept
    def _head(self) -> tuple[int, ...]:
        return HEAD.unpack_from(self.frame)

    @kept
    def _places(self) -> tuple[int, int, int, int]:
        """Where the store time, the store host, the body and the topic's length begin."""
        born_bytes, store_bytes = host_bytes(self._head[7])
        store_time = HEAD.size + born_bytes
        store_host = store_time + I64.size
        body = store_host + store_bytes + AFTER_STORE_HOST.size
        try:
            _, _, body_length = AFTER_STORE_HOST.unpack_from(self.frame, store_host + store_bytes)
        except struct.error as error:
            raise _bad("its lengths do not add up") from error
        return store_time, store_host, body, body + max(body_length, 0)

    @kept
    def _topic_and_properties(self) -> tuple[str, bytes]:
        at = self._places[3]
        length_format = I8 if self._head[1] == MAGIC_V1 else I16
        try:
            (length,) = length_format.unpack_from(self.frame, at)
        except struct.error as error:
            raise _bad("its lengths do not add up") from error
        topic = at + length_format.size
        properties = topic + max(length, 0) + I16.size
        if properties > len(self.frame):
            raise _bad("its lengths do not add up")
        return decode_text(self.frame[topic : topic + max(length, 0)]), self.frame[properties:]

    @property
    def topic(self) -> str:
        return self._topic_and_properties[0]

    @kept
    def properties(self) -> dict[str, str]:
        """Everything stored as properties, KEYS, TAGS and UNIQ_KEY among them."""
        return decode_properties(self._topic_and_properties[1])

    @property
    def tag(self) -> str:
        return self.properties.get(TAGS, "")

    @property
    def keys(self) -> list[str]:
        return split_keys(self.properties.get(KEYS, ""))

    @property
    def unique_key(self) -> str:
        return self.properties.get(UNIQ_KEY, "")

    @property
    def body(self) -> bytes:
        """The body as the producer had it, decompressed if it was compressed."""
        if kernel.NATIVE is not None:
            plain: bytes | None = kernel.NATIVE.plain_body(self.frame)
            if plain is not None:
                return plain
        return self._decompressed

    @kept
    def _decompressed(self) -> bytes:
        return decompress_body(self.stored_body, self.sys_flag)

    @kept
    def value(self) -> Any:
        """What the client's deserializer makes of the body; without one the body. Raises what the
        deserializer raises."""
        return self.body if self.deserializer is None else self.deserializer(self.body)

    @property
    def stored_body(self) -> bytes:
        """The body as it is on disk."""
        _, _, begin, end = self._places
        return self.frame[begin:end]

    @property
    def body_crc(self) -> int:
        return self._head[2]

    @property
    def queue_id(self) -> int:
        return self._head[3]

    @property
    def flag(self) -> int:
        return self._head[4]

    @property
    def queue_offset(self) -> int:
        return self._head[5]

    @property
    def physical_offset(self) -> int:
        return self._head[6]

    @property
    def sys_flag(self) -> int:
        return self._head[7]

    @property
    def born_timestamp_ms(self) -> int:
        return self._head[8]

    @property
    def born_host(self) -> Host:
        return decode_host(self.frame[HEAD.size : self._places[0]])

    @property
    def store_timestamp_ms(self) -> int:
        return I64.unpack_from(self.frame, self._places[0])[0]

    @property
    def store_host(self) -> Host:
        return decode_host(self._store_host_raw)

    @property
    def reconsume_times(self) -> int:
        return self._after_store_host[0]

    @property
    def prepared_transaction_offset(self) -> int:
        return self._after_store_host[1]

    @property
    def message_id(self) -> str:
        """The offset message id: where the message is, as 32 or 56 hex digits."""
        return encode_message_id(self._store_host_raw, self.physical_offset)

    @property
    def size(self) -> int:
        """Bytes of the frame."""
        return len(self.frame)

    def decode(self) -> frame.Frame:
        """Every field at once, body and lengths checked; CorruptRecordError when they are wrong."""
        decoded = frame.decode(self.frame)
        if not isinstance(decoded, frame.Frame):
            raise _bad("it is no message")
        return decoded

    @property
    def _store_host_raw(self) -> bytes:
        _, store_host, body, _ = self._places
        return self.frame[store_host : body - AFTER_STORE_HOST.size]

    @property
    def _after_store_host(self) -> tuple[int, int, int]:
        return AFTER_STORE_HOST.unpack_from(self.frame, self._places[2] - AFTER_STORE_HOST.size)

    def __repr__(self) -> str:
        return (
            f"ReceivedMessage(topic={self.topic!r}, queue_id={self.queue_id}, "
            f"queue_offset={self.queue_offset}, body={len(self.stored_body)} bytes)"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReceivedMessage) and other.frame == self.frame

    def __hash__(self) -> int:
        return hash(self.frame)


def split_frames(frames: bytes | memoryview) -> Iterator[ReceivedMessage]:
    """The messages in frames that lie one behind the other. CorruptionError at the first that is
    none."""
    return starmap(ReceivedMessage, split_heads(frames))


def split_heads(frames: bytes | memoryview) -> Iterator[tuple[bytes, tuple[int, ...]]]:
    """Each of the frames, with its first fields."""
    view = memoryview(frames)
    position, end = 0, len(view)
    while kernel.NATIVE is not None:
        found, position = kernel.NATIVE.split(view, position, SPLIT_AT_ONCE)
        yield from found
        if not found:
            break
    read = HEAD.unpack_from
    while position < end:
        if end - position < MIN_FRAME_BYTES:
            raise _bad(f"only {end - position} bytes are left for it")
        head = read(view, position)
        size, magic = head[0], head[1]
        if magic != MAGIC_V1 and magic != MAGIC_V2:
            raise _bad(f"{magic:08X} is no magic code")
        if size < MIN_FRAME_BYTES or size > end - position:
            raise _bad(f"its length is {size}, {end - position} bytes are left")
        yield bytes(view[position : position + size]), head
        position += size


def single_frame(frame: bytes) -> ReceivedMessage:
    """The message in exactly one frame; CorruptionError when it is none."""
    messages = list(split_frames(frame))
    if len(messages) != 1:
        raise _bad(f"{len(messages)} frames where one was expected")
    return messages[0]


def _bad(what: str) -> CorruptionError:
    return CorruptionError(f"a service sent a damaged frame: {what}")
