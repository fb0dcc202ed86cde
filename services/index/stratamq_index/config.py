"""Settings of the index service; `docs/configuration.md` is made from them."""

from collections.abc import Iterable
from dataclasses import dataclass

from stratamq.service.config import FollowerConfig, setting
from stratamq_index.geometry import DEFAULT_GEOMETRY, MAX_FILE_BYTES, Geometry
from stratamq_index.persistence import EngineSettings


# fmt: off
@dataclass(frozen=True)
class IndexConfig(FollowerConfig):
    """One broker's hash indexes."""

    index_slots: int | None = setting(
        None, unit="slots", minimum=1, maximum=MAX_FILE_BYTES // 4, rocketmq="maxHashSlotNum",
        doc="Hash slots of an index file. Absent: what the store was used with before, or "
        "RocketMQ's 5 000 000. Files that are there decide whether it is taken.",
    )
    index_items: int | None = setting(
        None, unit="items", minimum=2, maximum=MAX_FILE_BYTES // 20, rocketmq="maxIndexNum",
        doc="Items of an index file, of which it holds one less. Absent: what the store was used "
        "with before, or RocketMQ's 20 000 000. Files that are there decide whether it is taken.",
    )
    sync_interval_ms: int = setting(
        1_000, unit="ms", minimum=10, maximum=3_600_000,
        doc="How often items are written to their file and synced, and the watermark after them.",
    )
    slot_interval_ms: int = setting(
        5_000, unit="ms", minimum=10, maximum=3_600_000,
        doc="How often slot table and header of the current file are written, for readers of the "
        "files; they are written in any case when a file is full and at a stop.",
    )
    max_open_files: int = setting(
        256, unit="files", minimum=1, maximum=1 << 20,
        doc="Descriptors of index files that stay open for queries.",
    )
    tier_enabled: bool = setting(
        True, unit="",
        doc="Whether messages that the log has no more are looked for in the broker's tier.",
    )
    tier_timeout_ms: int = setting(
        15_000, unit="ms", minimum=10, maximum=600_000,
        doc="How long the tier service may take for an answer; a query ends with what the log has "
        "then, and tells so.",
    )
    scrub_bytes_per_second: int = setting(
        8 << 20, unit="bytes/s", minimum=0, maximum=1 << 40,
        doc="How fast full files are held against their checksums, at every start and once a day; "
        "what differs is built again from the log. 0: never.",
    )
    tick_interval_ms: int = setting(
        100, unit="ms", minimum=1, maximum=10_000,
        doc="How often the service looks at what is due, and at its own health.",
    )

    def faults(self) -> Iterable[str]:
        geometry = Geometry(
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
