"""Settings of the index service; `docs/configuration.md` is made from them."""

from collections.abc import Iterable
from dataclasses import dataclass

from stratamq.service.config import FollowerConfig, setting
from stratamq_index.geometry import DEFAULT_GEOMETRY, MAX_FILE_BYTES, FileGeometry
from stratamq_index.persistence import EngineSettings


# fmt: off
@dataclass(frozen=True)
class IndexConfig(FollowerConfig):
    """One broker's hash indexes."""

    index_slots: int | None = setting(
        None, unit="slots", minimum=1, maximum=MAX_FILE_BYTES // 4, rocketmq="maxHashSlotNum",
        doc="Hash slots of an index file. Unset: what the store used before, or RocketMQ's 5 000 "
        "000. Existing files take precedence.",
    )
    index_items: int | None = setting(
        None, unit="items", minimum=2, maximum=MAX_FILE_BYTES // 20, rocketmq="maxIndexNum",
        doc="Items of an index file, one of which stays unused. Unset: what the store used "
        "before, or RocketMQ's 20 000 000. Existing files take precedence.",
    )
    sync_interval_ms: int = setting(
        1_000, unit="ms", minimum=10, maximum=3_600_000,
        doc="Interval at which items are written to their file and synced, followed by the "
        "watermark.",
    )
    slot_interval_ms: int = setting(
        5_000, unit="ms", minimum=10, maximum=3_600_000,
        doc="Interval at which slot table and header of the current file are written, for other "
        "readers of the files; they are also written when a file is full and at a stop.",
    )
    max_open_files: int = setting(
        256, unit="files", minimum=1, maximum=1 << 20,
        doc="Number of index files that stay open for queries.",
    )
    tier_enabled: bool = setting(
        True, unit="",
        doc="Search the broker's tier for messages that the log no longer has.",
    )
    tier_timeout_ms: int = setting(
        15_000, unit="ms", minimum=10, maximum=600_000,
        doc="Time that the tier service has for a response; then a query returns what the log has, "
        "and says so.",
    )
    scrub_bytes_per_second: int = setting(
        8 << 20, unit="bytes/s", minimum=0, maximum=1 << 40,
        doc="Rate at which full files are verified against their checksums, at every start and "
        "once a day; damaged ones are rebuilt from the log. 0: off.",
    )
    tick_interval_ms: int = setting(
        100, unit="ms", minimum=1, maximum=10_000,
        doc="Interval at which the service runs what is due and checks its health.",
    )

    def faults(self) -> Iterable[str]:
        geometry = FileGeometry(
            self.index_slots or DEFAULT_GEOMETRY.slots, self.index_items or DEFAULT_GEOMETRY.items
        )
        if not geometry.is_possible:
            yield (
                f"index_slots and index_items make files of {geometry.file_bytes} bytes; RocketMQ "
                f"maps at most {MAX_FILE_BYTES}"
            )

    @property
    def engine_settings(self) -> EngineSettings:
        return EngineSettings(
            index_slots=self.index_slots,
            index_items=self.index_items,
            sync_interval_ms=self.sync_interval_ms,
            slot_interval_ms=self.slot_interval_ms,
            max_open_files=self.max_open_files,
        )
