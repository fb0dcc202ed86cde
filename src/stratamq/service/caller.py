"""Who calls: a value that the edge of a protocol makes once, for a connection or for a call.

    an edge (gRPC, HTTP, …)    the connection's address, whether it is encrypted, what was presented
    `AccessControl`            its user
    permissions, limits, audit, handlers     take the value, and know no protocol

A handler gets it in its `Call` (`service.entrance`), with the deadline and the request's ID.
"""

import ipaddress
from functools import lru_cache
from typing import Any, NamedTuple

from stratamq.rpc.address import is_loopback_host, join_address

LOCAL = "local"
"""The name, and the address, of processes of this machine that call through the Unix socket."""
NO_HOST = "0.0.0.0"


class Caller(NamedTuple):
    """Who calls, and from where."""

    host: str = ""
    """An IP address; "" for a Unix socket."""
    port: int = 0
    encrypted: bool = False
    name: str = ""
    """A user's, or `local`; "" if unauthenticated, or if authentication is disabled."""
    trusted: bool = False
    """Has all permissions and no limits: `local`, or a member of the cluster."""
    problem: str = ""
    """Why what the caller presented was rejected."""
    digest: str = ""
    """The SHA-256 of the token that gave the name, in hexadecimal."""
    delegated: bool = False
    """A front has authenticated the caller, and calls on its behalf."""

    @property
    def address(self) -> str:
        """`host:port`; `local` for a Unix socket."""
        if not self.host:
            return LOCAL
        return join_address(self.host, self.port) if self.port else self.host

    @property
    def is_private(self) -> bool:
        """Whether nothing between the caller and this machine, or the front's, reads along."""
        return self.encrypted or is_loopback(self.host)


Certificate = dict[str, Any]
"""A certificate in the form of `ssl.SSLSocket.getpeercert`."""


def common_name(certificate: Certificate | None) -> str:
    """Return the name in a verified certificate; "" without one."""
    for part in (certificate or {}).get("subject", ()):
        for kind, value in part:
            if kind == "commonName":
                return str(value)
    return ""


@lru_cache(maxsize=4096)
def is_loopback(host: str) -> bool:
    return is_loopback_host(host)


def ip_host(text: str | bytes) -> str:
    """Normalise an IP address: an IPv4 address that IPv6 wraps is that IPv4 address. ValueError."""
    address = ipaddress.ip_address(text)
    return str(getattr(address, "ipv4_mapped", None) or address)
