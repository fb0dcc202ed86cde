"""`host:port` strings: `127.0.0.1:10911`, `[::1]:10911`, `unix:/run/commitlog.sock`."""

from stratamq.errors import ConfigurationError

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


def is_unix(address: str) -> bool:
    return address.startswith(("unix:", "unix-abstract:"))


def reachable_address(address: str) -> str:
    """Where a process on this machine reaches a server that listens on `address`."""
    if is_unix(address):
        return address
    host, port = split_address(address)
    return join_address("127.0.0.1" if host in _WILDCARDS else host, port)
