"""Connections on which call after call is refused for want of an identity are closed.

A refused call costs the service a fifth of a millisecond, and its peer nothing: it opens streams
and resets them, thousands a second, and everyone else's calls wait behind those. gRPC bounds
neither, and closes no connection for us: the socket is found among the process's own and shut down.
"""

import contextlib
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from urllib.parse import unquote

from stratamq.rpc.address import split_address

MOST_REFUSALS = 100
"""Of one connection in a second. A client that lacks its token makes a few."""
AGAIN_REFUSALS = 5
"""Of one from a host whose connection was closed lately."""
REMEMBERED_NS = 30_000_000_000
MOST_HOSTS = 4_096
PIECE_BYTES, MOST_PIECES = 1 << 20, 64
_SECOND_NS = 1_000_000_000


class Strangers:
    """Of one listener. Belongs to the event loop."""

    def __init__(
        self, close: Callable[[str], None], now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """`close` gets gRPC's name of the peer, and does not wait."""
        self._close = close
        self._now_ns = now_ns
        self._second = -1
        self._refused: Counter[str] = Counter()
        self._hosts: dict[str, int] = {}
        """Whose connection was closed, and when."""

    def refused(self, peer: str) -> bool:
        """A call of `peer` was, because nobody knows who it is. True: its connection is closed."""
        now_ns = self._now_ns()
        if now_ns // _SECOND_NS != self._second:
            self._second = now_ns // _SECOND_NS
            self._refused.clear()
        self._refused[peer] += 1
        host = peer.rpartition(":")[0]
        since_ns = now_ns - self._hosts.get(host, -REMEMBERED_NS)
        most = AGAIN_REFUSALS if since_ns < REMEMBERED_NS else MOST_REFUSALS
        if self._refused[peer] != most:
            return False
        if len(self._hosts) >= MOST_HOSTS:
            self._hosts.clear()
        self._hosts[host] = now_ns
        self._close(peer)
        return True


class Closing:
    """Closes connections that were accepted at `port`, in a thread of its own: it looks through the
    process's descriptors, of which there may be thousands, once for all that are to be closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._lock = threading.Lock()
        self._wanted: set[Ends] = set()
        self._is_running = False

    def __call__(self, peer: str) -> None:
        """gRPC's name of the other end; nothing is done about a Unix socket."""
        family, _, address = unquote(peer).partition(":")
        if family not in ("ipv4", "ipv6"):
            return
        with self._lock:
            self._wanted.add((*split_address(address), self._port))
            if self._is_running:
                return
            self._is_running = True
        threading.Thread(target=self._run, name="strangers", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                wanted, self._wanted = self._wanted, set()
                if not wanted:
                    self._is_running = False
                    return
            _shut_down(wanted)


Ends = tuple[str, int, int]
"""The other end's host and port, and this one's port."""


def _shut_down(wanted: set[Ends]) -> None:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile, or no socket
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            # A copy: the number may be another file's in a moment.
            with socket.socket(fileno=os.dup(int(name))) as found:
                if _ends(found) in wanted:
                    found.shutdown(socket.SHUT_RDWR)
                    _drop_unread(found)


def _drop_unread(found: socket.socket) -> None:
    """Thousands of calls may have come already."""
    for _ in range(MOST_PIECES):
        if not found.recv(PIECE_BYTES, socket.MSG_DONTWAIT):
            return


def _ends(found: socket.socket) -> Ends | None:
    if found.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    host, port = found.getpeername()[:2]
    return str(host).removeprefix("::ffff:"), int(port), int(found.getsockname()[1])
