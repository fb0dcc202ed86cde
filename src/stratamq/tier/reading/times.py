"""The queue offset at a point of time, within what is there.

Store times never go back within a queue. Between known points (`TimePoint`: of parts, of segments)
the search reads all heads at once where they are near each other, and bisects where they are not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stratamq.formats.queue_units import UnitArray
from stratamq.tier.containers.queue import TierQueue, spans
from stratamq.tier.driver.calls import Procedure
from stratamq.tier.reading.pull import read_records
from stratamq.tier.reading.records import (
    STORE_TIME_BYTES,
    queue_offset_of,
    store_time_of,
)

AT_ONCE_MESSAGES = 4096
AT_ONCE_BYTES = 8 << 20
_PROBE_UNITS = 8


@dataclass(frozen=True, slots=True)
class TimePoint:
    """The message at queue offset `offset` was stored at `time_ms`."""

    offset: int
    time_ms: int


def first_not_before(
    queue: TierQueue, time_ms: int, points: Sequence[TimePoint] = ()
) -> Procedure[int]:
    """The first offset whose message was not stored before `time_ms`; the end when there is none.

    `points`: by offset, of this queue.
    """
    low, high = queue.minimum, queue.end
    for point in points:
        if low <= point.offset < high:
            if point.time_ms < time_ms:
                low = point.offset + 1
            else:
                high = point.offset
    for start, end in queue.holes:
        if low <= start < high:
            time = yield from _time_from(queue, end, high)
            if time is not None and time < time_ms:
                low = end
            else:
                high = start
    if queue.is_lost(low):
        return low
    low = queue.behind_hole(low)
    while high - low > AT_ONCE_MESSAGES:
        middle = (low + high) // 2
        time = yield from _time_from(queue, middle, high)
        if time is not None and time < time_ms:
            low = middle + 1
        else:
            high = middle
    if low >= high:
        return low
    units = yield from queue.read_units(low, high - low)
    return (yield from _within(queue, units, low, time_ms))


def _within(queue: TierQueue, units: UnitArray, low: int, time_ms: int) -> Procedure[int]:
    """The same among the messages of consecutive units."""
    while len(units) and spans(units, AT_ONCE_BYTES) < len(units):
        middle = len(units) // 2
        time = yield from _first_time(queue, units[middle:], low + middle)
        if time is not None and time < time_ms:
            low += middle + 1
            units = units[middle + 1 :]
        else:
            units = units[:middle]
    if not len(units):
        return low
    messages = yield from read_records(queue, units, low)
    later = (found.offset for found in messages if store_time_of(found.record) >= time_ms)
    return next(later, low + len(units))


def _time_from(queue: TierQueue, offset: int, end: int) -> Procedure[int | None]:
    """The store time of the first message in [offset, end) that can be read; None: none can."""
    while offset < end:
        count = queue.until_hole(offset, min(_PROBE_UNITS, end - offset))
        units = yield from queue.read_units(offset, count)
        time = yield from _first_time(queue, units, offset)
        if time is not None:
            return time
        offset = queue.behind_hole(offset + count)
    return None


def _first_time(queue: TierQueue, units: UnitArray, offset: int) -> Procedure[int | None]:
    for number in range(len(units)):
        place, size = int(units["physical_offset"][number]), int(units["size"][number])
        length = min(size, STORE_TIME_BYTES)
        if length < STORE_TIME_BYTES or not queue.records.covers(place, length):
            continue
        head = yield from queue.records.read(place, length)
        if queue_offset_of(head) == offset + number:
            return store_time_of(head)
    return None


def offset_by_time(
    queue: TierQueue, time_ms: int, upper: bool, points: Sequence[TimePoint] = ()
) -> Procedure[int]:
    """Like RocketMQ's tier: the first message of that time, or the last (`upper`); without one of
    exactly that time the first later one, or the end. Spec tier 4.5."""
    first = yield from first_not_before(queue, time_ms, points)
    if not upper:
        return first
    later = yield from first_not_before(queue, time_ms + 1, points)
    return later - 1 if later > first else first
