"""Offsets of a queue and what holds each: runs of consecutive offsets with the same value.

    [0, 7) held by A    [7, 9) None (finished)    [9, 12) held by B

Memory and time go by runs, not by offsets: a million messages that were handed out in order and
acknowledged in order are one run.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Runs(Generic[Value]):
    """Covers [`first`, `end`) without a gap; each offset is in exactly one run, and neighbours have
    different values. `first` == `end`: empty."""

    def __init__(self, first: int) -> None:
        self._starts: list[int] = []
        self._values: list[Value] = []
        self.first = first
        self.end = first

    def __len__(self) -> int:
        """The number of runs."""
        return len(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int, Value]]:
        """(start, end, value) of each run, in order."""
        for number, (start, value) in enumerate(zip(self._starts, self._values, strict=True)):
            yield start, self._end_of(number), value

    def copy(self) -> "Runs[Value]":
        other: Runs[Value] = Runs(self.first)
        other._starts, other._values, other.end = self._starts[:], self._values[:], self.end
        return other

    def at(self, offset: int) -> Value:
        """What holds `offset`. IndexError outside of [`first`, `end`)."""
        if not self.first <= offset < self.end:
            raise IndexError(f"offset {offset} outside of [{self.first}, {self.end})")
        return self._values[bisect_right(self._starts, offset) - 1]

    def within(self, start: int, end: int) -> Iterator[tuple[int, int, Value]]:
        """The runs that [`start`, `end`) has a part in, cut to it."""
        number = max(0, bisect_right(self._starts, start) - 1)
        while number < len(self._starts) and self._starts[number] < end:
            a, b = max(start, self._starts[number]), min(end, self._end_of(number))
            if a < b:
                yield a, b, self._values[number]
            number += 1

    def put(self, start: int, end: int, value: Value) -> None:
        """Give [`start`, `end`) a value. It lies within the runs, or begins where they end."""
        assert self.first <= start < end and start <= self.end, (self.first, start, end, self.end)
        low = bisect_right(self._starts, start) - 1 if start < self.end else len(self._starts)
        high = bisect_right(self._starts, end - 1) - 1
        starts, values = [start], [value]
        if low < len(self._starts) and self._starts[low] < start:
            starts.insert(0, self._starts[low])
            values.insert(0, self._values[low])
        if high >= low and end < self._end_of(high):
            starts.append(end)
            values.append(self._values[high])
        self.end = max(self.end, end)
        # The neighbours take part, so that equal ones become one run.
        if low > 0:
            low -= 1
            starts.insert(0, self._starts[low])
            values.insert(0, self._values[low])
        if high + 1 < len(self._starts) and high + 1 > low:
            high += 1
            starts.append(self._starts[high])
            values.append(self._values[high])
        kept = [
            number
            for number in range(len(starts))
            if number == 0 or values[number] != values[number - 1]
        ]
        self._starts[low : high + 1] = [starts[number] for number in kept]
        self._values[low : high + 1] = [values[number] for number in kept]

    def drop_below(self, offset: int) -> None:
        """Forget everything below `offset`, which is at most `end`."""
        assert offset <= self.end
        if offset <= self.first:
            return
        number = bisect_right(self._starts, offset) - 1
        if offset == self.end:
            number = len(self._starts)
        del self._starts[:number], self._values[:number]
        if self._starts:
            self._starts[0] = offset
        self.first = offset

    def _end_of(self, number: int) -> int:
        return self._starts[number + 1] if number + 1 < len(self._starts) else self.end
