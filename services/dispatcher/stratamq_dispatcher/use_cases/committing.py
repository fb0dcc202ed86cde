"""Commits of groups' offsets, and their deletion: on the master alone, which a slave names."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from stratamq.errors import (
    NotFoundError,
    NotWritableError,
    OffsetOutOfRangeError,
    StrataError,
    UnavailableError,
)
from stratamq.files.port import Clock
from stratamq.follow.followed_topics import FollowedTopics
from stratamq.rpc.paging import NestedPlace
from stratamq.service.entrance import Call
from stratamq_dispatcher.consumer_offsets import ConsumerOffsets, GroupOffset, GroupTopic
from stratamq_dispatcher.engine import DispatchEngine
from stratamq_dispatcher.group_members import GroupMembers
from stratamq_dispatcher.offset_bounds import OffsetBounds
from stratamq_dispatcher.use_cases.pulling import GroupReader


@dataclass(frozen=True, slots=True)
class LastCommit:
    """`timestamp_ms` 0: none since this service started."""

    timestamp_ms: int = 0
    client: str = ""


class LastCommits:
    """Who committed last for a group, and when: for people who look for its readers. In memory
    only, as many entries as the table of offsets has groups with topics. Belongs to the engine's
    thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: dict[GroupTopic, LastCommit] = {}

    def note(self, group: str, topics: set[str], client: str) -> None:
        commit = LastCommit(self._clock.wall_ms(), client)
        self._last.update({(group, topic): commit for topic in topics})

    def forget(self, group: str, topic: str = "") -> None:
        """With "" of all topics."""
        gone = [key for key in self._last if key[0] == group and topic in ("", key[1])]
        for key in gone:
            del self._last[key]

    def of(self, group: str, topic: str) -> LastCommit:
        return self._last.get((group, topic), LastCommit())


class CommittedPlace(NamedTuple):
    topic: str
    queue_id: int
    offset: int
    generation: int = 0
    """In which the offset was read; 0: not known."""


class Committing:
    """Belongs to the event loop."""

    def __init__(
        self,
        engine: DispatchEngine,
        offsets: ConsumerOffsets,
        bounds: OffsetBounds,
        topics: FollowedTopics,
        last_commits: LastCommits,
        members: GroupMembers,
        catch_up: Callable[[], Awaitable[None]],
        why_not_writable: Callable[[], Awaitable[tuple[str, str] | None]],
    ) -> None:
        """`why_not_writable` asks the log for its sentence, "" if it takes messages, and for its
        master's address, "" if it is not known; None: it does not answer."""
        self._engine = engine
        self._offsets = offsets
        self._bounds = bounds
        self._topics = topics
        self._last_commits = last_commits
        self._members = members
        self._catch_up = catch_up
        self._why_not_writable = why_not_writable

    async def commit(
        self,
        call: Call,
        reader: GroupReader,
        places: Iterable[CommittedPlace],
        shared: bool | None = None,
    ) -> None:
        """Commit the offsets of the reader's group, all or none. `shared`: by the service that
        shares the group out from now on, or no more."""
        self._engine.require_serving()
        if shared is None:
            self._members.require_pulled(reader.group)
        elif shared:
            self._members.require_unread(reader.group)
        agreed = self._engine.ends.agreed
        offsets = [
            (topic, queue_id, agreed(topic, queue_id, offset, generation))
            for topic, queue_id, offset, generation in places
        ]
        topics = {topic for topic, _, _ in offsets}
        for topic in topics:
            if self._topics.is_deleted(topic):
                raise NotFoundError(f"there is no topic {topic}: it was deleted; nothing is kept")
        try:
            await self._commit(reader.group, offsets)
        except NotWritableError as error:
            raise await self._explained(error) from error
        self._last_commits.note(reader.group, topics, call.caller.address)
        if reader.client_id:
            self._members.committed(*reader)
        if shared is not None:
            self._members.share(reader.group, shared)

    async def _commit(self, group: str, offsets: list[GroupOffset]) -> None:
        try:
            self._bounds.commit(group, offsets)
        except OffsetOutOfRangeError:
            await self._catch_up()
            self._bounds.commit(group, offsets)

    def committed(
        self, group: str, topic: str, place: NestedPlace, most: int
    ) -> tuple[list[GroupOffset], NestedPlace | None]:
        """A page of what the group has committed, from a place on, and where the next begins."""
        self._engine.require_serving()
        found, following = self._offsets.committed(group, topic, place, most)
        bounded = self._bounds.bounded
        return [
            (topic, queue_id, bounded(group, topic, queue_id, offset))
            for group, topic, queue_id, offset in found
        ], following

    async def delete(self, group: str, topic: str = "") -> int:
        """Delete a group's offsets, of all topics with ""; how many queues had one."""
        self._engine.require_serving()
        try:
            self._bounds.require_master()
        except NotWritableError as error:
            raise await self._explained(error) from error
        self._members.require_pulled(group)
        self._last_commits.forget(group, topic)
        return self._offsets.delete(group, topic)

    async def _explained(self, error: NotWritableError) -> StrataError:
        """The error with where to turn."""
        found = await self._why_not_writable()
        if found is None:
            return error
        why, master = found
        if not why:
            return UnavailableError("the broker has just become a master: try again")
        return NotWritableError(f"{error.message}; {why}", error.reason, master)
