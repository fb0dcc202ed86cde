"""The settings of a simulated broker: everything small, so that everything happens often."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stratamq_commitlog.config import CommitLogConfig
from stratamq_dispatcher.engine import EngineSettings as DispatcherSettings
from stratamq_index.engine import EngineSettings as IndexSettings

from stratamq_torture.simulated.disk import PLENTY

SYNC, ASYNC = "SYNC_FLUSH", "ASYNC_FLUSH"
SEGMENT_SIZES = (2048, 4096, 6000, 8192, 20_000)
"""None of them much larger than a page, and some no multiple of one."""


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What the three rooms and their disk get."""

    log: CommitLogConfig
    dispatcher: DispatcherSettings
    index: IndexSettings
    capacity_bytes: int = PLENTY


def standard(
    *,
    flush: str = SYNC,
    segment_bytes: int = 4096,
    property_checksum: bool = False,
    **log: object,
) -> BrokerSettings:
    """One broker of middling sizes."""
    values: dict[str, object] = {
        "root": Path("simulated"),
        "segment_bytes": segment_bytes,
        "flush_disk_type": flush,
        "property_checksum": property_checksum,
        "flush_interval_ms": 500,
        "snapshot_interval_ms": 2000,
        "max_message_bytes": 1500,
        "max_batch_bytes": 1900,
        "pass_bytes": 4096,
        "pass_messages": 16,
        "default_topic_queues": 2,
        "reserve_bytes": 4096,
        "follower_stop_timeout_ms": 20_000,
        "release_timeout_ms": 5_000,
    }
    return BrokerSettings(
        log=CommitLogConfig(**(values | log)),  # type: ignore[arg-type]
        dispatcher=DispatcherSettings(
            queue_file_bytes=160,
            flush_interval_ms=1000,
            flush_bytes=4000,
            flush_window_bytes=80,
            max_open_files=8,
            step_messages=4,
            maximum_maps=4,
        ),
        index=IndexSettings(index_slots=7, index_items=12, max_open_files=4),
    )


def chosen(chance: random.Random, flush: Sequence[str], checksum: float) -> BrokerSettings:
    """A broker of a seed's choice; `checksum` is how likely it writes property checksums."""
    settings = standard(
        flush=chance.choice(flush),
        segment_bytes=chance.choice(SEGMENT_SIZES),
        property_checksum=chance.random() < checksum,
        flush_interval_ms=chance.choice((50, 500, 5_000)),
        snapshot_interval_ms=chance.choice((100, 2_000, 20_000)),
        pass_messages=chance.choice((1, 4, 64)),
    )
    return replace(
        settings,
        dispatcher=replace(
            settings.dispatcher,
            queue_file_bytes=chance.choice((60, 160, 2000)),
            flush_interval_ms=chance.choice((100, 1_000)),
            flush_window_bytes=chance.choice((20, 80, 4000)),
            step_messages=chance.choice((1, 4, 64)),
        ),
        index=replace(
            settings.index,
            index_slots=chance.choice((3, 7)),
            index_items=chance.choice((4, 12, 60)),
            sync_interval_ms=chance.choice((100, 1_000)),
            slot_interval_ms=chance.choice((100, 5_000)),
        ),
    )
