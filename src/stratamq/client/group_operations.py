"""The calls about consumer groups as values; see `operations`."""

from collections.abc import Mapping
from dataclasses import dataclass

from stratamq.api.v1 import delivery_pb2, dispatcher_pb2
from stratamq.client.operations import Operation, called, wire_message
from stratamq.client.values import GroupMember, GroupQueue
from stratamq.errors import InvalidRequestError
from stratamq.rpc.methods import METHODS
from stratamq.rpc.mirrors import value_of


def commit_offsets(
    group: str,
    offsets: Mapping[tuple[str, int], int],
    client_id: str = "",
    generations: Mapping[tuple[str, int], int] | None = None,
) -> Operation[None]:
    """`generations`: see `consuming.Range`."""
    known = generations or {}
    return called(
        "CommitOffsets",
        lambda _: None,
        group=group,
        offsets=[
            wire_message(
                dispatcher_pb2.GroupOffset,
                topic=topic,
                queue_id=queue_id,
                offset=offset,
                generation=known.get((topic, queue_id), 0),
            )
            for (topic, queue_id), offset in offsets.items()
        ],
        client_id=client_id,
    )


def committed_offsets(group: str, topic: str = "") -> Operation[dict[tuple[str, int], int]]:

    def result(
        response: dispatcher_pb2.GetCommittedOffsetsResponse,
    ) -> dict[tuple[str, int], int]:
        found = {(one.topic, one.queue_id): one.offset for one in response.offsets}
        return dict(sorted(found.items()))

    return called("GetCommittedOffsets", result, group=group, topic=topic)


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Some queues of some groups. `token` leads to the next page; "": this is the last."""

    queues: tuple[GroupQueue, ...]
    token: str


def groups(
    group: str = "", *, topic: str = "", with_lag_s: bool = False
) -> Operation[list[GroupQueue]]:
    def result(response: dispatcher_pb2.ListGroupsResponse) -> list[GroupQueue]:
        # An older service answers with all groups.
        found = [
            _group_queue(one)
            for one in response.groups
            if group in ("", one.group) and topic in ("", one.topic)
        ]
        return sorted(found, key=lambda one: (one.group, one.topic, one.queue_id))

    return called("ListGroups", result, group=group, topic=topic, with_lag_ms=with_lag_s)


def groups_page(token: str, limit: int) -> Operation[GroupPage]:
    """A page of all groups, with lag in seconds. InvalidRequestError for what is no token."""

    def result(response: dispatcher_pb2.ListGroupsResponse) -> GroupPage:
        following = f"{response.next_position}.{response.incarnation}"
        return GroupPage(
            tuple(map(_group_queue, response.groups)), following if response.next_position else ""
        )

    numbers = token.split(".") if token else ["0", "0"]
    if len(numbers) != 2 or not all(one.isdecimal() for one in numbers):
        raise InvalidRequestError(f"{token!r} leads to no page: begin with the first one")
    position, incarnation = map(int, numbers)
    request = wire_message(
        dispatcher_pb2.ListGroupsRequest,
        position=position,
        incarnation=incarnation,
        max_entries=limit,
        with_lag_ms=True,
    )
    return Operation(METHODS["ListGroups"], request, result, one_page=True)


def _group_queue(one: dispatcher_pb2.GroupInfo) -> GroupQueue:
    return GroupQueue(
        one.group,
        one.topic,
        one.queue_id,
        one.offset,
        one.max_offset,
        one.lag,
        one.last_commit_timestamp_ms,
        one.last_client,
        one.lag_ms / 1000 if one.HasField("lag_ms") else None,
    )


def group_members(group: str) -> Operation[list[GroupMember]]:
    def result(response: dispatcher_pb2.ListGroupMembersResponse) -> list[GroupMember]:
        found = [
            value_of(
                GroupMember,
                one,
                group=group,
                topics={each.topic: tuple(sorted(each.queue_ids)) for each in one.topics},
            )
            for one in response.members
        ]
        return sorted(found, key=lambda one: one.client_id)

    return called("ListGroupMembers", result, group=group)


def classic_members(group: str) -> Operation[list[GroupMember]]:
    """Those that consume by RocketMQ's classic protocol. Which queues they read, they decide."""

    def result(response: delivery_pb2.ListClassicMembersResponse) -> list[GroupMember]:
        return [
            GroupMember(
                group,
                one.client_id,
                one.member.address,
                {each.topic: () for each in one.member.subscriptions},
                one.member.since_ms,
                response.now_ms,
                last_commit_ms=0,
                streaming=True,
            )
            for one in response.members
        ]

    return called("ListClassicMembers", result, group=group)


def delete_group(group: str, topic: str = "") -> Operation[int]:
    """The number of queues of which an offset was forgotten."""
    return called("DeleteGroup", lambda response: response.queue_count, group=group, topic=topic)
