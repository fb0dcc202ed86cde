"""Delay levels: the setting `messageDelayLevel`, and what a level makes of a tag code. Times of
delivery: what the properties TIMER_… say.

A delayed message is stored under the schedule topic, in queue level − 1; there the tag code of its
consume-queue unit is the time of its delivery. Spec 2.7.6, 13.1. One that waits for any other time
is stored under `rmq_sys_wheel_timer`, in queue 0.
"""

import re
from collections.abc import Mapping, Sequence

from stratamq.errors import InvalidRequestError
from stratamq.formats.javahash import tags_code
from stratamq.formats.properties import (
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
)
from stratamq.formats.topics import SCHEDULE_TOPIC

DEFAULT_DELAY_LEVELS_TEXT = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
FIRST_RETRY_LEVEL = 3
"""RocketMQ's: the delay before the second attempt; each attempt after it waits a level more."""

_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"(\d{1,9})([smhd])", re.ASCII)
_JAVA_INT = re.compile(r"[+-]?0*\d{1,10}")
_JAVA_LONG = re.compile(r"[+-]?0*\d{1,19}", re.ASCII)
ASKED_TIMES = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
"""The properties by which a producer asks for a time; of several the first counts, as in
RocketMQ."""
TIMER_PRECISION_MS = 1_000
"""RocketMQ's `timerPrecisionMs`: what TIMER_OUT_MS is cut to."""


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
    return _parsed(text, _JAVA_INT, 32)


def parse_java_long(text: str) -> int:
    """`Long.parseLong`; ValueError where it throws."""
    return _parsed(text, _JAVA_LONG, 64)


def _parsed(text: str, form: re.Pattern[str], bits: int) -> int:
    limit = 1 << bits - 1
    if not form.fullmatch(text) or not -limit <= (value := int(text)) < limit:
        raise ValueError(f"not a whole number of {bits} bits: {text[:40]!r}")
    return value


def asked_time(properties: Mapping[str, str], now_ms: int) -> int | None:
    """The time that a producer asks for; None: none. ValueError for what is no number."""
    name = next((one for one in ASKED_TIMES if one in properties), None)
    if name is None:
        return None
    try:
        value = parse_java_long(properties[name])
    except ValueError as error:
        raise ValueError(f"property {name}: {error}") from None
    if name == TIMER_DELIVER_MS:
        return value
    return now_ms + (value if name == TIMER_DELAY_MS else value * 1_000)


def timer_out_ms(deliver_ms: int) -> int:
    """TIMER_OUT_MS of a message: the last whole second before its time, as RocketMQ has it."""
    return (deliver_ms - 1) // TIMER_PRECISION_MS * TIMER_PRECISION_MS


def timer_due_ms(properties: Mapping[str, str]) -> int | None:
    """When a message of `rmq_sys_wheel_timer` is due. None: nothing says it.

    Of a delay, RocketMQ keeps TIMER_OUT_MS alone, which is up to a second early: a second later is
    never early.
    """
    try:
        out_ms = parse_java_long(properties.get(TIMER_OUT_MS, ""))
    except ValueError:
        out_ms = None
    try:
        deliver_ms = parse_java_long(properties.get(TIMER_DELIVER_MS, ""))
    except ValueError:
        return None if out_ms is None else out_ms + TIMER_PRECISION_MS
    if out_ms is None or timer_out_ms(deliver_ms) == out_ms:
        return deliver_ms
    return out_ms + TIMER_PRECISION_MS


def dispatch_tags_code(
    topic: str, tags: str | None, delay: str | None, store_timestamp_ms: int
) -> int:
    """The tag code of a message's consume-queue unit, by RocketMQ's own delay levels. ValueError
    when DELAY must be a number."""
    if topic == SCHEDULE_TOPIC and delay is not None:
        due_ms = deliver_timestamp(parse_java_int(delay), store_timestamp_ms)
        if due_ms is not None:
            return due_ms
    return tags_code(tags) if tags else 0
