"""Messages whose last fields are large `bytes`, framed by hand instead of by protobuf.

Protobuf copies such fields into and out of its own memory, which costs 1.3 to 2.2 µs per message of
1 KiB. Here the small fields go through protobuf and the large ones are joined behind them, so that
the result is the very encoding that the stubs produce (but for small fields of higher numbers):

    small fields, as protobuf serialises them
    for each large field that is not empty:  tag varint, length varint, the bytes

In reading, the large fields are views of what came in. Peers may send any legal encoding: one with
another order, with repeated or unknown fields behind the large ones, is parsed by protobuf whole.
Servers and clients use these with identity serialisers (`None`).
"""

from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from stratamq.api.v1 import commitlog_pb2, delivery_pb2, dispatcher_pb2, tier_pb2
from stratamq.errors import InvalidRequestError

M = TypeVar("M", bound=Message)
Bytes = bytes | bytearray | memoryview

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES = 10


class HandFramed(Generic[M]):
    """The codec of one message type. `fields` are its large ones, in the order of their numbers;
    small ones with higher numbers go before them all the same, which is as legal."""

    def __init__(self, message_type: type[M], *fields: str) -> None:
        descriptors = [message_type.DESCRIPTOR.fields_by_name[name] for name in fields]
        numbers = [descriptor.number for descriptor in descriptors]
        assert numbers == sorted(numbers)
        assert all(d.type == d.TYPE_BYTES and not d.has_presence for d in descriptors)
        self.message_type = message_type
        self._fields = fields
        self._tags = [encode_varint(number << 3 | _LENGTH_DELIMITED) for number in numbers]
        self._tag_values = [number << 3 | _LENGTH_DELIMITED for number in numbers]

    def encode(self, head: M, *large: Bytes) -> bytes:
        """`head` holds the small fields only; `large` are the others, in order."""
        parts: list[Bytes] = [head.SerializeToString()]
        for tag, value in zip(self._tags, large, strict=True):
            if len(value):
                parts += (tag, encode_varint(len(value)), value)
        return b"".join(parts)

    def encode_pieces(
        self, head: M, pieces: Sequence[Bytes], size: int, before: Sequence[Bytes] = ()
    ) -> bytes:
        """The same for a last field that consists of pieces of `size` bytes together, so that they
        are copied once. `before` are the large fields that stand before it."""
        parts: list[Bytes] = [head.SerializeToString()]
        for tag, value in zip(self._tags, before, strict=False):
            if len(value):
                parts += (tag, encode_varint(len(value)), value)
        assert len(before) == len(self._tags) - 1
        if size:
            parts += (self._tags[-1], encode_varint(size))
            parts += pieces
        return b"".join(parts)

    def decode(self, data: bytes) -> tuple[M, list[memoryview]]:
        """The message without its large fields, and these as views of `data`.

        InvalidRequestError when `data` is no such message.
        """
        split = self._split(data)
        try:
            if split is not None:
                head_end, large = split
                return self.message_type.FromString(data[:head_end]), large
            message = self.message_type.FromString(data)
        except DecodeError as error:
            name = self.message_type.DESCRIPTOR.name
            raise InvalidRequestError(f"these {len(data)} bytes are no {name}") from error
        large = [memoryview(getattr(message, field)) for field in self._fields]
        for field in self._fields:
            message.ClearField(field)
        return message, large

    def _split(self, data: bytes) -> tuple[int, list[memoryview]] | None:
        """Where the small fields end, and the large ones; None unless each comes at most once, in
        order, and nothing follows."""
        tag_values = self._tag_values
        view = memoryview(data)
        end = len(data)
        position = 0
        head_end = -1
        large: list[memoryview] = [view[:0]] * len(tag_values)
        following = 0
        while position < end:
            start = position
            tag, position = decode_varint(data, position)
            if tag in tag_values:
                number = tag_values.index(tag)
                length, position = decode_varint(data, position)
                if number < following or length < 0 or length > end - position:
                    return None
                if head_end < 0:
                    head_end = start
                large[number] = view[position : position + length]
                following = number + 1
                position += length
            elif tag <= 0 or head_end >= 0:
                return None
            else:
                position = _skip(data, position, tag & 7)
                if position < 0 or position > end:
                    return None
        return (end if head_end < 0 else head_end), large


def encode_hand_outs(hand_outs: Iterable[tuple[delivery_pb2.HandOut, Bytes]]) -> bytes:
    """A ReceiveResponse of hand-outs without their frames, and these: the very bytes of the stub,
    in which the frames are copied once."""
    parts: list[Bytes] = []
    for small, frames in hand_outs:
        head = small.SerializeToString()
        if len(frames):
            head += _FRAMES_TAG + encode_varint(len(frames))
        parts += (_HAND_OUT_TAG, encode_varint(len(head) + len(frames)), head, frames)
    return b"".join(parts)


def encode_varint(value: int) -> bytes:
    """`value` is not negative."""
    if value < 0x80:
        return bytes((value,))
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def decode_varint(data: bytes, position: int) -> tuple[int, int]:
    """Value and the position behind it; (-1, -1) when the bytes are none. Never raises."""
    value = shift = 0
    if position < 0:
        return -1, -1
    for byte in data[position : position + _VARINT_BYTES]:
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    return -1, -1


def _skip(data: bytes, position: int, wire_type: int) -> int:
    """The position behind a field's value; negative or beyond the end when there is none."""
    if wire_type == _LENGTH_DELIMITED:
        length, position = decode_varint(data, position)
        return position + length if length >= 0 else -1
    if wire_type == _VARINT:
        return decode_varint(data, position)[1]
    if wire_type == _FIXED64:
        return position + 8
    if wire_type == _FIXED32:
        return position + 4
    return -1  # groups: left to protobuf's own parser


def identity(message: Any) -> Any:
    """A serialiser that leaves bytes as they are."""
    return message


_HAND_OUT_TAG, _FRAMES_TAG = (
    encode_varint(message.DESCRIPTOR.fields_by_name[name].number << 3 | _LENGTH_DELIMITED)
    for message, name in (
        (delivery_pb2.ReceiveResponse, "hand_outs"),
        (delivery_pb2.HandOut, "frames"),
    )
)

APPEND_STREAM_REQUEST = HandFramed(commitlog_pb2.AppendStreamRequest, "packed_lengths", "frames")
APPEND_DATA_REQUEST = HandFramed(commitlog_pb2.AppendDataRequest, "data")
READ_RANGE_RESPONSE = HandFramed(commitlog_pb2.ReadRangeResponse, "data")
PULL_RESPONSE = HandFramed(dispatcher_pb2.PullResponse, "frames")
PULL_STREAM_RESPONSE = HandFramed(dispatcher_pb2.PullStreamResponse, "frames")
FETCH_MESSAGES_RESPONSE = HandFramed(tier_pb2.FetchMessagesResponse, "frames")
