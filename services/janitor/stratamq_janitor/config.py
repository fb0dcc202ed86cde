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
        doc="Interval between checks.",
    )
    enabled: bool | None = setting(
        None,
        unit="",
        doc="Whether segments are deleted. Unset: yes in a store that StrataMQ created; in one "
        "that another program created (an adopted RocketMQ store) only after `stratamq "
        "janitor enable`.",
    )
    retention_ms: int = setting(
        72 * HOUR_MS,
        unit="ms",
        minimum=0,
        maximum=1 << 50,
        rocketmq="fileReservedTime",
        doc="Age of its newest message at which a segment expires.",
    )
    retention_by: str = setting(
        "STORE_TIME",
        unit="",
        choices=("STORE_TIME", "FILE_TIME"),
        doc="How age is determined: by store times in the log, or, as in RocketMQ, by the files' "
        "times, which a copy changes.",
    )
    retention_bytes: int = setting(
        0,
        unit="bytes",
        minimum=0,
        maximum=1 << 60,
        doc="Largest size of the log, whatever the age of its messages; 0: unlimited.",
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
        doc="Used share of the volume above which expired segments are deleted at any hour.",
    )
    disk_force_ratio: float = setting(
        0.85,
        unit="ratio",
        minimum=0.1,
        maximum=1.0,
        rocketmq="diskSpaceCleanForciblyRatio",
        doc="Used share of the volume above which segments are deleted whatever their age.",
    )
    max_segments_per_run: int = setting(
        10,
        unit="segments",
        minimum=1,
        maximum=10_000,
        rocketmq="deleteFileBatchMax",
        doc="Largest number of segments deleted in one check.",
    )
    hold: tuple[str, ...] = setting(
        (),
        unit="",
        doc="Conditions for the deletion of a segment, even from a full disk: `replicated` (every "
        "known slave has it), `consumed` (the groups of hold_groups have read it), `tiered`.",
    )
    hold_groups: tuple[str, ...] = setting(
        (),
        unit="groups",
        doc="Consumer groups that must have read a segment, for `consumed`.",
    )
    clock_tolerance_ms: int = setting(
        10 * 60_000,
        unit="ms",
        minimum=0,
        maximum=1 << 50,
        doc="A wall clock that moved ahead by more than this beyond the known elapsed time (by the "
        "machine's monotonic clock; after a restart of the machine, since the last check and the "
        "newest message) is not trusted.",
    )
    clock_grace_ms: int = setting(
        HOUR_MS,
        unit="ms",
        minimum=0,
        maximum=1 << 50,
        doc="Time after that in which nothing expires: an operator can correct the clock, or "
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
