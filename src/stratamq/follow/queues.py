"""What a service asks the dispatcher of its broker about queues and groups. Of one event loop."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from stratamq.api.v1 import dispatcher_pb2 as pb
from stratamq.formats.message_status import PullStatus
from stratamq.rpc.asking import ask
from stratamq.rpc.endpoints import Channels
from stratamq.rpc.framing import PULL_RESPONSE

ANSWER_S = 10.0
_LOOKED = (PullStatus.FOUND.value, PullStatus.NO_MATCHED_MESSAGE.value)


@dataclass(frozen=True, slots=True)
class PulledFrames:
    """Whole frames, one behind the other, and where the queue begins and ends."""

    frames: bytes
    minimum: int
    maximum: int
    looked_to: int
    """All that is wanted of the queue up to here is among the frames."""


class QueueCalls:
    """Calls raise StrataError; UnavailableError when the dispatcher does not answer."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels

    async def _pages(self, name: str, request: Any) -> AsyncIterator[Any]:
        while True:
            page = await ask(self._channels, name, request, ANSWER_S)
            yield page
            if not page.next_position:
                return
            request.position = page.next_position
            if "incarnation" in page.DESCRIPTOR.fields_by_name:
                request.incarnation = page.incarnation

    async def bounds(self, topic: str, applied: int) -> dict[int, tuple[int, int]]:
        """Minimum and maximum offset of each queue that has had messages, once the queues have all
        that lies in the log before `applied`."""
        bounds: dict[int, tuple[int, int]] = {}
        request = pb.ListQueuesRequest(topic=topic, applied_offset=applied)
        async for page in self._pages("ListQueues", request):
            bounds.update({one.queue_id: (one.min_offset, one.max_offset) for one in page.queues})
        return bounds

    async def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        most: int,
        wait_ms: int,
        max_bytes: int = 0,
        tags: Sequence[str] = (),
    ) -> PulledFrames:
        """`max_bytes` 0: RocketMQ's limits. `wait_ms`: how long the dispatcher may take to read
        that the log has the message. `tags`: messages with one of them alone; 800 are looked at, or
        `most`."""
        request = pb.PullRequest(
            topic=topic,
            queue_id=queue_id,
            offset=offset,
            max_messages=most,
            max_bytes=max_bytes,
            wait_ms=wait_ms,
            tags=tags,
        )
        answer = await ask(self._channels, "Pull", request, ANSWER_S + wait_ms / 1000)
        head, (frames,) = PULL_RESPONSE.decode(answer)
        looked_to = head.next_offset if head.status in _LOOKED else offset
        return PulledFrames(bytes(frames), head.min_offset, head.max_offset, looked_to)

    async def committed(self, group: str, topic: str) -> dict[int, int]:
        """By queue."""
        offsets: dict[int, int] = {}
        request = pb.GetCommittedOffsetsRequest(group=group, topic=topic)
        async for page in self._pages("GetCommittedOffsets", request):
            offsets.update({one.queue_id: one.offset for one in page.offsets})
        return offsets

    async def shared_groups(self) -> set[str]:
        """The groups of which the dispatcher believes that they are shared."""
        groups: set[str] = set()
        async for page in self._pages("ListGroups", pb.ListGroupsRequest()):
            groups.update(one.group for one in page.groups if one.shared)
        return groups

    async def oldest_ms(self, group: str) -> int:
        """The age of the oldest message that the group has not done with; 0: there is none."""
        oldest, request = 0, pb.ListGroupsRequest(group=group, with_lag_ms=True)
        async for page in self._pages("ListGroups", request):
            oldest = max([oldest, *(one.lag_ms for one in page.groups)])
        return oldest

    async def incarnation(self) -> int:
        """A number that each start of the dispatcher has of its own."""
        request = pb.ListGroupsRequest(max_entries=1)
        return int((await ask(self._channels, "ListGroups", request, ANSWER_S)).incarnation)

    async def share(
        self, group: str, offsets: Sequence[tuple[str, int, int]], *, shared: bool = True
    ) -> None:
        """Commit (topic, queue, offset) of a shared group. The dispatcher refuses others' commits
        from now on. InvalidRequestError while clients read with its name."""
        await self.commit(group, offsets, shared=shared)

    async def commit(
        self, group: str, offsets: Sequence[tuple[str, int, int]], *, shared: bool | None = None
    ) -> None:
        """The same of a group that is not shared, with `shared` None."""
        request = pb.CommitOffsetsRequest(
            group=group,
            shared=shared,
            offsets=[
                pb.GroupOffset(topic=topic, queue_id=queue_id, offset=offset)
                for topic, queue_id, offset in offsets
            ],
        )
        await ask(self._channels, "CommitOffsets", request, ANSWER_S)
