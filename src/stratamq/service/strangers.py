"""Who is refused again and again for want of an identity waits for each refusal; whom that does not
slow down loses the connection.

    refusals of a host in a second    beyond FREE_REFUSALS    are held for HOLD_S, MOST_HELD at a
                                                              time, REMEMBERED_NS from the last on
    of a connection in a second       MOST_REFUSALS           the connection is closed
    of one whose host lost another    AGAIN_REFUSALS that     the same
    one lately                        were not waited for, or
                                      AGAIN_HELD at a time
    of a connection that was closed   all that gRPC had taken not answered
    connections of a host that were   MOST_CLOSED             one of ONE_IN new ones is let in, for
    closed, each within REMEMBERED_NS                         `limits.keep_out_ms` from the last on;
    of the one before                                         one of twice as many each time that
                                                              the next is closed within SOON_NS
                                                              and nobody else is at that host
    connections that call nothing     unheard.py              the same

A refused call costs the service a fifth of a millisecond, and its peer nothing: it calls again, or
opens streams and resets them, thousands a second, and everyone else's calls wait behind those. gRPC
bounds neither, and closes no connection for us: the socket is found among the process's own and
shut down. What it has taken by then comes all the same, hundreds of calls: they are dropped. Calls
that are not refused are never held.

Whose connections are closed opens others, and each costs a handshake and what it sends before it is
found: new ones are dropped in the kernel. Connections that are open stay. Who shares the host with
such a one gets in later: its kernel asks again after 1, 3, 7 s, …
"""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from stratamq.service.client_limits import host_of
from stratamq.service.connection_filter import LARGEST_ONE_IN
from stratamq.service.connection_filter import MOST_HOSTS as MOST_KEPT_OUT
from stratamq.service.unheard import Sent, Unheard

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
MOST_CLOSED = 3
ONE_IN = 8
SOON_NS = 2_000_000_000
TELL_NS = 100_000_000
"""The kernel is told of the hosts once in so long: up to two milliseconds."""
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
    closed: int = 0
    """How many, each soon enough behind the one before."""
    one_in: int = 1
    held: int = 0


class Strangers:
    """Of one listener. Belongs to the event loop."""

    def __init__(
        self,
        close: Callable[[Collection[str]], None],
        now_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        keep_out: Callable[[Mapping[str, int]], None] = lambda hosts: None,
        keep_out_ns: int = 0,
    ) -> None:
        """`close` gets gRPC's names of peers, and does not wait; `keep_out` gRPC's names of the
        hosts of which one in so many new connections is let in, when they change, until
        `keep_out_ns` behind the last that was closed; 0: of none. Of more than MOST_KEPT_OUT those
        that were put out last."""
        self._close = close
        self._now_ns = now_ns
        self._sleep = sleep
        self._keep_out = keep_out
        self._keep_out_ns = keep_out_ns
        self.unheard = Unheard(now_ns)
        self._second = -1
        self._refused: Counter[str] = Counter()
        self._not_waited: Counter[str] = Counter()
        """Of connections, in this second."""
        self._held: Counter[str] = Counter()
        """Of connections, now."""
        self._closed: dict[str, int] = {}
        """When, of connections."""
        self._hosts: OrderedDict[str, _Host] = OrderedDict()
        self._kept_out: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """One in how many, and until when. The one whose connection was closed last is last."""
        self._told_ns = -TELL_NS
        self._is_told = True

    def refused(self, peer: str) -> bool:
        """A call of `peer` was, because nobody knows who it is. True: its connection is closed."""
        now_ns = self._now_ns()
        self.unheard.refused(peer)
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

    def look(self, received: Mapping[str, Sent]) -> list[str]:
        """`unheard` has begun one: what each connection has sent. Those that are closed, or would
        be if they were there still."""
        too_many = self.unheard.look(received)
        for peer in too_many:
            self._count_end(peer, self._of(peer), self._now_ns())
        self._close([peer for peer in too_many if peer in received])
        for name in self.unheard.crowds():
            one_in, _ = self._kept_out.get(name, (ONE_IN, 0))
            self._put_out(name, one_in, self._now_ns())
        return too_many

    def let_in(self) -> None:
        """Hosts again whose time is over. Tells of those that were put out since, too."""
        now_ns = self._now_ns()
        over = [name for name, (_, until_ns) in self._kept_out.items() if now_ns >= until_ns]
        for name in over:
            del self._kept_out[name]
        if over or not self._is_told:
            self._tell_kept_out(now_ns)

    def is_closed(self, peer: str) -> bool:
        """It was, a moment ago: nobody is there to be answered. A port may be another connection's
        later."""
        closed_ns = self._closed.get(peer)
        return closed_ns is not None and self._now_ns() - closed_ns < LEFT_NS

    async def hold(self, peer: str) -> None:
        """Behind `refused`, before the refusal is answered."""
        host, now_ns = self._hosts.get(host_of(peer)), self._now_ns()
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
        host = self._of(peer)
        if host.second != second:
            host.second, host.refused = second, 0
        host.refused += 1
        if host.refused > FREE_REFUSALS or _lately(host.slow_ns, now_ns):
            host.slow_ns = now_ns
        return host

    def _of(self, peer: str) -> _Host:
        name = host_of(peer)
        host = self._hosts.setdefault(name, _Host())
        self._hosts.move_to_end(name)
        if len(self._hosts) > MOST_HOSTS:
            self._hosts.popitem(last=False)
        return host

    def _is_held(self, host: _Host, now_ns: int) -> bool:
        return _lately(host.slow_ns, now_ns) and host.held < MOST_HELD

    def _again(self, peer: str, host: _Host, now_ns: int) -> bool:
        """The refusal is answered at once, or its caller has gone before: once too often?"""
        self._not_waited[peer] += 1
        return _lately(host.closed_ns, now_ns) and self._not_waited[peer] == AGAIN_REFUSALS

    def _end(self, peer: str, host: _Host, now_ns: int) -> None:
        self._count_end(peer, host, now_ns)
        self._close([peer])

    def _count_end(self, peer: str, host: _Host, now_ns: int) -> None:
        before_ns, host.closed_ns = host.closed_ns, now_ns
        host.closed = host.closed + 1 if _lately(before_ns, now_ns) else 1
        self._closed[peer] = now_ns
        if host.closed < MOST_CLOSED:
            return
        soon = host.closed > MOST_CLOSED and now_ns - before_ns < SOON_NS
        name = host_of(peer)
        shared = soon and self.unheard.has_somebody(name)
        host.one_in = min(2 * host.one_in, LARGEST_ONE_IN) if soon and not shared else ONE_IN
        self._put_out(name, host.one_in, now_ns)

    def _put_out(self, name: str, one_in: int, now_ns: int) -> None:
        if self._keep_out_ns:
            self._kept_out[name] = one_in, now_ns + self._keep_out_ns
            self._kept_out.move_to_end(name)
            if len(self._kept_out) > MOST_KEPT_OUT:
                self._kept_out.popitem(last=False)
            self._is_told = False
            if now_ns - self._told_ns >= TELL_NS:
                self._tell_kept_out(now_ns)

    def _tell_kept_out(self, now_ns: int) -> None:
        self._told_ns, self._is_told = now_ns, True
        self._keep_out({name: one_in for name, (one_in, _) in self._kept_out.items()})


def _lately(moment_ns: int, now_ns: int) -> bool:
    return now_ns - moment_ns < REMEMBERED_NS
