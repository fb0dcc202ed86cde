"""What a purge takes from a topic, queue by queue. No I/O: a generator of operations."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from stratamq.api.v1 import commitlog_pb2
from stratamq.client.consuming import listed_queues, plan_place, refuse_empty
from stratamq.client.operations import Operation, called, topic_of, wire_message
from stratamq.client.reading import EARLIEST, Start, checked_start
from stratamq.client.values import Topic
from stratamq.errors import InvalidRequestError, NotFoundError


@dataclass(frozen=True, slots=True)
class QueuePurge:
    """One queue. `before`: its minimum offset now; `offset`: the one that it gets."""

    topic: str
    queue_id: int
    before: int
    offset: int
    max_offset: int
    broker: str = ""
    """The broker's name, like `Topic.broker`."""


def plan_purge(
    topic: str, before: Start, queue_id: int | None
) -> Generator[Operation[Any], Any, list[QueuePurge]]:
    """See `AsyncAdminClient.plan_purge`."""
    place = checked_start(before)
    if place == EARLIEST:
        raise InvalidRequestError("nothing is before the earliest message: name a later place")
    queues, _ = yield from listed_queues(topic, whole=True)
    if not queues:
        yield from refuse_empty(topic)
    chosen = [one for one in queues if queue_id in (None, one.queue_id)]
    if not chosen:
        raise NotFoundError(f"the topic {topic} has no queue {queue_id} with a message")
    purges = []
    for queue in sorted(chosen, key=lambda one: one.queue_id):
        wanted = yield from plan_place(queue, place)
        offset = min(max(wanted, queue.min_offset), queue.max_offset)
        purges.append(QueuePurge(topic, queue.queue_id, queue.min_offset, offset, queue.max_offset))
    return purges


def delete_topic(name: str) -> Operation[None]:
    return called("DeleteTopic", lambda _: None, topic=name)


def purge_topic(topic: str, purges: Sequence[QueuePurge]) -> Operation[Topic]:
    minimums = [
        wire_message(commitlog_pb2.QueueMinimum, queue_id=one.queue_id, offset=one.offset)
        for one in purges
    ]
    change = wire_message(commitlog_pb2.TopicChange, topic=topic, minimums=minimums)
    return called("PutTopic", lambda response: topic_of(response.topic), change=change)
