"""Settings of the dispatcher service; `docs/configuration.md` is made from them."""

from collections.abc import Iterable
from dataclasses import dataclass

from stratamq.errors import InvalidRequestError
from stratamq.formats.delay import DEFAULT_DELAY_LEVELS_TEXT, parse_delay_levels
from stratamq.service.config import FollowerConfig, setting
from stratamq_dispatcher.opened_store import EngineSettings
from stratamq_dispatcher.pull import PullLimits
from stratamq_dispatcher.tier_reads import TierLevel

KIB, MIB = 1 << 10, 1 << 20


# fmt: off
@dataclass(frozen=True)
class DispatcherConfig(FollowerConfig):
    """One broker's consume queues."""

    queue_file_bytes: int = setting(
        6_000_000, unit="bytes", minimum=20, maximum=1 << 34,
        rocketmq="mappedFileSizeConsumeQueue",
        doc="Size of a consume queue file, rounded up to whole units of 20 bytes. An existing "
        "directory keeps the size of its files.",
    )
    flush_interval_ms: int = setting(
        1_000, unit="ms", minimum=10, maximum=3_600_000, rocketmq="flushIntervalConsumeQueue",
        doc="Interval at which units are written to their files and synced, followed by the "
        "watermark.",
    )
    flush_bytes: int = setting(
        8 * MIB, unit="bytes", minimum=4 * KIB, maximum=1 << 34,
        doc="Bytes of units in memory that are written before the interval is over.",
    )
    max_unwritten_bytes: int = setting(
        32 * MIB, unit="bytes", minimum=4 * KIB, maximum=1 << 34,
        doc="Bytes of units in memory above which the log is not read until some are written; "
        "units of messages that the log has not flushed are not included.",
    )
    flush_window_bytes: int = setting(
        64 * KIB, unit="bytes", minimum=20, maximum=1 << 30,
        doc="Largest part of one queue that is written between two syncs; after a crash a start "
        "looks for stale units behind a queue's end until it has found this many zeros.",
    )
    max_open_files: int = setting(
        512, unit="files", minimum=8, maximum=1 << 20,
        doc="Number of queue files that stay open, however many queues there are.",
    )
    step_messages: int = setting(
        1_024, unit="messages", minimum=1, maximum=1 << 20,
        doc="Messages that are dispatched before pulls are served; keeps a step under 2 ms.",
    )
    offsets_persist_interval_ms: int = setting(
        5_000, unit="ms", minimum=10, maximum=3_600_000, rocketmq="flushConsumerOffsetInterval",
        doc="Interval at which changed offsets of consumer groups are saved.",
    )
    message_delay_level: str = setting(
        DEFAULT_DELAY_LEVELS_TEXT, unit="", rocketmq="messageDelayLevel",
        doc="Delays of levels 1, 2, …: must be equal to the commit log's.",
    )
    access_message_in_memory_max_ratio: float = setting(
        0.4, unit="ratio", minimum=0.0, maximum=1.0, rocketmq="accessMessageInMemoryMaxRatio",
        doc="Messages further behind the log's end than this share of memory count as on disk: "
        "another thread reads them, and pulls of them are smaller.",
    )
    memory_bytes: int = setting(
        0, unit="bytes", minimum=0, maximum=1 << 50,
        doc="Memory to which the ratio applies; 0: that of the machine.",
    )
    max_transfer_bytes_in_memory: int = setting(
        262_144, unit="bytes", minimum=1, maximum=64 * MIB,
        rocketmq="maxTransferBytesOnMessageInMemory",
        doc="Bytes of messages in memory in a pull without limits of its own.",
    )
    max_transfer_count_in_memory: int = setting(
        32, unit="messages", minimum=1, maximum=1 << 20,
        rocketmq="maxTransferCountOnMessageInMemory",
        doc="Messages in memory in a pull without limits of its own.",
    )
    max_transfer_bytes_on_disk: int = setting(
        65_536, unit="bytes", minimum=1, maximum=64 * MIB,
        rocketmq="maxTransferBytesOnMessageInDisk",
        doc="Bytes of messages on disk in a pull without limits of its own.",
    )
    max_transfer_count_on_disk: int = setting(
        8, unit="messages", minimum=1, maximum=1 << 20,
        rocketmq="maxTransferCountOnMessageInDisk",
        doc="Messages on disk in a pull without limits of its own.",
    )
    max_pull_bytes: int = setting(
        4 * MIB, unit="bytes", minimum=1 * KIB, maximum=6 * MIB,
        doc="Largest size of a pull with limits of its own; one message is always returned.",
    )
    max_pull_messages: int = setting(
        16_384, unit="messages", minimum=1, maximum=1 << 20,
        doc="Largest number of messages in a pull with limits of its own.",
    )
    tier_level: str = setting(
        "NOT_IN_DISK", unit="", rocketmq="tieredStorageLevel",
        choices=(*(one.name for one in TierLevel), *(str(one.value) for one in TierLevel)),
        doc="What is read from the broker's tier: nothing; what the log no longer has; also what "
        "is not in memory; or everything that the tier has.",
    )
    tier_mounted: bool = setting(
        False, unit="",
        doc="Serve the queues of a mounted tier (`tier.mounted`): each ends where the tier's does, "
        "and nothing is served until they are known.",
    )
    tier_timeout_ms: int = setting(
        15_000, unit="ms", minimum=10, maximum=600_000,
        doc="Time that the tier service has for a response; then a pull ends with UNAVAILABLE, "
        "and a stream retries.",
    )
    page_entries: int = setting(
        500, unit="entries", minimum=1, maximum=10_000,
        doc="Entries in one response that lists queues or consumer offsets: larger tables are "
        "sent in pages.",
    )
# fmt: on

    @property
    def engine_settings(self) -> EngineSettings:
        return EngineSettings(
            queue_file_bytes=self.queue_file_bytes,
            flush_interval_ms=self.flush_interval_ms,
            flush_bytes=self.flush_bytes,
            max_unwritten_bytes=self.max_unwritten_bytes,
            flush_window_bytes=self.flush_window_bytes,
            max_open_files=self.max_open_files,
            step_messages=self.step_messages,
            delay_levels_ms=parse_delay_levels(self.message_delay_level),
        )

    def pull_limits(self, machine_memory_bytes: int) -> PullLimits:
        memory_bytes = self.memory_bytes or machine_memory_bytes
        return PullLimits(
            in_memory_bytes=self.max_transfer_bytes_in_memory,
            in_memory_messages=self.max_transfer_count_in_memory,
            on_disk_bytes=self.max_transfer_bytes_on_disk,
            on_disk_messages=self.max_transfer_count_on_disk,
            hot_bytes=int(memory_bytes * self.access_message_in_memory_max_ratio),
            most_bytes=self.max_pull_bytes,
            most_messages=self.max_pull_messages,
        )

    def faults(self) -> Iterable[str]:
        """What is wrong with several settings together, or with their texts."""
        try:
            parse_delay_levels(self.message_delay_level)
        except InvalidRequestError as error:
            yield f"message_delay_level: {error}"
