"""Host names that stand for several brokers: a headless Service, a DNS round robin.

What a name resolves to is asked on a thread of its own, because the system's resolver blocks for as
long as its configuration says. A name that resolves to one address stays a name, which gRPC
resolves at each connection; of several addresses each is one to connect to, and certificates are
checked against the name. What a name resolved to last is used while it resolves to nothing.
"""

import ipaddress
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from stratamq.files.clock import SystemClock
from stratamq.files.port import Clock
from stratamq.rpc.address import is_loopback_host, is_unix, join_address, split_address

log = logging.getLogger(__name__)

LONGEST_RESOLUTION_S = 3.0
"""So long a look waits for the resolver; then it goes on with what was known."""
RESOLVE_AGAIN_NS = 5_000_000_000
"""A name is not resolved more often."""
MAX_ADDRESSES = 1_024
"""Addresses of one name; more are ignored, with a warning."""

Resolve = Callable[[str, int], list[str]]
"""The IP addresses of a host name, for a port; OSError when there are none."""


def system_resolve(host: str, port: int) -> list[str]:
    """By the system's resolver. Blocks."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [str(place[0]) for *_, place in found]


def is_name(address: str) -> bool:
    """`HOST:PORT` with a host that is to be resolved, and not this machine's own."""
    if is_unix(address):
        return False
    host, _ = split_address(address)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return not is_loopback_host(host)
    return False


class Names:
    """What the names of one client's addresses resolve to. Thread-safe."""

    def __init__(self, resolve: Resolve = system_resolve, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self._resolve = resolve
        self._lock = threading.Lock()
        self._asked_ns: dict[str, int] = {}
        self._running: dict[str, Future[None]] = {}
        """At most one of each name, also when the resolver does not return."""
        self._known: dict[str, tuple[str, ...]] = {}
        self._hosts: dict[str, str] = {}
        """The host name by IP address."""

    def begin(self, addresses: Iterable[str]) -> list["Future[None]"]:
        """Resolve the names among the addresses again where that is due: what to wait for, at most
        `LONGEST_RESOLUTION_S`."""
        now_ns = self.clock.monotonic_ns()
        pending: list[Future[None]] = []
        with self._lock:
            for address in filter(is_name, addresses):
                asked_ns = self._asked_ns.get(address)
                if address not in self._running and (
                    asked_ns is None or now_ns - asked_ns >= RESOLVE_AGAIN_NS
                ):
                    self._asked_ns[address] = now_ns
                    self._running[address] = run = Future()
                    threading.Thread(
                        target=self._run, args=(address, run), name="stratamq-resolve", daemon=True
                    ).start()
                if address in self._running:
                    pending.append(self._running[address])
        return pending

    def expand(self, addresses: Iterable[str]) -> list[str]:
        """Each address once, names that resolve to several as these."""
        expanded = (one for address in addresses for one in self._known.get(address, (address,)))
        return list(dict.fromkeys(expanded))

    def certified_as(self, address: str) -> str:
        """The host name that a certificate at this address is checked against; "": the address's
        own host."""
        if is_unix(address):
            return ""
        return self._hosts.get(split_address(address)[0], "")

    def _run(self, address: str, run: "Future[None]") -> None:
        host, port = split_address(address)
        try:
            found = _usable(self._resolve(host, port))
        except (OSError, UnicodeError) as error:  # UnicodeError: a label of more than 63 letters
            found = []
            log.debug("%s was not resolved: %s", host, error)
        if len(found) > MAX_ADDRESSES:
            log.warning("%s has %d addresses: %d are used", host, len(found), MAX_ADDRESSES)
            found = found[:MAX_ADDRESSES]
        with self._lock:
            if len(found) > 1:
                self._known[address] = tuple(join_address(one, port) for one in found)
                self._hosts |= dict.fromkeys(found, host)
            elif found:
                self._known.pop(address, None)
            del self._running[address]
        run.set_result(None)


def _usable(found: Iterable[str]) -> list[str]:
    """Sorted, each once, without what can be no broker's address."""
    kept: set[str] = set()
    for text in found:
        try:
            one = ipaddress.ip_address(text)
        except ValueError:
            continue
        if not (one.is_unspecified or one.is_multicast):
            kept.add(text)
    return sorted(kept)
