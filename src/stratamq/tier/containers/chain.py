"""A chain of segments reads as one file: any range of it, over any number of segments.

A segment has its logical offset and the places of its bytes in the storage: one file, or parts that
were uploaded one after the other. Chains are values; a writer makes a new one for each commit.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stratamq.errors import OffsetOutOfRangeError
from stratamq.tier.driver.calls import Block, Procedure, Read, Together, ask


@dataclass(frozen=True, slots=True)
class Extent:
    """`size` bytes of a segment from `start` on: in the object `path`, from its byte `at` on."""

    start: int
    size: int
    path: str
    at: int = 0

    @property
    def end(self) -> int:
        return self.start + self.size


@dataclass(frozen=True, slots=True)
class TierSegment:
    """`base`: the logical offset of its first byte. `begin_ms`, `end_ms`: its store times."""

    base: int
    size: int
    begin_ms: int
    end_ms: int
    extents: tuple[Extent, ...]

    @property
    def end(self) -> int:
        return self.base + self.size

    def reads(self, start: int, end: int) -> Iterator[Read]:
        """The calls for logical offsets [start, end), which are in the segment."""
        first, last = start - self.base, end - self.base
        for extent in self.extents:
            low, high = max(first, extent.start), min(last, extent.end)
            if low < high:
                yield Read(extent.path, extent.at + low - extent.start, high - low)


class Chain:
    """Segments by base, none empty. Between two there may be a hole; none overlap."""

    def __init__(self, segments: Sequence[TierSegment]) -> None:
        self.segments = tuple(
            sorted((part for part in segments if part.size), key=lambda part: part.base)
        )
        self._bases = [segment.base for segment in self.segments]

    def __bool__(self) -> bool:
        return bool(self.segments)

    @property
    def minimum(self) -> int:
        """The first offset; 0 when there is none."""
        return self.segments[0].base if self.segments else 0

    @property
    def end(self) -> int:
        """One past the last offset; 0 when there is none."""
        return self.segments[-1].end if self.segments else 0

    def covers(self, offset: int, length: int) -> bool:
        """Whether every byte of the range is there."""
        return self._covered_to(offset, offset + length) == offset + length

    def calls(self, offset: int, length: int) -> list[Read]:
        """Reads whose results, joined, are the range. OffsetOutOfRangeError unless all of it is
        there."""
        end = offset + length
        reached = self._covered_to(offset, end)
        if reached < end:
            raise OffsetOutOfRangeError(
                f"the tier has [{self.minimum}, {self.end}) here, and of [{offset}, {end}) the "
                f"bytes below {reached}: retention may have deleted them",
                self.minimum,
                self.end,
            )
        return [
            read
            for segment in self._between(offset, end)
            for read in segment.reads(max(offset, segment.base), min(end, segment.end))
        ]

    def read(self, offset: int, length: int) -> Procedure[Block]:
        """The bytes of the range. OffsetOutOfRangeError unless all of it is there."""
        calls = self.calls(offset, length)
        if len(calls) == 1:
            return (yield from ask(calls[0]))
        return b"".join((yield from ask(Together(calls))))

    def _between(self, start: int, end: int) -> Iterator[TierSegment]:
        number = max(0, bisect_right(self._bases, start) - 1)
        while number < len(self.segments) and self.segments[number].base < end:
            if self.segments[number].end > start:
                yield self.segments[number]
            number += 1

    def _covered_to(self, start: int, end: int) -> int:
        """How far [start, end) is there without a hole."""
        reached = start
        for segment in self._between(start, end):
            if segment.base > reached:
                break
            reached = min(end, segment.end)
        return reached
