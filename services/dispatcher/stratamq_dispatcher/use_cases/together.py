"""The use cases of one dispatcher, as its process makes them and a protocol's codec takes them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from stratamq.follow.followed_topics import FollowedTopics
from stratamq_dispatcher.consumer_offsets import ConsumerOffsets
from stratamq_dispatcher.engine import DispatchEngine
from stratamq_dispatcher.group_listing import GroupListing
from stratamq_dispatcher.group_members import GroupMembers
from stratamq_dispatcher.offset_bounds import OffsetBounds
from stratamq_dispatcher.pulling import Puller
from stratamq_dispatcher.use_cases.committing import Committing, LastCommits
from stratamq_dispatcher.use_cases.pulling import Pulling


@dataclass(frozen=True, slots=True)
class DispatcherUseCases:
    pulling: Pulling
    committing: Committing
    groups: GroupListing
    members: GroupMembers
    last_commits: LastCommits


def use_cases_of(
    engine: DispatchEngine,
    puller: Puller,
    offsets: ConsumerOffsets,
    bounds: OffsetBounds,
    topics: FollowedTopics,
    members: GroupMembers,
    last_commits: LastCommits,
    why_not_writable: Callable[[], Awaitable[tuple[str, str] | None]],
) -> DispatcherUseCases:
    """`why_not_writable` as of `Committing`."""
    committing = Committing(
        engine,
        offsets,
        bounds,
        topics,
        last_commits,
        members,
        puller.catch_up,
        why_not_writable,
    )
    groups = GroupListing(offsets, bounds, puller.learn_minimums, puller.first_offset)
    pulling = Pulling(puller, topics, members)
    return DispatcherUseCases(pulling, committing, groups, members, last_commits)
