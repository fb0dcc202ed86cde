"""Delay levels: the setting `messageDelayLevel`, and what a level makes of a tag code.

A delayed message is stored under the schedule topic, in queue level − 1; there the tag code of its
consume-queue unit is the time of its delivery. Spec 2.7.6, 13.1.
"""

import re
from collections.abc import Sequence

from stratamq.errors import InvalidRequestError
from stratamq.formats.javahash import tags_code
from stratamq.formats.numbers import INT32_MAX, INT32_MIN
from stratamq.formats.topics import SCHEDULE_TOPIC

DEFAULT_DELAY_LEVELS_TEXT = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"(\d{1,9})([smhd])", re.ASCII)
_JAVA_INT = re.compile(r"[+-]?0*\d{1,10}")


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Delays in ms; level 1 is the first. InvalidRequestError names the bad token."""
    levels = []
    for token in text.split(" "):
        match = _LEVEL.fullmatch(token)
        if match is None:
            raise InvalidRequestError(
                f"delay level {token!r}: expected a number and one of s, m, h, d"
            )
        levels.append(int(match[1]) * _UNIT_MS[match[2]])
    return tuple(levels)


DEFAULT_DELAY_LEVELS_MS = parse_delay_levels(DEFAULT_DELAY_LEVELS_TEXT)


def clamp_level(level: int, levels_ms: Sequence[int] = DEFAULT_DELAY_LEVELS_MS) -> int:
    """At most the highest level there is; 0 and less mean not delayed."""
    return min(level, len(levels_ms))


def deliver_timestamp(
    level: int, store_timestamp_ms: int, levels_ms: Sequence[int] = DEFAULT_DELAY_LEVELS_MS
) -> int | None:
    """When a message of `level` is due, or None when that level means no delay."""
    level = clamp_level(level, levels_ms)
    return store_timestamp_ms + levels_ms[level - 1] if level > 0 else None


def parse_java_int(text: str) -> int:
    """`Integer.parseInt`; ValueError where it throws."""
    if not _JAVA_INT.fullmatch(text):
        raise ValueError(f"not an int: {text[:40]!r}")
    value = int(text)
    if not INT32_MIN <= value <= INT32_MAX:
        raise ValueError(f"not a 32-bit int: {text[:40]!r}")
    return value


def dispatch_tags_code(
    topic: str,
    tags: str | None,
    delay: str | None,
    store_timestamp_ms: int,
    levels_ms: Sequence[int] = DEFAULT_DELAY_LEVELS_MS,
) -> int:
    """The tag code of a message's consume-queue unit. ValueError when DELAY must be a number."""
    if topic == SCHEDULE_TOPIC and delay is not None:
        due_ms = deliver_timestamp(parse_java_int(delay), store_timestamp_ms, levels_ms)
        if due_ms is not None:
            return due_ms
    return tags_code(tags) if tags else 0
