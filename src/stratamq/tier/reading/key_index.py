"""A broker's key index, by its manifest, and the messages of a key in a tier of ours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stratamq.formats.tier_index_manifest import IndexManifest, decode_index_manifest
from stratamq.formats.tier_names import INDEX_TOPIC
from stratamq.tier.containers.key_index import chain_of
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.containers.queue import TierQueue
from stratamq.tier.driver.calls import AbsentError, Load, Procedure, ask
from stratamq.tier.reading.keys import (
    ALL_TIMES,
    KeyAnswer,
    LocalIndex,
    TierIndex,
    UploadedIndex,
    messages_of_key,
)


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """`pending`: what a writer in this process has not uploaded yet."""

    manifest: IndexManifest
    pending: LocalIndex | None = None

    def between(self, span: tuple[int, int]) -> list[TierIndex]:
        """Files that may have a message stored in `span`, first and last ms."""
        found: list[TierIndex] = [
            UploadedIndex(file.begin_ms, file.last_ms, file.slots, file.items, chain_of(file))
            for file in self.manifest.files
            if file.first_ms <= span[1] and file.last_ms >= span[0]
        ]
        return [*found, self.pending] if self.pending is not None else found


def index_place(cluster: str, broker: str) -> QueuePlace:
    return QueuePlace(cluster, broker, INDEX_TOPIC, 0)


def load_index(cluster: str, broker: str) -> Procedure[IndexManifest | None]:
    """None: nothing was indexed. CorruptRecordError."""
    try:
        raw, _ = yield from ask(Load(index_place(cluster, broker).manifest))
    except AbsentError:
        return None
    return decode_index_manifest(raw)


def query(
    index: KeyIndex,
    queues: Mapping[int, TierQueue],
    topic: str,
    key: str,
    limit: int,
    span: tuple[int, int] = ALL_TIMES,
) -> Procedure[KeyAnswer]:
    """Up to `limit` messages of the topic with this key, stored in `span`. `queues`: the topic's.

    Two calls a file, and one a message. The message itself decides: an index may name one that was
    cut off or replaced since.
    """
    topic_id = index.manifest.topics.get(topic)
    if topic_id is None:
        return KeyAnswer((), ())
    files: Sequence[TierIndex] = index.between(span)
    return (yield from messages_of_key(files, queues, topic_id, topic, key, limit, span))
