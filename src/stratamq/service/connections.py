"""The connections of a listener that gRPC has: it names them, and closes and counts none for us.
Their sockets are found among the process's own descriptors."""

import contextlib
import errno
import ipaddress
import logging
import os
import socket
import stat
import struct
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from urllib.parse import quote, unquote

from stratamq.rpc.address import split_address
from stratamq.service.connection_filter import keep_out
from stratamq.service.unheard import Sent

log = logging.getLogger(__name__)

AT_ONCE = 128
"""Descriptors: about half a millisecond."""
_NONE_LEFT = (errno.EMFILE, errno.ENFILE)
"""Descriptors: nothing can be looked at."""
PIECE_BYTES, MOST_PIECES = 1 << 20, 8
"""More than a socket holds."""
_TCP_INFO_BYTES, _RECEIVED = 136, struct.Struct("=52xI72xQ")
"""`tcpi_last_data_recv`, ms, and `tcpi_bytes_received` of `struct tcp_info`, since Linux 4.1."""
Ends = tuple[str, int, int]
"""The other end's host and port, and this one's port."""


class Closing:
    """Closes connections that were accepted at `port`: at once a single one that is among the
    process's first AT_ONCE descriptors, where new ones mostly are, others in a thread that looks
    through all of them, of which there may be thousands, once for all that are to be closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._lock = threading.Lock()
        self._wanted: set[Ends] = set()
        self._is_running = False

    def __call__(self, peers: Collection[str]) -> None:
        """gRPC's names of the other ends; nothing is done about a Unix socket."""
        wanted = {ends for peer in peers if (ends := self._ends(peer)) is not None}
        if not wanted or (len(wanted) == 1 and _shut_down(wanted, AT_ONCE)):
            return
        with self._lock:
            self._wanted |= wanted
            if self._is_running:
                return
            self._is_running = True
        threading.Thread(target=self._run, name="strangers", daemon=True).start()

    def _ends(self, peer: str) -> Ends | None:
        family, _, address = unquote(peer).partition(":")
        return (*split_address(address), self._port) if family in ("ipv4", "ipv6") else None

    def _run(self) -> None:
        while True:
            with self._lock:
                wanted, self._wanted = self._wanted, set()
                if not wanted:
                    self._is_running = False
                    return
            _shut_down(wanted)


class KeepingOut:
    """Hosts whose new connections the kernel drops, all but some."""

    def __init__(self, port: int) -> None:
        """`port`: something listens there by now."""
        self._port = port
        self._descriptors = [found for found in _descriptors() if self._is_listening(found)]
        self._names: dict[str, int] = {}
        self._has_failed = False

    def __call__(self, hosts: Mapping[str, int]) -> bool:
        """Those alone, of now on: gRPC's names of hosts, and of how many connections one is let in.
        False: the kernel takes no filters of this user."""
        names = dict(hosts)
        if names == self._names:
            return True
        named = {_address_of(name): one_in for name, one_in in names.items()}
        addresses = {host: one_in for host, one_in in named.items() if not _is_of_link(host)}
        try:
            for found in _sockets(self._descriptors):
                with found:
                    if self._is_one(found):
                        keep_out(found, addresses)
        except OSError as error:
            if not self._has_failed:
                log.warning("no host is kept out", extra={"reason": str(error)})
            self._has_failed = True
            return False
        self._names = names
        return True

    def _is_listening(self, descriptor: int) -> bool:
        for found in _sockets([descriptor]):
            with found:
                return self._is_one(found)
        return False

    def _is_one(self, found: socket.socket) -> bool:
        """A name that is several addresses has several."""
        return (
            found.family in (socket.AF_INET, socket.AF_INET6)
            and bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
            and found.getsockname()[1] == self._port
        )


class Received:
    """What the connections of `port` have sent, by gRPC's names of their other ends. A pass looks
    through AT_ONCE descriptors at a time. OSError: the process has no descriptor left to look by;
    who was not seen may be there, and the pass is for nothing."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._left: list[int] = []
        self._found: dict[str, Sent] = {}

    def begin(self) -> None:
        self._left, self._found = _descriptors(), {}

    def go_on(self) -> dict[str, Sent] | None:
        """None: not through yet."""
        part, self._left = self._left[:AT_ONCE], self._left[AT_ONCE:]
        for found in _sockets(part):
            with found, contextlib.suppress(OSError):  # nobody is at the other end
                ends = _ends(found)
                if ends is not None and ends[2] == self._port:
                    self._found[_name_of(ends)] = _received(found)
        return None if self._left else self._found


def _shut_down(wanted: set[Ends], most: int | None = None) -> bool:
    """Whether one was found among so many descriptors, of the lowest numbers; None: all."""
    found_one = False
    try:
        for found in _sockets(_descriptors(most)):
            with found, contextlib.suppress(OSError):  # closed meanwhile
                if _ends(found) in wanted:
                    found_one = True
                    found.shutdown(socket.SHUT_RDWR)
                    _drop_unread(found)
    except OSError as error:  # no descriptor is left to look by
        log.warning("connections are not closed", extra={"reason": str(error)})
    return found_one


def _descriptors(most: int | None = None) -> list[int]:
    """The process's, the lowest first, as the kernel lists them."""
    with os.scandir("/proc/self/fd") as listed:
        return [int(each.name) for each in islice(listed, most)]


def _sockets(descriptors: Iterable[int]) -> Iterator[socket.socket]:
    """Copies of those that are: the number may be another file's in a moment."""
    for descriptor in descriptors:
        try:
            found = _copy(descriptor)
        except OSError as error:  # closed meanwhile
            if error.errno in _NONE_LEFT:
                raise
        else:
            if found is not None:
                yield found


def _copy(descriptor: int) -> socket.socket | None:
    """None: it is no socket."""
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return None
    copy = os.dup(descriptor)
    try:
        return socket.socket(fileno=copy)
    except OSError:  # no socket by now
        os.close(copy)
        raise


def _drop_unread(found: socket.socket) -> None:
    """Thousands of calls may have come already."""
    for _ in range(MOST_PIECES):
        if not found.recv(PIECE_BYTES, socket.MSG_DONTWAIT):
            return


def _ends(found: socket.socket) -> Ends | None:
    if found.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    host, port, *rest = found.getpeername()
    name = str(host).removeprefix("::ffff:")
    if rest and rest[1]:  # a link's address: gRPC names the link by its number
        name += f"%{rest[1]}"
    return name, int(port), int(found.getsockname()[1])


def _name_of(ends: Ends) -> str:
    host, port, _ = ends
    return f"ipv6:{quote(f'[{host}]', safe=':')}:{port}" if ":" in host else f"ipv4:{host}:{port}"


def _is_of_link(address: str) -> bool:
    """The first half of such an address is everybody's on the link."""
    return ":" in address and ipaddress.IPv6Address(address).is_link_local


def _address_of(name: str) -> str:
    return unquote(name).partition(":")[2].strip("[]").partition("%")[0]


def _received(found: socket.socket) -> Sent:
    shown = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    silent_ms, count = _RECEIVED.unpack(shown)
    return Sent(count, silent_ms * 1_000_000)
