"""The queue offset at a point of time, exact, by bisection over the store times in the log.

Store times never go back within a log of ours, nor within one queue of RocketMQ's but for a clock
that was set; there the answer is a place where the times pass the one asked for. A message whose
frame the log has let go of meanwhile counts as older than everything.
"""

import enum

from stratamq.errors import OffsetOutOfRangeError
from stratamq_dispatcher.consume_queue import UnitSource, unit_at
from stratamq_dispatcher.frame_reads import LogBytes, store_timestamp
from stratamq_dispatcher.queue_files import OpenFiles


class Boundary(enum.IntEnum):
    """Which offset is meant; numbers of the wire."""

    LOWER = 1
    UPPER = 2
    NEAREST = 3


def offset_at(
    source: UnitSource,
    minimum: int,
    open_files: OpenFiles,
    log: LogBytes,
    timestamp_ms: int,
    boundary: Boundary,
) -> int:
    """LOWER: the first message not before the time, the maximum when there is none. UPPER: the last
    not after it, the minimum when there is none. NEAREST: of two equally near the earlier."""
    times = _Times(source, open_files, log)
    end = source.end
    if boundary is Boundary.LOWER or minimum == end:
        return times.first_not_before(timestamp_ms, minimum, end)
    if boundary is Boundary.UPPER:
        return max(minimum, times.first_not_before(timestamp_ms + 1, minimum, end) - 1)
    right = times.first_not_before(timestamp_ms, minimum, end)
    if right == minimum:
        return right
    left_time = times.at(right - 1)
    if right < end and times.at(right) - timestamp_ms < timestamp_ms - left_time:
        return right
    return times.first_not_before(left_time, minimum, right)


class _Times:
    """Store times by queue index."""

    def __init__(self, source: UnitSource, open_files: OpenFiles, log: LogBytes) -> None:
        self._source = source
        self._open_files = open_files
        self._log = log

    def at(self, index: int) -> int:
        unit = unit_at(self._source, self._open_files, index)
        try:
            return store_timestamp(self._log, unit.physical_offset)
        except OffsetOutOfRangeError:
            return -1

    def first_not_before(self, timestamp_ms: int, low: int, high: int) -> int:
        while low < high:
            middle = (low + high) // 2
            if self.at(middle) < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return low
