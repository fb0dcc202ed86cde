"""A stream's reads of the tier, beside those of its other queues, within a budget of memory.

    begin(number) ──▶ waits for its turn ──▶ under way ──▶ answered ──▶ take(number)
                              ▲                  │
                              └──── a pause ◀────┘ the tier does not answer

What a stream holds does not depend on how many queues it has: those for which there is no room
wait, and are begun in the order in which they came, as answers are taken.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from stratamq.errors import UnavailableError
from stratamq_dispatcher.pull import PullAnswer

STREAM_BYTES = 16 << 20
"""Answers of one stream that have come and were not sent, and what is expected of those under
way."""
LARGEST_ANSWER_BYTES = 1 << 20
"""Larger ones cost as much processor time for each message."""
SMALLEST_ANSWER_BYTES = 65_536
FIRST_EXPECTED_BYTES = 4 << 20
"""The expected size of the first answer: a message of the largest size, by default."""
FETCHES_AT_ONCE = 16
"""The fetches of one stream: each may return more than was expected, at least one message of any
size."""
PAUSE_S = 1.0
"""Before a tier that did not answer is asked again."""

Work = Callable[[], Coroutine[Any, Any, PullAnswer]]


def answer_bytes(queues: int, asked: int = 0) -> int:
    """The limits of one answer, in a stream over so many queues, each of which may wait with one.
    `asked`: so much where the client names it, 0 where it does not."""
    if asked:
        return min(LARGEST_ANSWER_BYTES, asked)
    return max(SMALLEST_ANSWER_BYTES, min(LARGEST_ANSWER_BYTES, STREAM_BYTES // queues))


class TierFetches:
    """By the number of the cursor; cancelled at the end. Belongs to the event loop.

    `ended(number)` is called when there is an answer, or an error, or when the tier does not
    answer, which is asked again. An answer knows of no message that came behind it.

    Answers that were not taken have at most STREAM_BYTES, and what the last FETCHES_AT_ONCE have
    beyond what was expected of them: as much as the last answer had, at least half of what was
    expected before it, at least `most_bytes`. One fetch is always begun, whatever is expected. What
    was taken counts no more. Of an answer that is chosen from by tag up to twice as much is held.
    """

    def __init__(self, ended: Callable[[int], object], most_bytes: int) -> None:
        """`most_bytes`: of an answer of several messages."""
        self._ended = ended
        self._most_bytes = most_bytes
        self._expected = max(most_bytes, FIRST_EXPECTED_BYTES)
        self._waiting: OrderedDict[int, Work] = OrderedDict()
        self._under_way: dict[int, asyncio.Task[PullAnswer]] = {}
        self._pausing: dict[int, asyncio.TimerHandle] = {}
        self._answered: dict[int, asyncio.Task[PullAnswer]] = {}
        self._failed: dict[int, UnavailableError] = {}
        """Why the tier does not answer, by cursor; gone once it has."""
        self._held = 0
        """Bytes of what was answered."""

    def __enter__(self) -> "TierFetches":
        return self

    def __exit__(self, *_: object) -> None:
        cancelled = [*self._pausing.values(), *self._under_way.values()]
        self._under_way.clear()
        for one in cancelled:
            one.cancel()

    def has(self, number: int) -> bool:
        """Whether there is an answer, or an error, to be taken."""
        return number in self._answered

    def postpones(self, number: int) -> bool:
        """Whether a cursor whose queue grew has to wait for its answer."""
        return number in self._under_way or number in self._waiting or number in self._pausing

    def require_others(self, cursors: int) -> None:
        """UnavailableError when the tier does not answer for any of so many cursors that are left:
        a stream that can give nothing says so, and its reader decides how long to try."""
        if len(self._failed) >= cursors:
            raise next(iter(self._failed.values()))

    def begin(self, number: int, work: Work) -> None:
        """When it is its turn. Of a cursor that has neither an answer nor waits for one."""
        self._pausing.pop(number, None)
        self._waiting[number] = work
        self._begin_some()

    def take(self, number: int) -> PullAnswer | None:
        """The answer of one that has ended, or its error; None: there is none."""
        task = self._answered.pop(number, None)
        if task is None:
            return None
        answer = task.result()
        self._held -= answer.size
        self._begin_some()
        return answer

    def _begin_some(self) -> None:
        while self._waiting and self._has_room():
            number, work = self._waiting.popitem(last=False)
            task = self._under_way[number] = asyncio.ensure_future(work())
            task.add_done_callback(partial(self._done, number, work))

    def _has_room(self) -> bool:
        under_way = len(self._under_way)
        if not under_way and not self._answered:
            return True
        expected = self._expected * (under_way + 1)
        return under_way < FETCHES_AT_ONCE and self._held + expected <= STREAM_BYTES

    def _done(self, number: int, work: Work, task: "asyncio.Task[PullAnswer]") -> None:
        if self._under_way.pop(number, None) is None:
            return  # the stream has ended
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._failed.pop(number, None)
        if isinstance(error, UnavailableError):
            self._failed[number] = error
            later = asyncio.get_running_loop().call_later
            self._pausing[number] = later(PAUSE_S, self.begin, number, work)
        else:
            if error is None:
                size = task.result().size
                self._held += size
                self._expected = max(self._most_bytes, size, self._expected // 2)
            self._answered[number] = task
        self._ended(number)
        self._begin_some()
