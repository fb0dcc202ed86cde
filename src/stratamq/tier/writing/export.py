"""RocketMQ's metadata file for a tier of ours whose layout is RocketMQ's.

What it needs to read the tier (spec tier 8.5): topics with ids, queues, and every segment with its
exact size. Our manifests stay the truth; the file is made from them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from stratamq.errors import InvalidRequestError
from stratamq.files.metadata import MetadataFile
from stratamq.files.port import Files
from stratamq.formats.store_paths import TIER_METADATA_PATH
from stratamq.formats.tier_index_manifest import IndexManifest
from stratamq.formats.tier_manifest import Manifest
from stratamq.formats.tier_metadata import (
    QueueRecord,
    SegmentRecord,
    TierMetadata,
    TopicRecord,
    format_tier_metadata,
    parse_tier_metadata,
)
from stratamq.formats.tier_names import SegmentType, index_path, queue_path


class MetadataExport:
    """`config/tieredStoreMetadata.json` of the store directory `files`. Blocking."""

    def __init__(self, files: Files) -> None:
        self._file = MetadataFile(
            files,
            TIER_METADATA_PATH,
            parse=lambda raw: {"metadata": parse_tier_metadata(raw)},
            dump=lambda document: format_tier_metadata(document["metadata"]),  # type: ignore[arg-type]
        )

    def write(
        self, manifests: list[Manifest], now_ms: int, index: IndexManifest | None = None
    ) -> None:
        """Write the metadata of these queues and of the broker's key index. Topics keep the ids
        that the index or the file has, and entries of other queues stay. OSError;
        InvalidRequestError for manifests of parts."""
        self._file.store({"metadata": updated(self._load(), manifests, now_ms, index)})

    def topic_ids(self) -> dict[str, int]:
        """That the file has. OSError."""
        return {name: topic.topic_id for name, topic in self._load().topics.items()}

    def _load(self) -> TierMetadata:
        loaded = self._file.load(foreign=True, keep_aside=False) or {}
        known = loaded.get("metadata")
        assert known is None or isinstance(known, TierMetadata)
        return known or TierMetadata()


def updated(
    known: TierMetadata,
    manifests: list[Manifest],
    now_ms: int,
    index: IndexManifest | None = None,
) -> TierMetadata:
    """`known` with these queues in place of what it had of them; new topics get the next ids. The
    ids in index items are not changed any more: a topic that has another's gets a new one."""
    ids = {name: topic.topic_id for name, topic in known.topics.items()}
    following = max([known.topic_serial_number, *ids.values()]) + 1
    if index is not None:
        indexed = set(index.topics.values())
        following = max([following, *(one + 1 for one in indexed)])
        for topic in sorted(ids.keys() - index.topics.keys()):
            if ids[topic] in indexed:
                ids[topic] = following
                following += 1
        ids |= index.topics
    for topic in sorted({manifest.topic for manifest in manifests} - ids.keys()):
        ids[topic] = following
        following += 1
    made = metadata_of(manifests, ids, now_ms)
    made.topic_serial_number = following - 1
    for name, record in known.topics.items():
        made.topics.setdefault(name, replace(record, topic_id=ids[name]))
    ours = {(one.broker, one.topic, one.queue_id) for one in manifests}
    made.queues += [
        one for one in known.queues if (one.broker, one.topic, one.queue_id) not in ours
    ]
    for kind in SegmentType:
        for path, segments in known.segments[kind].items():
            made.segments[kind].setdefault(path, segments)
    if index is not None:
        add_index(made, index, now_ms)
    return made


def add_index(metadata: TierMetadata, index: IndexManifest, now_ms: int) -> None:
    """The files of the key index. RocketMQ reads those with its own number of slots, and topics by
    the ids in them: `metadata` was made with `index.topics`."""
    path = index_path(index.broker)
    metadata.segments[SegmentType.INDEX][path] = [
        SegmentRecord(
            path,
            SegmentType.INDEX,
            file.base,
            file.size,
            created_ms=now_ms,
            begin_ms=file.begin_ms,
            end_ms=file.last_ms,
        )
        for file in index.files
    ]


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
