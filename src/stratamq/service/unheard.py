"""Who connects and sends, and calls nothing that anybody may: it is found by its connections alone.

    calls once as somebody             may send what it likes: other limits are for it
    has not yet                        FREE_BYTES, BYTES_PER_S since it was seen first, and
                                       CALL_BYTES for each call that was refused
    has sent more, for LEAST_OVER_NS   is one too many
    and at LOOKS, or at one look,
    and is gone at the next
    comes and goes                     COMING_BYTES and what it sent are its host's: of FREE_BYTES
                                       more in a second, it is one too many
    is IDLE_NS old, so far as is seen  is one of a crowd, if its host has more than MOST_IDLE, and
                                       no other one of it has become somebody's for ARRIVING_NS

gRPC answers calls that lack a header, frames of no call and streams that are reset by itself, tens
of thousands a second, and its threads are everybody's. The service hears of none of it. A new
connection may have sent its first requests before the service hears of the calls: hence
LEAST_OVER_NS. A process that stood still has heard of nothing meanwhile: hence the looks. Of a
thousand clients that connect again at once many wait for seconds until they are heard: hence
ARRIVING_NS.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from stratamq.service.client_limits import host_of

FREE_BYTES = 1 << 16
BYTES_PER_S = 1 << 12
"""Somebody who asks for the health again and again."""
CALL_BYTES = 1 << 18
"""What gRPC takes of a call before it is read (`listening.UNREAD_BYTES`)."""
COMING_BYTES = 1 << 13
"""A handshake costs as much as the streams of so many bytes."""
LEAST_OVER_NS = 250_000_000
LOOKS = 3
"""At which a connection has sent too much. The event loop has dealt with what was there at one by
the next."""
ENDED_NS = 2_000_000_000
"""One that is there for so long, behind that it was one too many, is another one on its port, or
was not closed."""
IDLE_NS = 1_000_000_000
MOST_IDLE = 128
ARRIVING_NS = 2_000_000_000
MOST_FORGOTTEN = 4_096
"""Connections that may have gone since the last look."""
_SECOND_NS = 1_000_000_000


class Sent(NamedTuple):
    """By a connection that is there."""

    bytes: int
    """Since it was opened."""
    silent_ns: int
    """Since the last of them."""


@dataclass(frozen=True, slots=True)
class _Connection:
    first_ns: int
    """It was there by then."""
    over_ns: int
    """Since when it has sent too much, if it has."""
    looks: int
    """At which it had."""
    sent: int


class Unheard:
    """Of one listener. Belongs to the event loop."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._look = 0
        self._known: dict[str, int] = {}
        """At the last call of each connection: which look was next."""
        self._somebody: set[str] = set()
        """Their hosts, and until the next look those of connections that are gone by then."""
        self._arrived: dict[str, int] = {}
        """When a connection of a host became somebody's last; at least those of ARRIVING_NS."""
        self._refused: dict[str, tuple[int, int]] = {}
        """The same, and how often."""
        self._seen: dict[str, _Connection] = {}
        self._ended: dict[str, int] = {}
        """When, those that were one too many, and are there still."""
        self._at_last_look = 0
        self._second = -1
        self._gone: Counter[str] = Counter()
        """Bytes of hosts' connections that came and went, in this second."""

    def known(self, peer: str) -> None:
        """It has called as somebody."""
        if peer not in self._known:
            host = host_of(peer)
            self._arrived[host] = self._now_ns()
            self._somebody.add(host)
        self._known[peer] = self._look

    def refused(self, peer: str) -> None:
        """A call of it was, because nobody knows who it is."""
        self._refused[peer] = self._look, self._refused.get(peer, (0, 0))[1] + 1

    def has_somebody(self, host: str) -> bool:
        """A connection that has called as somebody, at the last look or since."""
        return host in self._somebody

    @property
    def wants_look(self) -> bool:
        """To forget connections that are gone."""
        remembered = len(self._known) + len(self._refused)
        return remembered > self._at_last_look + MOST_FORGOTTEN

    def begin(self) -> None:
        """The connections are looked through now. Those of later calls may not be among them."""
        self._look += 1

    def look(self, received: Mapping[str, Sent]) -> list[str]:
        """`received`: of each connection that is there. Those that are one too many."""
        now_ns = self._now_ns()
        self._ended = {peer: ended_ns for peer, ended_ns in self._ended.items()
                       if peer in received and now_ns - ended_ns < ENDED_NS}  # fmt: skip
        before = {peer: one for peer, one in self._seen.items() if peer not in self._known}
        self._seen = {
            peer: self._looked_at(peer, sent, before.get(peer), now_ns)
            for peer, sent in received.items()
            if peer not in self._known and peer not in self._ended
        }
        too_many = [
            peer
            for peer, one in before.items()
            if peer not in received and self._has_gone_too_often(peer, one, now_ns)
        ]
        for peer, one in list(self._seen.items()):
            if one.looks >= LOOKS and one.over_ns + LEAST_OVER_NS <= now_ns:
                too_many.append(peer)
                del self._seen[peer]
        self._ended |= dict.fromkeys(too_many, now_ns)
        self._forget(received)
        return too_many

    def crowds(self) -> list[str]:
        """Hosts of many connections that call nothing, at the last look."""
        now_ns = self._now_ns()
        self._arrived = {host: arrived_ns for host, arrived_ns in self._arrived.items()
                         if now_ns - arrived_ns < ARRIVING_NS}  # fmt: skip
        before_ns = now_ns - IDLE_NS
        idle = Counter(host_of(peer) for peer, one in self._seen.items()
                       if one.first_ns <= before_ns)  # fmt: skip
        return [
            host for host, count in idle.items() if count > MOST_IDLE and host not in self._arrived
        ]

    def _looked_at(
        self, peer: str, sent: Sent, before: _Connection | None, now_ns: int
    ) -> _Connection:
        if before is None or sent.bytes < before.sent:  # the port is another connection's
            before = _Connection(now_ns - sent.silent_ns, now_ns, 0, 0)
        if sent.bytes <= self._allowed(peer, now_ns - before.first_ns):
            return _Connection(before.first_ns, now_ns, 0, sent.bytes)
        over_ns = before.over_ns if before.looks else now_ns
        return _Connection(before.first_ns, over_ns, before.looks + 1, sent.bytes)

    def _has_gone_too_often(self, peer: str, one: _Connection, now_ns: int) -> bool:
        if one.looks:
            return True
        if peer in self._refused:
            return False
        second, host = now_ns // _SECOND_NS, host_of(peer)
        if second != self._second:
            self._second = second
            self._gone.clear()
        free = BYTES_PER_S * (now_ns - one.first_ns) // _SECOND_NS
        self._gone[host] += max(0, COMING_BYTES + one.sent - free)
        if self._gone[host] <= FREE_BYTES:
            return False
        del self._gone[host]
        return True

    def _allowed(self, peer: str, age_ns: int) -> int:
        calls = self._refused.get(peer, (0, 0))[1]
        return FREE_BYTES + BYTES_PER_S * age_ns // _SECOND_NS + CALL_BYTES * calls

    def _forget(self, received: Mapping[str, Sent]) -> None:
        self._known = {peer: look for peer, look in self._known.items()
                       if peer in received or look == self._look}  # fmt: skip
        self._somebody = {host_of(peer) for peer in self._known}
        self._refused = {peer: one for peer, one in self._refused.items()
                         if peer in received or one[0] == self._look}  # fmt: skip
        self._at_last_look = len(self._known) + len(self._refused)
