"""Who is refused again and again for want of an identity waits for each refusal; whom that does not
slow down loses the connection.

    refusals of a host in a second    beyond FREE_REFUSALS    are held for HOLD_S, MOST_HELD at a
                                                              time, REMEMBERED_NS from the last on
    of a connection in a second       MOST_REFUSALS           the connection is closed
    of one whose host lost another    AGAIN_REFUSALS that     the same
    one lately                        were not waited for, or
                                      AGAIN_HELD at a time
    of a connection that was closed   all that gRPC had taken not answered

A refused call costs the service a fifth of a millisecond, and its peer nothing: it calls again, or
opens streams and resets them, thousands a second, and everyone else's calls wait behind those. gRPC
bounds neither, and closes no connection for us: the socket is found among the process's own and
shut down. What it has taken by then comes all the same, hundreds of calls: they are dropped. Calls
that are not refused are never held.
"""

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice
from urllib.parse import unquote

from stratamq.rpc.address import split_address

FREE_REFUSALS = 20
"""Of one host in a second. A client that lacks its token makes a few."""
HOLD_S = 1.0
MOST_HELD = 64
"""Of one host. Beyond, refusals are answered at once."""
MOST_REFUSALS = 100
AGAIN_REFUSALS = 5
AGAIN_HELD = 8
"""Of one connection. A client that lacks its token waits for one answer before it asks again, or a
few."""
REMEMBERED_NS = 30_000_000_000
LEFT_NS = 2_000_000_000
"""So long calls of a connection that was closed are of the one that was."""
MOST_HOSTS = 4_096
"""Those that were refused last."""
AT_ONCE = 128
"""Descriptors: about half a millisecond."""
PIECE_BYTES, MOST_PIECES = 1 << 20, 8
"""More than a socket holds."""
_SECOND_NS = 1_000_000_000


@dataclass(slots=True)
class _Host:
    second: int = -1
    refused: int = 0
    """In that second."""
    slow_ns: int = -REMEMBERED_NS
    """When it last was refused too often."""
    closed_ns: int = -REMEMBERED_NS
    """When a connection of it was closed last."""
    held: int = 0


class Strangers:
    """Of one listener. Belongs to the event loop."""

    def __init__(
        self,
        close: Callable[[str], None],
        now_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`close` gets gRPC's name of the peer, and does not wait."""
        self._close = close
        self._now_ns = now_ns
        self._sleep = sleep
        self._second = -1
        self._refused: Counter[str] = Counter()
        self._not_waited: Counter[str] = Counter()
        """Of connections, in this second."""
        self._held: Counter[str] = Counter()
        """Of connections, now."""
        self._closed: dict[str, int] = {}
        """When, of connections."""
        self._hosts: OrderedDict[str, _Host] = OrderedDict()

    def refused(self, peer: str) -> bool:
        """A call of `peer` was, because nobody knows who it is. True: its connection is closed."""
        now_ns = self._now_ns()
        host = self._count(peer, now_ns)
        if self.is_closed(peer):
            return False
        self._refused[peer] += 1
        if self._is_held(host, now_ns):
            again = _lately(host.closed_ns, now_ns) and self._held[peer] >= AGAIN_HELD
        else:
            again = self._again(peer, host, now_ns)
        if not again and self._refused[peer] != MOST_REFUSALS:
            return False
        self._end(peer, host, now_ns)
        return True

    def is_closed(self, peer: str) -> bool:
        """It was, a moment ago: nobody is there to be answered. A port may be another connection's
        later."""
        closed_ns = self._closed.get(peer)
        return closed_ns is not None and self._now_ns() - closed_ns < LEFT_NS

    async def hold(self, peer: str) -> None:
        """Behind `refused`, before the refusal is answered."""
        host, now_ns = self._hosts.get(_host_of(peer)), self._now_ns()
        if host is None or not self._is_held(host, now_ns):
            return
        host.held += 1
        self._held[peer] += 1
        try:
            await self._sleep(HOLD_S)
        except asyncio.CancelledError:
            if not self.is_closed(peer) and self._again(peer, host, now_ns):
                self._end(peer, host, now_ns)
            raise
        finally:
            host.held -= 1
            self._held[peer] -= 1
            if not self._held[peer]:
                del self._held[peer]

    def _count(self, peer: str, now_ns: int) -> _Host:
        second = now_ns // _SECOND_NS
        if second != self._second:
            self._closed = {
                name: closed_ns
                for name, closed_ns in self._closed.items()
                if now_ns - closed_ns < LEFT_NS
            }
            self._second = second
            self._refused.clear()
            self._not_waited.clear()
        name = _host_of(peer)
        host = self._hosts.setdefault(name, _Host())
        self._hosts.move_to_end(name)
        if len(self._hosts) > MOST_HOSTS:
            self._hosts.popitem(last=False)
        if host.second != second:
            host.second, host.refused = second, 0
        host.refused += 1
        if host.refused > FREE_REFUSALS or _lately(host.slow_ns, now_ns):
            host.slow_ns = now_ns
        return host

    def _is_held(self, host: _Host, now_ns: int) -> bool:
        return _lately(host.slow_ns, now_ns) and host.held < MOST_HELD

    def _again(self, peer: str, host: _Host, now_ns: int) -> bool:
        """The refusal is answered at once, or its caller has gone before: once too often?"""
        self._not_waited[peer] += 1
        return _lately(host.closed_ns, now_ns) and self._not_waited[peer] == AGAIN_REFUSALS

    def _end(self, peer: str, host: _Host, now_ns: int) -> None:
        host.closed_ns = now_ns
        self._closed[peer] = now_ns
        self._close(peer)


def _host_of(peer: str) -> str:
    return peer.rpartition(":")[0]


def _lately(moment_ns: int, now_ns: int) -> bool:
    return now_ns - moment_ns < REMEMBERED_NS


class Closing:
    """Closes connections that were accepted at `port`: at once one that is among the process's
    first AT_ONCE descriptors, where new ones mostly are, others in a thread that looks through all
    of them, of which there may be thousands, once for all that are to be closed."""

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
        ends = (*split_address(address), self._port)
        if _shut_down({ends}, AT_ONCE):
            return
        with self._lock:
            self._wanted.add(ends)
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


def _shut_down(wanted: set[Ends], most: int | None = None) -> bool:
    """Whether one was found among so many descriptors, of the lowest numbers; None: all."""
    found_one = False
    with os.scandir("/proc/self/fd") as entries:
        for entry in islice(entries, most):
            with contextlib.suppress(OSError):  # closed meanwhile, or no socket
                if not os.readlink(entry.path).startswith("socket:"):
                    continue
                # A copy: the number may be another file's in a moment.
                with socket.socket(fileno=os.dup(int(entry.name))) as found:
                    if _ends(found) in wanted:
                        found_one = True
                        found.shutdown(socket.SHUT_RDWR)
                        _drop_unread(found)
    return found_one


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
