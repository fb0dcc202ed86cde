"""Whose queue it is, where its objects are, and what limits their sizes."""

from dataclasses import dataclass

from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.tier_manifest import MANIFEST_NAME, Epoch
from stratamq.formats.tier_names import (
    SegmentType,
    cluster_folder,
    parse_segment_name,
    queue_path,
    segment_path,
)
from stratamq.formats.tier_progress import (
    CONSUMER_OFFSETS_NAME,
    PROGRESS_NAME,
    WRITER_NAME,
    queues_name,
)

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class TierLimits:
    """RocketMQ's settings and their defaults (`tieredStoreCommitLogMaxSize` and so on)."""

    record_segment_bytes: int = 1 << 30
    unit_segment_bytes: int = 104_857_600 // QUEUE_UNIT_BYTES * QUEUE_UNIT_BYTES
    roll_after_ms: int = 24 * HOUR_MS
    roll_min_bytes: int = 16 << 20
    roll_small_after_ms: int = 0
    """The age at which segments below `roll_min_bytes` roll; 0: never, as in RocketMQ."""
    join_bytes: int = 4 << 20
    """Parts that follow each other in a file have one checksum up to this size."""


@dataclass(frozen=True, slots=True)
class QueuePlace:
    cluster: str
    broker: str
    topic: str
    queue_id: int

    @property
    def path(self) -> str:
        return queue_path(self.broker, self.topic, self.queue_id)

    @property
    def folder(self) -> str:
        """Everything of the queue is below it."""
        return f"{cluster_folder(self.cluster)}/{self.path}"

    @property
    def manifest(self) -> str:
        return f"{self.folder}/{MANIFEST_NAME}"

    def record_segment(self, base: int) -> str:
        return segment_path(self.cluster, self.path, SegmentType.COMMIT_LOG, base)

    def unit_segment(self, base: int) -> str:
        return segment_path(self.cluster, self.path, SegmentType.CONSUME_QUEUE, base)

    def part(self, base: int, position: int, epoch: Epoch, attempt: str) -> str:
        """No two attempts of any writer share a name."""
        start = f"{self.record_segment(base)}.parts/{position:020d}"
        return f"{start}-{epoch[0]:x}-{epoch[1]:x}-{attempt}"

    def details(self, base: int, epoch: Epoch, attempt: str) -> str:
        return f"{self.record_segment(base)}.{epoch[0]:x}-{epoch[1]:x}-{attempt}.json"

    def is_of_parts(self, path: str) -> bool:
        """Whether it is named as `part` or `details` name it: RocketMQ has no such names."""
        start = f"{self.folder}/{SegmentType.COMMIT_LOG.name}/"
        name, _, rest = path.removeprefix(start).partition(".")
        known = rest.startswith("parts/") or rest.endswith(".json")
        return path.startswith(start) and parse_segment_name(name) is not None and known


def broker_folder(cluster: str, broker: str) -> str:
    return f"{cluster_folder(cluster)}/{broker}"


def writer_path(cluster: str, broker: str) -> str:
    return f"{broker_folder(cluster, broker)}/{WRITER_NAME}"


def consumer_offsets_path(cluster: str, broker: str) -> str:
    return f"{broker_folder(cluster, broker)}/{CONSUMER_OFFSETS_NAME}"


def progress_path(cluster: str, broker: str) -> str:
    return f"{broker_folder(cluster, broker)}/{PROGRESS_NAME}"


def queues_path(cluster: str, broker: str, page: int) -> str:
    return f"{broker_folder(cluster, broker)}/{queues_name(page)}"
