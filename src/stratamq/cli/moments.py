"""Moments and places in queues as people write them on a command line.

A time without a zone is local time, as for `datetime` in Python and for the client (decision 013).
"""

import re
from datetime import datetime

from stratamq.client import EARLIEST, LATEST, AtTime
from stratamq.errors import InvalidRequestError
from stratamq.files.clock import SystemClock
from stratamq.files.port import Clock

PLACES = "earliest|latest|N|-N|@TIME"
TIMES = "2013-01-31T10:00 (local time, or with Z or +01:00), -1h or -30m, or milliseconds"
"""What a TIME can be, for help texts."""

_MILLISECONDS_FROM = 10**11
"""A number from here on is milliseconds since 1970 (from 1973 on), a smaller one seconds."""
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN = re.compile(r"(?:[0-9]{1,9}[smhd])+")
_AMOUNT = re.compile(r"([0-9]+)([smhd])")


def parse_moment(text: str, clock: Clock | None = None) -> int:
    """Milliseconds since 1970, from `2013-01-31`, `2013-01-31T10:00:00+01:00` (without a zone:
    local time), `-1h30m` (so long ago: s, m, h, d), or a number of seconds or milliseconds.
    InvalidRequestError for anything else."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        number = int(text)
        return number if number >= _MILLISECONDS_FROM else number * 1000
    if text.startswith("-") and _SPAN.fullmatch(text[1:]):
        return max(0, (clock or SystemClock()).wall_ms() - parse_span(text[1:]))
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidRequestError(f"{text!r} is not a time: {TIMES}") from error


def parse_span(text: str) -> int:
    """Milliseconds, from `90s` or `1h30m`. InvalidRequestError for anything else."""
    if not _SPAN.fullmatch(text):
        raise InvalidRequestError(f"{text!r} is no length of time: 90s, 5m, 1h30m or 2d")
    return sum(int(number) * _UNITS_MS[unit] for number, unit in _AMOUNT.findall(text))


def parse_start(
    text: str, *, option: str = "--offset", clock: Clock | None = None
) -> str | int | AtTime:
    """A place in every queue; -N is N messages before its end. InvalidRequestError for what is no
    place."""
    if text in (EARLIEST, LATEST):
        return text
    if text.startswith("@"):
        return AtTime(parse_moment(text[1:], clock))
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit():
        number = int(digits)
        if number < 2**63:
            return number if digits == text else (-number or LATEST)
    raise InvalidRequestError(f"{option} {text}: earliest, latest, a number, -N or @TIME")
