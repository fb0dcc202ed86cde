"""What Prometheus sees of the janitor. Gauges are brought up to date after each look."""

import math

from stratamq.service.metrics import Totals, counter, gauge
from stratamq_janitor.cleaner import Cleaner

_DELETES = "What does retention delete?"
_LOOKS = "Does the janitor run its checks?"
_HOLDS = "What keeps segments from being deleted?"
_ALARM = "Must an operator act?"
_DISK = "How full is the volume, as the retention counts?"
_AGE = "How far back do messages reach?"

DELETED = counter(
    "janitor_deleted_segments", "Deleted segments, by reason.", ["reason"], asks=_DELETES
)
FREED = counter("janitor_freed_bytes", "Bytes of deleted segments.", asks=_DELETES)
LOOKS = counter("janitor_looks", "Checks of the log and the volume.", asks=_LOOKS)
FAILED = counter("janitor_failed_looks", "Failed checks: a service did not respond.", asks=_LOOKS)
HELD = gauge(
    "janitor_held_segments",
    "1 while a segment that would be deleted is held back.",
    ["by"],
    asks=_HOLDS,
)
ALARM = gauge(
    "janitor_alarm", "1 while an operator must act; the status shows the reason.", asks=_ALARM
)
ENABLED = gauge(
    "janitor_enabled",
    "1 while segments are deleted by the retention rule; otherwise the status shows why not.",
    asks=_HOLDS,
)
DISK_USED = gauge(
    "janitor_disk_used_ratio", "Used fraction of the volume, as the policy computes it.", asks=_DISK
)
OLDEST_AGE = gauge(
    "janitor_oldest_segment_age_seconds",
    "Age of the newest message of the oldest segment.",
    asks=_AGE,
)


class Observer:
    """Carries the cleaner's numbers into the registry."""

    def __init__(self, cleaner: Cleaner) -> None:
        ENABLED.set(math.nan)  # not known before the first look, for which the log is open
        self._cleaner = cleaner
        self._totals = Totals()
        self._holds: set[str] = set()

    def observe(self) -> None:
        cleaner = self._cleaner
        for reason, total in cleaner.deleted_files.items():
            self._totals.set(DELETED.labels(reason), total)
        self._totals.set(FREED, cleaner.freed_bytes)
        look = cleaner.last
        if look is None:
            return
        ENABLED.set(not cleaner.disabled)
        held = {one.by for one in look.decision.held}
        for by in held | self._holds:
            HELD.labels(by).set(by in held)
        self._holds |= held
        ALARM.set(bool(look.decision.alarm))
        DISK_USED.set(look.facts.disk_used_ratio)
        newest_ms = look.facts.segments[0].newest_ms if look.facts.segments else None
        if newest_ms is not None:
            OLDEST_AGE.set(max(0, look.at_ms - newest_ms) / 1000)
