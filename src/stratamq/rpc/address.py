"""`host:port` strings: `127.0.0.1:10911`, `[::1]:10911`, `unix:/run/commitlog.sock`."""

import ipaddress
import re

from stratamq.errors import ConfigurationError

_NAME = re.compile(r"[\w.-]*", re.ASCII)
_WILDCARDS = frozenset({"0.0.0.0", "::", "*", ""})


def split_address(address: str) -> tuple[str, int]:
    """Host, without brackets, and port. Raises ConfigurationError for anything else."""
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    digits = port.isascii() and port.isdigit() and int(port) < 1 << 16
    if not colon or not digits or (":" in host and not bracketed):
        raise ConfigurationError([f"{address!r} is not an address: host:port is expected"])
    return host.removeprefix("[").removesuffix("]"), int(port)


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_host(text: str) -> bool:
    """A host name or an IP address without brackets and without port, or nothing."""
    try:
        return bool(_NAME.fullmatch(text) or ipaddress.ip_address(text))
    except ValueError:
        return False


def is_unix(address: str) -> bool:
    return address.startswith(("unix:", "unix-abstract:"))


def reachable_address(address: str, advertised_host: str = "") -> str:
    """Where others reach a server that listens on `address`: under `advertised_host`, if there is
    one, else where a process on this machine does."""
    if is_unix(address):
        return address
    host, port = split_address(address)
    here = "127.0.0.1" if host in _WILDCARDS else host
    return join_address(advertised_host or here, port)


def is_wildcard(address: str) -> bool:
    """Whether it stands for every address of the host. ConfigurationError."""
    return split_address(address)[0] in _WILDCARDS


def advertised_address(address: str, advertised_host: str = "") -> str:
    """What clients are told of a server that listens on `address`: under `advertised_host`, if
    there is one; `:port` of one that listens on every address, which stands for the host at which
    the client has reached the broker."""
    if is_unix(address):
        return address
    host, port = split_address(address)
    if not advertised_host and host in _WILDCARDS:
        return f":{port}"
    return join_address(advertised_host or host, port)


def seen_from(asked: str, advertised: str) -> str:
    """`advertised`, which a server at `asked` has told, as an address to connect to."""
    if not advertised.startswith(":"):
        return advertised
    host = "127.0.0.1" if is_unix(asked) else split_address(asked)[0]
    return join_address(host, split_address(advertised)[1])


def told_by(asked: str, advertised: str) -> str:
    """What a peer at `asked` has told of where clients reach its log; "" when that is no address,
    or one that only its own machine reaches."""
    try:
        address = "" if is_unix(advertised) else seen_from(asked, advertised)
        split_address(address)
    except ConfigurationError:
        return ""
    return "" if is_local(address) and not is_local(asked) else address


def is_local(address: str) -> bool:
    """Only processes of its machine reach it."""
    return is_unix(address) or is_loopback_host(split_address(address)[0])


def is_loopback_host(host: str) -> bool:
    """By its look; no name is resolved."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
