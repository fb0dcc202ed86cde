"""Settings of the tier service; `docs/configuration.md` is made from them."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.tier_progress import TierSelection
from stratamq.service.config import FollowerConfig, setting
from stratamq.tier.containers.place import HOUR_MS, TierLimits
from stratamq.tier.driver.calls import is_name
from stratamq.tier.driver.counting import Prices
from stratamq.tier.writing.intake import IntakeLimits, goes_into_tier
from stratamq_tier.read_ahead import ReadLimits

MIB = 1 << 20
EARLIEST, NOW = "earliest", "now"
SMALL_ROLLS = 4
"""So many small segments of a queue there are at most in its retention."""


# fmt: off
@dataclass(frozen=True)
class TierConfig(FollowerConfig):
    """One broker's tier."""

    target: str = setting(
        "", unit="path or URL", rocketmq="tieredStoreFilePath",
        doc="Location of the tier: a directory, in RocketMQ's layout, or an object store: "
        "`s3://bucket/prefix`, `gs://…`, `az://…`, with credentials from the environment. The "
        "service does not start without it."
    )
    provider: str = setting(
        "", unit="class", rocketmq="tieredBackendServiceProvider",
        doc="RocketMQ's class, as in its configuration: `…provider.PosixFileSegment` requires a "
        "directory as `target`; empty: determined by `target`. Its `MemoryFileSegment`, which "
        "stores nothing, and other classes are refused.",
    )
    metadata_provider: str = setting(
        "", unit="class", rocketmq="tieredMetadataServiceProvider",
        doc="RocketMQ's class: `…metadata.DefaultMetadataStore`, or empty; no other is supported.",
    )
    endpoint: str = setting(
        "", unit="URL", rocketmq="objectStoreEndpoint",
        doc="Server of the object store; empty: the provider's.",
    )
    allow_http: bool = setting(
        False, unit="", doc="Allow requests to the object store without TLS.",
    )
    cluster: str = setting(
        "DefaultCluster", unit="", rocketmq="brokerClusterName",
        doc="Cluster name, the first part of every path.",
    )
    broker: str = setting(
        "", unit="", rocketmq="brokerName",
        doc="Broker name, the second part of every path; empty: the log's.",
    )
    mounted: bool = setting(
        False, unit="",
        doc="Read a tier that another broker writes or has written, without changing it; this "
        "broker's queues are the tier's (`stratamq tier mount`).",
    )
    mount_look_ms: int = setting(
        30_000, unit="ms", minimum=10, maximum=3_600_000,
        doc="Interval at which a tier that another service writes (a mounted tier, or a slave's) "
        "is checked: one request, and, if its writer has uploaded more, those for the "
        "manifests of all queues, or for a slave of new ones.",
    )
    start: str = setting(
        EARLIEST, unit="",
        doc="Start of a broker's first upload: `earliest`, `now`, or a store time in ms. A tier "
        "that is not empty is continued.",
    )
    adopt_generation: int = setting(
        0, unit="", minimum=0, maximum=(1 << 63) - 1,
        doc="Log generation of the tier from which this store was restored, which is continued; 0: "
        "none.",
    )
    topics: tuple[str, ...] = setting(
        (), unit="names",
        doc="Topics to upload, as names or patterns with `*`; empty: all. The broker's own topics "
        "are never uploaded.",
    )
    except_topics: tuple[str, ...] = setting(
        (), unit="names", doc="Topics not to upload, as names or patterns with `*`.",
    )
    scan_interval_ms: int = setting(
        20_000, unit="ms", minimum=10, maximum=3_600_000,
        doc="Interval at which the service checks which batches are due.",
    )
    batch_wait_ms: int = setting(
        30_000, unit="ms", minimum=0, maximum=86_400_000, rocketmq="tieredStoreGroupCommitTimeout",
        doc="Longest time that a batch's first message waits for the upload.",
    )
    batches: bool = setting(
        True, unit="", rocketmq="tieredStoreGroupCommit",
        doc="Whether messages wait for others; false: each check uploads what is there.",
    )
    batch_messages: int = setting(
        4096, unit="messages", minimum=1, maximum=1 << 20, rocketmq="tieredStoreGroupCommitCount",
        doc="Number of messages at which a batch is uploaded.",
    )
    batch_bytes: int = setting(
        4 * MIB, unit="bytes", minimum=1, maximum=1 << 30, rocketmq="tieredStoreGroupCommitSize",
        doc="Size at which a batch is uploaded; a larger message is a batch of its own.",
    )
    budget_bytes: int = setting(
        256 * MIB, unit="bytes", minimum=1, maximum=1 << 40,
        doc="Memory for messages of all queues that wait for their upload; when it is used up, the "
        "largest batches are uploaded first, and the log is not read.",
    )
    uploads_at_once: int = setting(
        8, unit="queues", minimum=1, maximum=1024, rocketmq="tieredStoreMaxPendingLimit",
        doc="Number of queues that are uploaded at the same time.",
    )
    retry_longest_ms: int = setting(
        30_000, unit="ms", minimum=10, maximum=3_600_000,
        doc="Longest pause before a failed upload is retried; it doubles from 100 ms.",
    )
    record_segment_bytes: int = setting(
        1 << 30, unit="bytes", minimum=1024, maximum=1 << 40,
        rocketmq="tieredStoreCommitLogMaxSize",
        doc="Size of a segment of a queue's records.",
    )
    unit_segment_bytes: int = setting(
        100 * MIB, unit="bytes", minimum=QUEUE_UNIT_BYTES, maximum=1 << 40,
        rocketmq="tieredStoreConsumeQueueMaxSize",
        doc="Size of a segment of a queue's units, in a directory.",
    )
    roll_interval_hours: int = setting(
        24, unit="hours", minimum=1, maximum=1 << 20, rocketmq="commitLogRollingInterval",
        doc="Age of its first message at which a segment is rolled.",
    )
    roll_minimum_bytes: int = setting(
        16 * MIB, unit="bytes", minimum=0, maximum=1 << 40,
        rocketmq="commitLogRollingMinimumSize",
        doc="A smaller segment is not rolled by age until it is as old as a quarter of its topic's "
        "retention, so that messages of a queue with few of them also expire in time.",
    )
    retention_hours: int = setting(
        72, unit="hours", minimum=0, maximum=1 << 20, rocketmq="tieredStoreFileReservedTime",
        doc="How long messages stay in the tier; 0: forever.",
    )
    topic_retention_hours: tuple[str, ...] = setting(
        (), unit="topic=hours",
        doc="Topics with another retention, as `name=hours`, with names or patterns with `*`; the "
        "first match applies.",
    )
    retention_enabled: bool = setting(
        True, unit="", rocketmq="tieredStoreDeleteFileEnable",
        doc="Delete messages from the tier by age.",
    )
    retention_interval_ms: int = setting(
        3_600_000, unit="ms", minimum=10, maximum=86_400_000,
        rocketmq="tieredStoreDeleteFileInterval",
        doc="Interval between retention runs.",
    )
    grace_ms: int = setting(
        600_000, unit="ms", minimum=0, maximum=86_400_000,
        doc="Delay before objects that left a queue's manifest are deleted: readers that use an "
        "older manifest finish in this time.",
    )
    index_enabled: bool = setting(
        True, unit="", rocketmq="messageIndexEnable",
        doc="Index the tier's messages by key.",
    )
    index_interval_ms: int = setting(
        0, unit="ms", minimum=0, maximum=86_400_000,
        doc="Interval at which keys are written to an index file; until then they are in memory, "
        "and are read again from the messages after a crash. 0: 10 minutes for an object "
        "store; 3 hours for a directory, where each file has RocketMQ's table of slots.",
    )
    index_slots: int = setting(
        5_000_000, unit="slots", minimum=0, maximum=100_000_000,
        rocketmq="tieredStoreIndexFileMaxHashSlotNum",
        doc="Slots of an index file in a directory: must equal RocketMQ's setting if RocketMQ is "
        "to find the messages. 0, and always in an object store: as many as the file has keys.",
    )
    index_items: int = setting(
        1_000_000, unit="items", minimum=1, maximum=20_000_000,
        rocketmq="tieredStoreIndexFileMaxIndexNum",
        doc="Number of keys in memory, of 40 bytes each, at which a file is written early.",
    )
    read_ahead_enabled: bool = setting(
        True, unit="", rocketmq="readAheadCacheEnable",
        doc="Cache what is read ahead from the tier for later reads.",
    )
    read_ahead_messages: int = setting(
        4096, unit="messages", minimum=1, maximum=1 << 16,
        rocketmq="readAheadMessageCountThreshold",
        doc="Largest number of messages in one read-ahead.",
    )
    read_ahead_bytes: int = setting(
        16 * MIB, unit="bytes", minimum=1, maximum=1 << 30,
        rocketmq="readAheadMessageSizeThreshold",
        doc="Largest size of one read-ahead.",
    )
    read_ahead_expiry_ms: int = setting(
        15_000, unit="ms", minimum=1, maximum=3_600_000,
        rocketmq="readAheadCacheExpireDuration",
        doc="Time after which read-ahead data that was not requested is dropped.",
    )
    read_ahead_budget_ratio: float = setting(
        0.3, unit="ratio", minimum=0.0, maximum=1.0, rocketmq="readAheadCacheSizeThresholdRate",
        doc="Memory for read-ahead data, as a share of `budget_bytes`.",
    )
    fetches_at_once: int = setting(
        8, unit="requests", minimum=1, maximum=1024,
        doc="Number of concurrent storage requests for consumers.",
    )
    fetch_timeout_ms: int = setting(
        10_000, unit="ms", minimum=10, maximum=600_000,
        doc="Time limit of a consumer's fetch; then it ends with UNAVAILABLE.",
    )
    consumer_offsets_interval_ms: int = setting(
        60_000, unit="ms", minimum=10, maximum=86_400_000,
        doc="Interval at which consumer groups' offsets are uploaded, for a broker that is "
        "restored from the tier.",
    )
    storage_timeout_ms: int = setting(
        30_000, unit="ms", minimum=100, maximum=3_600_000,
        doc="Time limit of one request to an object store, including its body.",
    )
    price_put: float = setting(
        0.005, unit="USD", minimum=0.0, maximum=1000.0,
        doc="Price of 1 000 write requests, for the displayed cost.",
    )
    price_get: float = setting(
        0.0004, unit="USD", minimum=0.0, maximum=1000.0, doc="Price of 1 000 read requests.",
    )
    price_list: float = setting(
        0.005, unit="USD", minimum=0.0, maximum=1000.0, doc="Price of 1 000 list requests.",
    )

    def faults(self) -> Iterable[str]:
        if not self.target:
            yield "target must be given: a directory, or the URL of an object store"
        elif not self.is_objects and Path(self.target).resolve().is_relative_to(
            self.root.resolve()
        ):
            yield (
                f"target {self.target} is in the store {self.root} itself, where RocketMQ refuses "
                "foreign files: name a directory beside it"
            )
        for setting_name, name in (("cluster", self.cluster), ("broker", self.broker or "-")):
            if not is_name(name):
                yield f"{setting_name} {name!r}: no part of a path can have this name"
        yield from self._class_faults()
        if self.start not in (EARLIEST, NOW) and not self.start.isascii():
            yield "start is `earliest`, `now` or a time in ms"
        elif self.start not in (EARLIEST, NOW) and not self.start.isdigit():
            yield f"start: {self.start!r} is neither `earliest`, `now` nor a time in ms"
        if self.batch_bytes > self.budget_bytes:
            yield "batch_bytes is above budget_bytes"
        for one in self.topic_retention_hours:
            name, equals, hours = one.rpartition("=")
            if not (name and equals and hours.isascii() and hours.isdigit()):
                yield f"topic_retention_hours: {one!r} must have the form topic=hours"

    def _class_faults(self) -> Iterable[str]:
        package, _, name = self.provider.rpartition(".")
        known = not package or package.startswith("org.apache.rocketmq.tieredstore.provider")
        if known and name == "MemoryFileSegment":
            yield (
                f"provider {self.provider} keeps messages in memory, where a restart loses them: "
                "name PosixFileSegment, and a directory as target"
            )
        elif self.provider and not (known and name == "PosixFileSegment"):
            yield (
                f"provider {self.provider}: no class of this name can be loaded here; leave it "
                "empty, and name the storage by target (a directory, s3://, gs://, az://)"
            )
        elif self.provider and self.is_objects:
            yield f"provider {self.provider} writes directories, and target is {self.target}"
        if self.metadata_provider.rpartition(".")[2] not in ("", "DefaultMetadataStore"):
            yield (
                f"metadata_provider {self.metadata_provider}: RocketMQ's DefaultMetadataStore is "
                "the only one that is known here"
            )

    @property
    def is_objects(self) -> bool:
        return "://" in self.target

    @property
    def prices(self) -> Prices:
        return Prices(self.price_put, self.price_get, self.price_list)

    def limits(self, topic: str) -> TierLimits:
        """Return the limits of the topic's queues."""
        whole = self.unit_segment_bytes // QUEUE_UNIT_BYTES * QUEUE_UNIT_BYTES
        roll_ms, retention_ms = self.roll_interval_hours * HOUR_MS, self.retention_ms(topic)
        small_ms = max(roll_ms, retention_ms // SMALL_ROLLS) if retention_ms is not None else 0
        return TierLimits(
            record_segment_bytes=self.record_segment_bytes,
            unit_segment_bytes=whole,
            roll_after_ms=roll_ms,
            roll_min_bytes=self.roll_minimum_bytes,
            roll_small_after_ms=small_ms,
        )

    @property
    def index_file_interval_ms(self) -> int:
        if self.index_interval_ms:
            return self.index_interval_ms
        return 600_000 if self.is_objects else 3 * HOUR_MS

    @property
    def index_retention_ms(self) -> int | None:
        """The longest that messages stay in the tier; None: forever."""
        given = [int(one.rpartition("=")[2]) for one in self.topic_retention_hours]
        hours = [self.retention_hours, *given]
        return max(hours) * HOUR_MS if all(hours) and self.retention_enabled else None

    @property
    def intake_limits(self) -> IntakeLimits:
        return IntakeLimits(
            self.batch_bytes,
            self.batch_messages,
            self.batch_wait_ms if self.batches else 0,
            self.budget_bytes,
        )

    @property
    def read_limits(self) -> ReadLimits:
        return ReadLimits(self.read_ahead_messages, self.read_ahead_bytes, self.fetch_timeout_ms)

    @property
    def cache_bytes(self) -> int:
        ratio = self.read_ahead_budget_ratio if self.read_ahead_enabled else 0.0
        return int(ratio * self.budget_bytes)

    @property
    def from_ms(self) -> int | None:
        """The store time from which a first upload begins; None: another beginning."""
        return int(self.start) if self.start.isdigit() else None

    @property
    def choice(self) -> TierSelection:
        """What it chooses by."""
        return TierSelection(self.topics, self.except_topics, self.start)

    def wants(self, topic: str) -> bool:
        """Whether a topic goes into the tier."""
        if not goes_into_tier(topic) or topic in (self.cluster, self.broker):
            return False
        if any(fnmatchcase(topic, pattern) for pattern in self.except_topics):
            return False
        return not self.topics or any(fnmatchcase(topic, pattern) for pattern in self.topics)

    def retention_ms(self, topic: str) -> int | None:
        """None: forever."""
        hours = self.retention_hours
        for one in self.topic_retention_hours:
            pattern, _, given = one.rpartition("=")
            if fnmatchcase(topic, pattern):
                hours = int(given)
                break
        return hours * HOUR_MS if hours and self.retention_enabled else None
# fmt: on
