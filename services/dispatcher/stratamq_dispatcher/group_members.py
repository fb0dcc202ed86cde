"""Who reads with a group's name now: for people who look for a group's readers, and for commands
that must not move offsets under them. In memory only: after a start clients that go on reading are
members again with their next stream or pull.

A client is a member while a stream of it is open, for `RENEWAL_S` behind a stream that ended at its
deadline (readers open the next one), and for `PULL_EXPIRY_S` behind its last pull. A stream that
ends otherwise (closed, or its connection broken) ends the membership at once.

A group is pulled, by members, or *shared*: the delivery service hands out its messages, and says so
with each commit. The second kind is refused.

At most `most` members: for a new one the member without an open stream that was seen least recently
goes. When all have one, the new one is not listed, and its stream counts as unlisted.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from stratamq.errors import InvalidRequestError
from stratamq.files.port import Clock
from stratamq.formats.text import LONGEST_NAME_BYTES

MAX_MEMBERS = 10_000
MAX_PULLED_QUEUES = 1_000
"""The most queues kept for a member that pulls: those that it read least recently are forgotten."""
MAX_PULLED_BYTES = 64 << 20
"""The limit for all members that pull: one that reads one more forgets its own."""
PULL_EXPIRY_S = 45
"""Longer than a pull may wait."""
RENEWAL_S = 5
PAGE_QUEUES = 10_000
"""A page ends with the member that brings it to so many queues, which is what one stream may
read, or so many bytes of names."""
PAGE_BYTES = 1 << 20
_ENTRY_BYTES = 200

Queues = Mapping[str, set[int]]
"""By topic."""


@dataclass(slots=True, eq=False)
class _Member:
    number: int
    group: str
    client_id: str
    address: str
    since_ms: int
    seen_ms: int
    seen_ns: int
    last_commit_ms: int = 0
    streams: dict[object, Queues] = field(default_factory=dict)
    pulled: dict[tuple[str, int], None] = field(default_factory=dict)
    """The last one is the one that was read last."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    client_id: str
    address: str
    topics: Queues
    since_ms: int
    last_seen_ms: int
    last_commit_ms: int
    streaming: bool


class MemberStream:
    """One open stream of a member; `end` is called once."""

    def __init__(self, members: "GroupMembers", member: _Member | None) -> None:
        self._members = members
        self._member = member

    def end(self, *, at_deadline: bool) -> None:
        self._members._stream_ended(self, self._member, at_deadline)


