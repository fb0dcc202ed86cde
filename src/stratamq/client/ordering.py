"""An ordering key chooses the queue, so that messages of one key keep their order."""

from collections.abc import Mapping, Sequence

from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.formats.javahash import queue_of_key


def ordered_place(
    topic: str,
    ordering_key: str,
    queue_id: int | None,
    keys: Sequence[str],
    queue_counts: Mapping[str, int],
) -> tuple[int, Sequence[str]]:
    """The queue, as RocketMQ's SelectMessageQueueByHash takes it, and the message's keys with the
    ordering key before the others.

    The same key has the same queue as long as the topic's number of queues stays.
    InvalidRequestError beside a queue, or for a key that is no word; NotFoundError when the topic
    is not there, whose queues are not known then.
    """
    if queue_id is not None:
        raise InvalidRequestError("queue_id and ordering_key both choose the queue: give one")
    if not isinstance(ordering_key, str) or not ordering_key or " " in ordering_key:
        raise InvalidRequestError(
            f"an ordering key is a word without spaces: {ordering_key!r:.200}"
        )
    if not queue_counts.get(topic):
        raise NotFoundError(
            f"there is no topic {topic} to whose queues an ordering key could lead: create it first"
        )
    others = (keys,) if isinstance(keys, str) else keys
    queue = queue_of_key(ordering_key, queue_counts[topic])
    return queue, (ordering_key, *(one for one in others if one != ordering_key))
