"""Hosts in a frame: address bytes, then the port as four bytes. Spec 2.3.

    IPv4    4 address bytes + i32 port =  8
    IPv6   16 address bytes + i32 port = 20

The bytes do not contain which; SYSFLAG does.
"""

import ipaddress
import struct
from dataclasses import dataclass
from functools import lru_cache

from stratamq.errors import CorruptRecordError, InvalidRequestError

HOST_V4 = struct.Struct(
    ">"
    "4s"  # address
    "i"  # port
)
HOST_V6 = struct.Struct(
    ">"
    "16s"  # address
    "i"  # port
)
HOST_V4_BYTES = HOST_V4.size
HOST_V6_BYTES = HOST_V6.size
assert (HOST_V4_BYTES, HOST_V6_BYTES) == (8, 20)

_MAPPED_V4_PREFIX = b"\0" * 10 + b"\xff\xff"


@dataclass(frozen=True, slots=True)
class Host:
    """`address` as Java prints it: IPv6 in eight groups, without `::` and without leading zeros."""

    address: str
    port: int

    def __str__(self) -> str:
        return f"{self.address}|{self.port}"


def encode_host(host: Host) -> bytes:
    """8 or 20 bytes. InvalidRequestError when the address is no IP address or the port no i32."""
    try:
        address = ipaddress.ip_address(host.address)
        layout = HOST_V4 if address.version == 4 else HOST_V6
        return layout.pack(address.packed, host.port)
    except (ValueError, struct.error) as error:
        raise InvalidRequestError(f"not a host: {host.address!r} port {host.port!r}") from error


@lru_cache(maxsize=1024)
def decode_host(raw: bytes) -> Host:
    """The host in exactly 8 or 20 bytes."""
    if len(raw) == HOST_V4_BYTES:
        address, port = HOST_V4.unpack(raw)
        return Host(".".join(map(str, address)), port)
    if len(raw) != HOST_V6_BYTES:
        raise CorruptRecordError(f"a host has 8 or 20 bytes, not {len(raw)}", 0, "length")
    address, port = HOST_V6.unpack(raw)
    if address.startswith(_MAPPED_V4_PREFIX):  # Java turns these into IPv4 addresses
        return Host(".".join(map(str, address[12:])), port)
    return Host(":".join(f"{group:x}" for group in struct.unpack(">8H", address)), port)
