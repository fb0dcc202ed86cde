"""Who consumes at which gateway by RocketMQ's classic protocol, and what each gateway has yet to be
told of the others.

    gateway 1 ── joined, changed, left ──► all members ──► untold of gateway 2 ──► gateway 2
                                                     └───► untold of gateway 3 ──► gateway 3

In memory: a gateway says its members again on its next stream. They are gone with the stream on
which they were said. What is untold is one entry for each member, the latest: a gateway that reads
slowly is told less, not later.

A member is bytes here, which its gateway made and others read.
"""

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from stratamq.errors import BusyError, InvalidRequestError
from stratamq.formats.text import check_name
from stratamq.service.classic_calls import MAX_MEMBER_BYTES

MAX_MEMBERS = 100_000
MAX_BYTES = 64 << 20
"""All members of the broker have no more. A gateway with one more works alone."""
BATCH = 32
"""Members that are told at once: a gateway works on them for less than a millisecond."""
GONE_AT_ONCE = 1_000
TOO_MANY_MS = 30_000


class MemberKey(NamedTuple):
    gateway: int
    group: str
    client_id: str


class GatewayStream:
    """One gateway's."""

    def __init__(self) -> None:
        self.said: set[MemberKey] = set()
        self.untold: dict[MemberKey, bytes] = {}
        self.moved = asyncio.Event()
        self.ended = False
        self.is_settled = False
        """All who are there have said so, and this gateway is yet to hear that."""
        self.silent = 0
        """Beats for which nothing was heard on it."""

    def tell(self, changes: dict[MemberKey, bytes]) -> None:
        """Members, empty those that have left."""
        self.untold.update(changes)
        self.moved.set()

    def settle(self) -> None:
        self.is_settled = True
        self.moved.set()

    def next(self) -> dict[MemberKey, bytes]:
        """Members to tell now, in no order."""
        return dict(self.untold.popitem() for _ in range(min(BATCH, len(self.untold))))

    def end(self) -> None:
        self.ended = True
        self.moved.set()


class ClassicMembers:
    """Belongs to the event loop."""

    def __init__(self) -> None:
        self._streams: set[GatewayStream] = set()
        self._groups: dict[str, dict[MemberKey, tuple[GatewayStream, bytes]]] = {}
        self._count = self._bytes = 0

    def open(self) -> GatewayStream:
        stream = GatewayStream()
        for members in self._groups.values():
            stream.untold.update({key: member for key, (_, member) in members.items()})
        self._streams.add(stream)
        return stream

    def say(self, stream: GatewayStream, key: MemberKey, member: bytes) -> None:
        """A member as it is now; empty: it has left. InvalidRequestError, BusyError."""
        known = self._groups.get(key.group, {}).get(key)
        if not member:
            if known is not None and known[0] is stream:
                stream.said.discard(key)
                self._remove(key)
                self._tell_others(stream, {key: b""})
            return
        _check(key, member)
        count, size = self._count, self._bytes + len(member)
        if known is None:
            count += 1
        else:
            size -= len(known[1])
            known[0].said.discard(key)  # perhaps on a stream whose end is not noticed yet
        if count > MAX_MEMBERS or size > MAX_BYTES:
            raise BusyError("the broker's classic clients are too many to be shared", TOO_MANY_MS)
        self._count, self._bytes = count, size
        self._groups.setdefault(key.group, {})[key] = (stream, member)
        stream.said.add(key)
        self._tell_others(stream, {key: member})

    def close(self, stream: GatewayStream) -> bool:
        """What was said on it is gone, a part with each call. Whether there is more."""
        self._streams.discard(stream)
        gone = [stream.said.pop() for _ in range(min(GONE_AT_ONCE, len(stream.said)))]
        for key in gone:
            self._remove(key)
        self._tell_others(stream, dict.fromkeys(gone, b""))
        return bool(stream.said)

    def end(self) -> None:
        """End all streams: the service stops."""
        for stream in self._streams:
            stream.end()

    def of_group(self, group: str) -> Iterator[tuple[str, bytes]]:
        """Client ids and members."""
        for key, (_, member) in self._groups.get(group, {}).items():
            yield key.client_id, member

    def __len__(self) -> int:
        return self._count

    def _remove(self, key: MemberKey) -> None:
        members = self._groups[key.group]
        _, member = members.pop(key)
        if not members:
            del self._groups[key.group]
        self._count -= 1
        self._bytes -= len(member)

    def _tell_others(self, stream: GatewayStream, changes: dict[MemberKey, bytes]) -> None:
        for other in self._streams:
            if other is not stream and changes:
                other.tell(changes)


def _check(key: MemberKey, member: bytes) -> None:
    for name in (key.group, key.client_id):
        check_name(name)
    if len(member) > MAX_MEMBER_BYTES:
        raise InvalidRequestError(f"a member has at most {MAX_MEMBER_BYTES} bytes")
