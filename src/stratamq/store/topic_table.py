"""RocketMQ's `config/topics.json` of topics of which only their queues are known."""

from collections.abc import Iterable, Mapping

from stratamq.files.metadata import JsonObject

_READ_AND_WRITE = 6


def queue_counts(queues: Iterable[tuple[str, int]]) -> dict[str, int]:
    """By topic, of (topic, queue id): as many as the highest number that is there requires."""
    counts: dict[str, int] = {}
    for topic, queue_id in queues:
        counts[topic] = max(counts.get(topic, 0), queue_id + 1)
    return counts


def topics_document(queue_counts: Mapping[str, int]) -> JsonObject:
    """`queue_counts`: by topic."""
    table: JsonObject = {
        topic: {
            "order": False,
            "perm": _READ_AND_WRITE,
            "readQueueNums": count,
            "topicFilterType": "SINGLE_TAG",
            "topicName": topic,
            "topicSysFlag": 0,
            "writeQueueNums": count,
        }
        for topic, count in sorted(queue_counts.items())
    }
    return {"topicConfigTable": table}
