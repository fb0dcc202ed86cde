"""What pulls have verified lately: the next consumer of a queue gets it without another check.

A watermark for each queue that is read, in memory only. The log's bytes are in the page cache then,
where nothing but the log changes them: whenever that may have cut or replaced some, everything is
forgotten. Nothing is believed for longer than `TRUSTED_S`, so that damage of disk or memory is
found by pulls as well as by the log's scrubber.
"""

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stratamq.files.port import Clock

TRUSTED_S = 60
"""Consumers of one queue that keep up are seconds apart. Damage stays unseen so long at most."""
MAX_QUEUES = 10_000
"""A stream reads so many at most. Of more queues those are kept that were read last."""


@dataclass(slots=True)
class _Span:
    """Queue offsets [begin, end), whose frames lie in the log at `first` to `last`; `until_ns`
    counts from the check of the first of them."""

    begin: int
    end: int
    first: int
    last: int
    until_ns: int

    def goes_on_with(self, other: "_Span") -> bool:
        """Whether there is no gap between them, and both are of one life of the queue: a topic
        that was deleted and made again begins at 0 once more, further on in the log."""
        if other.begin > self.end or other.end < self.begin:
            return False
        overlaps_on = other.begin < self.end, other.end > self.begin
        return overlaps_on == (other.first <= self.last, other.last >= self.first)


class VerifiedReads:
    """Belongs to the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._spans: OrderedDict[str, _Span] = OrderedDict()
        """By the queues' directories, the one read last at the end."""

    def count(
        self, directory: str, queue_offsets: NDArray[np.int64], physical: NDArray[np.int64]
    ) -> int:
        """How many of these units from the first on point at frames that were verified. The offsets
        ascend, and may have gaps; `physical`: where the frames lie."""
        span = self._current(directory)
        if span is None or not span.begin <= int(queue_offsets[0]) < span.end:
            return 0
        known = int(queue_offsets.searchsorted(span.end))
        is_same = span.first <= int(physical[0]) and int(physical[known - 1]) <= span.last
        return known if is_same else 0

    def add(
        self, directory: str, queue_offsets: NDArray[np.int64], physical: NDArray[np.int64]
    ) -> None:
        """The frames of all these are good. Only ranges are remembered, without a gap between
        them; of two apart the one further on in the log."""
        begin, end = int(queue_offsets[0]), int(queue_offsets[-1]) + 1
        if end - begin != len(queue_offsets):
            return
        until_ns = self._clock.monotonic_ns() + TRUSTED_S * 10**9
        new = _Span(begin, end, int(physical[0]), int(physical[-1]), until_ns)
        span = self._current(directory)
        if span is not None and span.goes_on_with(new):
            span.begin, span.end = min(begin, span.begin), max(end, span.end)
            span.first, span.last = min(new.first, span.first), max(new.last, span.last)
        elif span is None or new.last > span.last:
            self._spans[directory] = new
        self._spans.move_to_end(directory)
        if len(self._spans) > MAX_QUEUES:
            self._spans.popitem(last=False)

    def forget(self) -> None:
        """The log's bytes may be others now."""
        self._spans.clear()

    def _current(self, directory: str) -> _Span | None:
        span = self._spans.get(directory)
        if span is not None and self._clock.monotonic_ns() >= span.until_ns:
            del self._spans[directory]
            return None
        return span
