"""Which alerts would fire now, by the services' metrics, without a Prometheus.

`SIGNS` has, for each rule of deploy/monitoring/alerts.yml that one reading can decide, its
conditions: any of them makes it fire. Rules about the past, and the time for which a condition must
hold, are Prometheus's. The sentences are the rules' own: `alarms.json`, made by `make docs`.
"""

import json
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SIGNS: Mapping[str, tuple[str, ...]] = {
    "StrataMQFlushFailed": ("commitlog_flush_failed == 1",),
    "StrataMQDiskFull": ("commitlog_disk_full == 1",),
    "StrataMQDamage": ("commitlog_damaged_stretches > 0", "index_damaged_files > 0"),
    "StrataMQFollowerStopped": ("dispatcher_stopped == 1", "index_stopped == 1"),
    "StrataMQFollowerBehind": ("dispatcher_lag_bytes > 67108864", "index_lag_bytes > 67108864"),
    "StrataMQSlaveBehind": ("ha_slave_lag_bytes > 67108864",),
    "StrataMQSlaveStalled": ("ha_slaves_standing_still > 0", "ha_stands_still == 1"),
    "StrataMQDeliveryLate": ("delivery_overdue_seconds > 60",),
    "StrataMQDeadLettersOwed": ("delivery_dead_letters_owed > 0",),
    "StrataMQJanitorAlarm": ("janitor_alarm == 1",),
    "StrataMQRetentionOff": ("janitor_enabled == 0",),
    "StrataMQTierFails": ("tier_failing_queues > 0", "tier_lag_seconds > 1800"),
    "StrataMQTierPutBack": ("tier_lost_messages > 0",),
    "StrataMQClockDoubted": ("commitlog_clock_ahead_seconds > 0",),
    "StrataMQElectionStoreGone": ("agent_store_answers == 0",),
}
_COMPARE = {"==": operator.eq, ">": operator.gt}


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alert that would fire; the sentences are those of docs/alarms.md."""

    name: str
    severity: str
    description: str
    action: str


def watched_metrics() -> dict[str, tuple[str, ...]]:
    """The metrics of `SIGNS`, by the service that has them."""
    found: dict[str, set[str]] = {}
    for signs in SIGNS.values():
        for name in (sign.split()[0] for sign in signs):
            found.setdefault(name.partition("_")[0], set()).add(name)
    return {room: tuple(sorted(names)) for room, names in found.items()}


def firing(metrics: Mapping[str, float]) -> list[Alarm]:
    """By the newest reading; a metric that is not there decides nothing."""
    values: dict[str, list[float]] = {}
    for name, value in metrics.items():
        values.setdefault(name.partition("{")[0], []).append(value)
    return [
        Alarm(name, *_sentences()[name])
        for name, signs in SIGNS.items()
        if any(_holds(sign, values) for sign in signs)
    ]


def _holds(sign: str, values: Mapping[str, list[float]]) -> bool:
    name, compare, limit = sign.split()
    return any(_COMPARE[compare](value, float(limit)) for value in values.get(name, ()))


@cache
def _sentences() -> dict[str, tuple[str, str, str]]:
    text = Path(__file__).with_name("alarms.json").read_text(encoding="utf-8")
    return {
        name: (one["severity"], one["description"], one["action"])
        for name, one in json.loads(text).items()
    }
