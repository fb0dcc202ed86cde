"""The names of store files.

    commitlog/, consumequeue/…/    20 decimal digits: the offset of the file's first byte
    index/                         yyyyMMddHHmmssSSS, a time

RocketMQ names index files by its local clock; here they carry the UTC store time of their first
message, so that a rebuild gives the same names. Only their order means anything. Spec 2.1, 7.4.
"""

import re
from datetime import UTC, datetime, timedelta

from stratamq.errors import InvalidRequestError
from stratamq.formats.numbers import Offset

OFFSET_NAME_DIGITS = 20

_OFFSET_NAME = re.compile(r"\d{20}", re.ASCII)
_INDEX_NAME = re.compile(r"(\d{14})(\d{3})", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_MS = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


def offset_name(offset: Offset | int) -> str:
    if not 0 <= offset < 10**OFFSET_NAME_DIGITS:
        raise InvalidRequestError(f"no file can begin at offset {offset}")
    return f"{offset:020d}"


def parse_offset_name(name: str) -> Offset | None:
    """None when `name` is not the name of such a file."""
    return Offset(int(name)) if _OFFSET_NAME.fullmatch(name) else None


def index_name(timestamp_ms: int) -> str:
    """Times before 1970 and after the year 9999 are moved to the nearest that has a name."""
    moment = _EPOCH + timedelta(milliseconds=min(max(timestamp_ms, 0), _MAX_MS))
    return moment.strftime("%Y%m%d%H%M%S") + f"{moment.microsecond // 1000:03d}"


def parse_index_name(name: str) -> int | None:
    """The time in ms (read as UTC), or None when `name` is not the name of an index file."""
    match = _INDEX_NAME.fullmatch(name)
    if match is None:
        return None
    try:
        moment = datetime.strptime(match[1], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return (moment - _EPOCH) // timedelta(milliseconds=1) + int(match[2])


def next_index_name(timestamp_ms: int, last_name: str | None) -> str:
    """The name for `timestamp_ms`, or the first one after it that is greater than `last_name`."""
    if last_name is not None:
        last_ms = parse_index_name(last_name)
        if last_ms is not None:
            timestamp_ms = max(timestamp_ms, last_ms + 1)
    return index_name(timestamp_ms)
