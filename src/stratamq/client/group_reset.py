"""Where a group continues after a reset, queue by queue. No I/O: a generator of operations."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from stratamq.client import operations
from stratamq.client.consuming import EARLIEST, LATEST, AtTime, Start, checked_start, listed_queues
from stratamq.client.operations import Operation
from stratamq.client.values import Queue
from stratamq.errors import NotFoundError

ResetTo = Start
"""A place to begin, or, a negative number, so many messages before each queue's end."""


@dataclass(frozen=True, slots=True)
class GroupReset:
    """One queue. `before`: the next offset that the group had committed, -1 for none."""

    topic: str
    queue_id: int
    before: int
    offset: int
    max_offset: int


def plan_group_reset(
    group: str, to: ResetTo, topic: str
) -> Generator[Operation[Any], Any, list[GroupReset]]:
    """See `AsyncAdminClient.plan_group_reset`."""
    place = to if isinstance(to, int) else checked_start(to)
    committed: dict[tuple[str, int], int] = yield operations.committed_offsets(group, topic)
    topics = [topic] if topic else sorted({name for name, _ in committed})
    if not topics:
        raise NotFoundError(f"the group {group} has committed nothing: name a topic to set it for")
    resets = []
    for name in topics:
        queues, _ = yield from listed_queues(name, whole=True)
        if not queues:
            raise NotFoundError(f"there is no topic {name}, or nothing in it")
        for queue in sorted(queues, key=lambda one: one.queue_id):
            offset = yield from _offset(queue, place)
            before = committed.get((name, queue.queue_id), -1)
            resets.append(GroupReset(name, queue.queue_id, before, offset, queue.max_offset))
    return resets


def _offset(queue: Queue, to: str | int | AtTime) -> Generator[Operation[Any], Any, int]:
    if isinstance(to, AtTime):
        wanted: int = yield operations.offset_at_time(queue.topic, queue.queue_id, to.timestamp_ms)
    elif isinstance(to, str):
        wanted = {EARLIEST: queue.min_offset, LATEST: queue.max_offset}[to]
    else:
        wanted = to if to >= 0 else queue.max_offset + to
    return min(max(wanted, queue.min_offset), queue.max_offset)
