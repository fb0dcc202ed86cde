"""RocketMQ's `config/topics.json` of topics of which only their queues are known."""

from collections.abc import Mapping

from stratamq.files.metadata import JsonObject

_READ_AND_WRITE = 6


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
