"""Groups' queues and members as messages of the wire."""

from stratamq.api.v1 import dispatcher_pb2 as pb
from stratamq_dispatcher.group_listing import GroupQueue
from stratamq_dispatcher.group_members import GroupMember
from stratamq_dispatcher.last_commits import LastCommit


def group_info(
    one: GroupQueue, last: LastCommit, lag_ms: int | None, *, shared: bool
) -> pb.GroupInfo:
    """`lag_ms` None: not known, or not asked for."""
    return pb.GroupInfo(
        group=one.group,
        topic=one.topic,
        queue_id=one.queue_id,
        offset=one.offset,
        max_offset=one.end,
        lag=one.lag,
        last_commit_timestamp_ms=last.timestamp_ms,
        last_client=last.client,
        lag_ms=lag_ms,
        shared=shared,
    )


def group_member(one: GroupMember) -> pb.GroupMember:
    return pb.GroupMember(
        client_id=one.client_id,
        address=one.address,
        topics=[
            pb.MemberTopic(topic=topic, queue_ids=queue_ids)
            for topic, queue_ids in one.topics.items()
        ],
        since_ms=one.since_ms,
        last_seen_ms=one.last_seen_ms,
        last_commit_ms=one.last_commit_ms,
        streaming=one.streaming,
    )
