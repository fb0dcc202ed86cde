"""RocketMQ's metadata file for a tier of ours whose layout is RocketMQ's.

What it needs to read the tier (spec tier 8.5): topics with ids, queues, and every segment with its
exact size. Our manifests stay the truth; the file is made from them.
"""

from collections.abc import Iterable, Mapping

from stratamq.errors import InvalidRequestError
from stratamq.formats.tier_manifest import Manifest
from stratamq.formats.tier_metadata import (
    QueueRecord,
    SegmentRecord,
    TierMetadata,
    TopicRecord,
)
from stratamq.formats.tier_names import SegmentType, queue_path


def metadata_of(
    manifests: Iterable[Manifest], topic_ids: Mapping[str, int], now_ms: int
) -> TierMetadata:
    """`topic_ids`: of every topic, 0 or above. InvalidRequestError for manifests of parts, which
    RocketMQ cannot read."""
    metadata = TierMetadata(max(topic_ids.values(), default=-1))
    for manifest in manifests:
        topic, path = manifest.topic, queue_path(manifest.broker, manifest.topic, manifest.queue_id)
        if not manifest.positions:
            raise InvalidRequestError(f"{path} is kept in parts: RocketMQ has no such layout")
        metadata.topics.setdefault(topic, TopicRecord(topic_ids[topic], topic, updated_ms=now_ms))
        metadata.queues.append(
            QueueRecord(topic, manifest.broker, manifest.queue_id, -1, -1, now_ms)
        )
        for kind, segments in (
            (SegmentType.COMMIT_LOG, manifest.records),
            (SegmentType.CONSUME_QUEUE, manifest.units),
        ):
            metadata.segments[kind][path] = [
                SegmentRecord(
                    path,
                    kind,
                    segment.base,
                    segment.size,
                    created_ms=now_ms,
                    begin_ms=segment.begin_ms,
                    end_ms=segment.end_ms,
                )
                for segment in segments
            ]
    return metadata
