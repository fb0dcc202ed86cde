"""Where a group continues after a reset, queue by queue. No I/O: a generator of operations."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from stratamq.client import group_operations
from stratamq.client.consuming import listed_queues, plan_place, refuse_empty
from stratamq.client.operations import Operation
from stratamq.client.reading import Start, checked_start
from stratamq.errors import NotFoundError


@dataclass(frozen=True, slots=True)
class GroupReset:
    """One queue. `before`: the next offset that the group had committed, -1 for none."""

    topic: str
    queue_id: int
    before: int
    offset: int
    max_offset: int
    broker: str = ""
    """The broker's name, like `Topic.broker`."""


def plan_group_reset(
    group: str, to: Start, topic: str
) -> Generator[Operation[Any], Any, list[GroupReset]]:
    """See `AsyncAdminClient.plan_group_reset`."""
    place = checked_start(to)
    committed: dict[tuple[str, int], int] = yield group_operations.committed_offsets(group, topic)
    topics = [topic] if topic else sorted({name for name, _ in committed})
    if not topics:
        raise NotFoundError(f"the group {group} has committed nothing: name a topic to set it for")
    resets = []
    for name in topics:
        queues, _ = yield from listed_queues(name, whole=True)
        if not queues:
            yield from refuse_empty(name)
        for queue in sorted(queues, key=lambda one: one.queue_id):
            wanted = yield from plan_place(queue, place)
            offset = min(max(wanted, queue.min_offset), queue.max_offset)
            before = committed.get((name, queue.queue_id), -1)
            resets.append(GroupReset(name, queue.queue_id, before, offset, queue.max_offset))
    return resets
