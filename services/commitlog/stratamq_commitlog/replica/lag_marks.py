"""How far behind a log offset is, in messages and in time: from marks of the log's growth.

A mark says how many messages there were, and when the log ended there. Between two marks messages
are taken to be of one size. Marks begin with the start of the service: what is behind the first
one counts as older than it, so that both answers are lower bounds there.
"""

import bisect
from dataclasses import dataclass

MAX_MARKS = 4_096
"""One mark a second for about the last hour; older ones are thinned out progressively."""


@dataclass(frozen=True, slots=True)
class LagMark:
    """`messages` of the log below `end` since the first mark."""

    end: int
    messages: int
    at_ns: int


class LagMarks:
    """`grown` in the order of the log. Not thread-safe."""

    def __init__(self, most: int = MAX_MARKS) -> None:
        self._most = most
        self._marks: list[LagMark] = []

    def __len__(self) -> int:
        return len(self._marks)

    def grown(self, end: int, messages: int, now_ns: int) -> None:
        """The log ends here, with so many messages appended since the start. After a cut the end is
        a lower one: marks above it go."""
        marks = self._marks
        while marks and marks[-1].end > end:
            marks.pop()
        if marks and marks[-1].end == end:
            return
        marks.append(LagMark(end, messages, now_ns))
        if len(marks) > self._most:
            half = len(marks) // 2
            self._marks = marks[:half:2] + marks[half:]

    def lag_messages(self, offset: int, limit: int) -> int:
        """Messages in [offset, limit)."""
        return max(0, round(self._messages_at(limit) - self._messages_at(offset)))

    def lag_ns(self, offset: int, limit: int, now_ns: int) -> int:
        """For how long there has been something at `offset`; 0: there is nothing below `limit`."""
        if offset >= limit or not self._marks:
            return 0
        at = bisect.bisect_right(self._marks, offset, key=lambda mark: mark.end)
        return now_ns - self._marks[min(at, len(self._marks) - 1)].at_ns

    def _messages_at(self, offset: int) -> float:
        marks = self._marks
        at = bisect.bisect_right(marks, offset, key=lambda mark: mark.end)
        if at == 0:
            return marks[0].messages if marks else 0
        if at == len(marks):
            return marks[-1].messages
        before, behind = marks[at - 1], marks[at]
        part = (offset - before.end) / (behind.end - before.end)
        return before.messages + part * (behind.messages - before.messages)
