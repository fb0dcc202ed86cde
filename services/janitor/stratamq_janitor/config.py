"""Settings of the janitor service; `docs/configuration.md` is made from them."""

from collections.abc import Iterable
from dataclasses import dataclass

from stratamq.service.config import FollowerConfig, setting
from stratamq_janitor.policy import CONSUMED, HOLDS

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class JanitorConfig(FollowerConfig):
    """How long one broker's log is kept."""

    interval_ms: int = setting(
        10_000,
        unit="ms",
        minimum=10,
        maximum=HOUR_MS,
        rocketmq="cleanResourceInterval",
        doc="How often the janitor looks.",
    )
    enabled: bool | None = setting(
        None,
        unit="",
        doc="Whether segments are deleted at all. Unset: in a store that StrataMQ made itself, and "
        "in one that another program made (an adopted RocketMQ store) after `stratamq janitor "
        "enable`.",
    )
    retention_ms: int = setting(
        72 * HOUR_MS,
        unit="ms",
        minimum=0,
        maximum=1 << 50,
        rocketmq="fileReservedTime",
        doc="A segment whose newest message is older than this has expired.",
    )
    retention_by: str = setting(
        "STORE_TIME",
        unit="",
        choices=("STORE_TIME", "FILE_TIME"),
        doc="Age by the store times in the log, or as RocketMQ by the files' times, which a copy "
        "changes.",
    )
    retention_bytes: int = setting(
        0,
        unit="bytes",
        minimum=0,
        maximum=1 << 60,
        doc="The log is kept no larger than this, however young it is; 0: as large as it gets.",
    )
    delete_when: tuple[str, ...] = setting(
        ("04",),
        unit="hours",
        rocketmq="deleteWhen",
        doc="Local hours (0 to 23) in which expired segments are deleted; empty: only for lack of "
        "space, or by hand.",
    )
    disk_clean_ratio: float = setting(
        0.75,
        unit="ratio",
        minimum=0.1,
        maximum=1.0,
        rocketmq="diskMaxUsedSpaceRatio",
        doc="With more of the volume used expired segments are deleted at any hour.",
    )
    disk_force_ratio: float = setting(
        0.85,
        unit="ratio",
        minimum=0.1,
        maximum=1.0,
        rocketmq="diskSpaceCleanForciblyRatio",
        doc="With more of the volume used segments are deleted however young they are.",
    )
    max_segments_per_run: int = setting(
        10,
        unit="segments",
        minimum=1,
        maximum=10_000,
        rocketmq="deleteFileBatchMax",
        doc="At most so many segments are deleted at a look.",
    )
    hold: tuple[str, ...] = setting(
        (),
        unit="",
        doc="What a segment must be before it may go, even from a full disk: `replicated` (every "
        "known slave has it), `consumed` (the groups of hold_groups have), `tiered`.",
    )
    hold_groups: tuple[str, ...] = setting(
        (),
        unit="groups",
        doc="Consumer groups that must not lose anything, for `consumed`.",
    )
    clock_tolerance_ms: int = setting(
        10 * 60_000,
        unit="ms",
        minimum=0,
        maximum=1 << 50,
        doc="A wall clock that went forward by more than this beyond the known elapsed time (the "
        "machine's monotonic clock; after a start of the machine the last look and the newest "
        "message) is not trusted.",
    )
    clock_grace_ms: int = setting(
        HOUR_MS,
        unit="ms",
        minimum=0,
        maximum=1 << 50,
        doc="For so long after that nothing expires: an operator may put the clock right, or "
        "confirm it (`stratamq janitor run --trust-clock`).",
    )

    def faults(self) -> Iterable[str]:
        for hour in self.delete_when:
            if not hour.isdigit() or int(hour) > 23:
                yield f"delete_when: {hour!r} is no hour from 0 to 23"
        for hold in self.hold:
            if hold not in HOLDS:
                yield f"hold: {hold!r} is none of {', '.join(HOLDS)}"
        if CONSUMED in self.hold and not self.hold_groups:
            yield "hold: `consumed` needs hold_groups"
        if self.disk_clean_ratio > self.disk_force_ratio:
            yield "disk_clean_ratio is above disk_force_ratio"