class GroupMembers:
    """Belongs to the engine's thread."""

    def __init__(self, clock: Clock, most: int = MAX_MEMBERS) -> None:
        self._clock = clock
        self._most = most
        self._groups: dict[str, dict[str, _Member]] = {}
        """By group and client id."""
        self._count = 0
        self._last_number = 0
        # Members without an open stream, those seen least recently first.
        self._pulling: OrderedDict[int, _Member] = OrderedDict()
        self._renewing: OrderedDict[int, _Member] = OrderedDict()
        self._pulled_bytes = 0
        self._shared: set[str] = set()
        self.unlisted_streams = 0

    # --- pulled or shared ---

    def require_pulled(self, group: str) -> None:
        """InvalidRequestError: the group is shared."""
        if group in self._shared:
            raise InvalidRequestError(
                f"group {group} is shared: its messages are received and acknowledged one by one "
                f"(subscribe, consume --shared), and only the delivery service commits its offsets"
            )

    def require_unread(self, group: str) -> None:
        """InvalidRequestError while the group has members."""
        _check_name("group", group)
        self._expire()
        if self._groups.get(group):
            raise InvalidRequestError(
                f"group {group} is read by {len(self._groups[group])} clients that commit offsets: "
                f"stop them before its messages are shared out"
            )

    def is_shared(self, group: str) -> bool:
        return group in self._shared

    def share(self, group: str, shared: bool) -> None:
        (self._shared.add if shared else self._shared.discard)(group)

    # --- what readers do ---

    def stream(self, group: str, client_id: str, address: str, queues: Queues) -> MemberStream:
        """A stream begins. InvalidRequestError for a name that is too long."""
        member = self._seen(group, client_id, address)
        stream = MemberStream(self, member)
        if member is None:
            self.unlisted_streams += 1
        else:
            member.streams[stream] = queues
            self._pulling.pop(member.number, None)
            self._renewing.pop(member.number, None)
        return stream

    def pulled(self, group: str, client_id: str, address: str, topic: str, queue_id: int) -> None:
        """InvalidRequestError for a name of the group or client that is too long; a queue of a
        topic whose name is, is not listed."""
        member = self._seen(group, client_id, address)
        if member is None:
            return
        if len(topic) <= LONGEST_NAME_BYTES:
            self._add_pulled(member, (topic, queue_id))
        if not member.streams:
            self._wait(member, self._pulling)

    def _add_pulled(self, member: _Member, queue: tuple[str, int]) -> None:
        pulled = member.pulled
        if pulled.pop(queue, self) is self:
            self._pulled_bytes += _bytes_of(queue)
        pulled[queue] = None
        while len(pulled) > 1 and (
            len(pulled) > MAX_PULLED_QUEUES or self._pulled_bytes > MAX_PULLED_BYTES
        ):
            oldest = next(iter(pulled))
            del pulled[oldest]
            self._pulled_bytes -= _bytes_of(oldest)

    def committed(self, group: str, client_id: str) -> None:
        """A member's commit; of a client that is none it is the last act of a reader that left."""
        member = self._groups.get(group, {}).get(client_id)
        if member is not None:
            member.last_commit_ms = self._clock.wall_ms()

    def _stream_ended(
        self, stream: MemberStream, member: _Member | None, at_deadline: bool
    ) -> None:
        if member is None:
            self.unlisted_streams -= 1
            return
        del member.streams[stream]
        if member.streams:
            return
        self._look_at(member)
        if at_deadline:
            self._wait(member, self._renewing)
        elif member.pulled:
            self._wait(member, self._pulling)
        else:
            self._remove(member)

    def _seen(self, group: str, client_id: str, address: str) -> _Member | None:
        """The member, which is new perhaps; None when there is no room for it."""
        _check_name("group", group)
        _check_name("client_id", client_id)
        self.require_pulled(group)
        member = self._groups.get(group, {}).get(client_id)
        if member is None:
            self._expire()
            if not self._has_room():
                return None
            self._last_number += 1
            self._count += 1
            now_ms = self._clock.wall_ms()
            member = _Member(self._last_number, group, client_id, address, now_ms, 0, 0)
            self._groups.setdefault(group, {})[client_id] = member
        member.address = address
        self._look_at(member)
        return member

    def _look_at(self, member: _Member) -> None:
        member.seen_ms, member.seen_ns = self._clock.wall_ms(), self._clock.monotonic_ns()

    def _wait(self, member: _Member, idle: "OrderedDict[int, _Member]") -> None:
        self._pulling.pop(member.number, None)
        self._renewing.pop(member.number, None)
        idle[member.number] = member

    # --- who goes ---

    def _has_room(self) -> bool:
        if self._count >= self._most:
            oldest = next(iter((self._pulling or self._renewing).values()), None)
            if oldest is None:
                return False
            self._remove(oldest)
        return True

    def _expire(self) -> None:
        now_ns = self._clock.monotonic_ns()
        for idle, limit_s in ((self._pulling, PULL_EXPIRY_S), (self._renewing, RENEWAL_S)):
            while idle:
                oldest = next(iter(idle.values()))
                if now_ns - oldest.seen_ns < limit_s * 1_000_000_000:
                    break
                self._remove(oldest)

    def _remove(self, member: _Member) -> None:
        self._pulling.pop(member.number, None)
        self._renewing.pop(member.number, None)
        members = self._groups[member.group]
        del members[member.client_id]
        if not members:
            del self._groups[member.group]
        self._count -= 1
        self._pulled_bytes -= sum(map(_bytes_of, member.pulled))

    # --- the list ---

    def page(self, group: str, place: int, wanted: int, most: int) -> tuple[list[GroupMember], int]:
        """At most `most` members from a place, and `wanted` if that is not 0; where the next page
        begins, 0: there is none. InvalidRequestError for a negative number."""
        if wanted < 0:
            raise InvalidRequestError("a page's number of entries is not negative")
        self._expire()
        now_ms = self._clock.wall_ms()
        found: list[GroupMember] = []
        queue_count = name_bytes = 0
        for member in self._groups.get(group, {}).values():
            if member.number < place:
                continue
            if len(found) == min(wanted or most, most) or (
                queue_count >= PAGE_QUEUES or name_bytes >= PAGE_BYTES
            ):
                return found, member.number
            topics = _topics_of(member)
            queue_count += sum(map(len, topics.values()))
            name_bytes += sum(map(len, topics))
            streaming = bool(member.streams)
            found.append(
                GroupMember(
                    member.client_id,
                    member.address,
                    topics,
                    member.since_ms,
                    now_ms if streaming else member.seen_ms,
                    member.last_commit_ms,
                    streaming,
                )
            )
        return found, 0


def _topics_of(member: _Member) -> Queues:
    if len(member.streams) == 1 and not member.pulled:
        return next(iter(member.streams.values()))
    topics: dict[str, set[int]] = {}
    for queues in member.streams.values():
        for topic, queue_ids in queues.items():
            topics.setdefault(topic, set()).update(queue_ids)
    for topic, queue_id in member.pulled:
        topics.setdefault(topic, set()).add(queue_id)
    return topics


def _bytes_of(queue: tuple[str, int]) -> int:
    return len(queue[0]) + _ENTRY_BYTES


def _check_name(what: str, name: str) -> None:
    if len(name.encode()) > LONGEST_NAME_BYTES:
        raise InvalidRequestError(f"{what} has more than {LONGEST_NAME_BYTES} bytes")
