"""The offset message id: where a message is, as text.

    STOREHOST bytes (8 or 20), then the physical offset as i64; upper-case hex, 32 or 56 digits

Spec 3.3. What clients show as `msgId` is normally UNIQ_KEY instead.
"""

import struct
from collections.abc import Iterable

from stratamq.errors import InvalidRequestError
from stratamq.formats.hosts import HOST_V4_BYTES, HOST_V6_BYTES
from stratamq.formats.numbers import Offset

_OFFSET = struct.Struct(
    ">q"  # physical offset
)
ID_V4_DIGITS = 2 * (HOST_V4_BYTES + _OFFSET.size)
ID_V6_DIGITS = 2 * (HOST_V6_BYTES + _OFFSET.size)
assert (ID_V4_DIGITS, ID_V6_DIGITS) == (32, 56)


def encode_message_id(store_host: bytes, physical_offset: Offset | int) -> str:
    return (store_host + _OFFSET.pack(physical_offset)).hex().upper()


def encode_message_ids(store_host: bytes, physical_offsets: Iterable[int]) -> list[str]:
    """The ids of messages of one host. Offsets are not negative."""
    host = store_host.hex().upper()
    return [f"{host}{offset:016X}" for offset in physical_offsets]


def decode_message_id(message_id: str) -> tuple[bytes, Offset]:
    """Store host bytes and physical offset; InvalidRequestError for anything else."""
    if len(message_id) not in (ID_V4_DIGITS, ID_V6_DIGITS):
        raise InvalidRequestError(
            f"a message id has {ID_V4_DIGITS} or {ID_V6_DIGITS} digits, not {len(message_id)}"
        )
    try:
        raw = bytes.fromhex(message_id) if message_id.isalnum() else b""
    except ValueError:
        raw = b""
    if len(raw) * 2 != len(message_id):
        raise InvalidRequestError(f"message id {message_id!r} is not hexadecimal")
    host = raw[: -_OFFSET.size]
    return host, Offset(_OFFSET.unpack_from(raw, len(host))[0])
