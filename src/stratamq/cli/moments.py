"""Moments as people write them on a command line."""

from datetime import UTC, datetime

from stratamq.client import EARLIEST, LATEST, AtTime
from stratamq.errors import InvalidRequestError

_MILLISECONDS_FROM = 10**11
"""A number from here on is milliseconds since 1970 (from 1973 on), a smaller one seconds."""


def parse_moment(text: str) -> int:
    """Milliseconds since 1970, from `2013-01-31`, `2013-01-31T10:00:00+01:00` (without a zone:
    UTC), or a number of seconds or milliseconds. InvalidRequestError for anything else."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        number = int(text)
        return number if number >= _MILLISECONDS_FROM else number * 1000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidRequestError(
            f"{text!r} is no moment: 2013-01-31T10:00:00, or milliseconds since 1970"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def parse_start(
    text: str, *, option: str = "--offset", from_end: bool = False
) -> str | int | AtTime:
    """A place in every queue. `from_end`: -N is one as well, N messages before the end.
    InvalidRequestError for what is no place."""
    if text in (EARLIEST, LATEST):
        return text
    if text.startswith("@"):
        return AtTime(parse_moment(text[1:]))
    digits = text.removeprefix("-") if from_end else text
    if digits.isascii() and digits.isdigit():
        return int(text) if int(text) or digits == text else LATEST
    places = (
        "earliest, latest, a number, -N or @TIME"
        if from_end
        else ("earliest, latest, a number, or @TIME")
    )
    raise InvalidRequestError(f"{option} {text}: {places}")
