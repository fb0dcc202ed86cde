"""A stream's reads of the tier, beside those of its other queues."""

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

from stratamq_dispatcher.pull import PullAnswer

STREAM_BYTES = 16 << 20
LARGEST_ANSWER_BYTES = 1 << 20
"""Larger ones cost as much processor time for each message."""
SMALLEST_ANSWER_BYTES = 65_536


def answer_bytes(queues: int) -> int:
    """Of one answer, in a stream over so many queues: each of them may wait with one."""
    return max(SMALLEST_ANSWER_BYTES, min(LARGEST_ANSWER_BYTES, STREAM_BYTES // queues))


class TierFetches:
    """By the number of the cursor; cancelled at the end. Belongs to the event loop.

    `ended(number)` is called when there is an answer, or an error; once more behind it, if the
    queue grew meanwhile: the answer may not know.
    """

    def __init__(self, ended: Callable[[int], object]) -> None:
        self._ended = ended
        self._tasks: dict[int, asyncio.Task[PullAnswer]] = {}
        self._grown: set[int] = set()

    def __enter__(self) -> "TierFetches":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._tasks.values():
            task.cancel()

    def has(self, number: int) -> bool:
        return number in self._tasks

    def postpones(self, number: int) -> bool:
        """Whether a cursor whose queue grew has to wait for its answer."""
        task = self._tasks.get(number)
        if task is None or task.done():
            return False
        self._grown.add(number)
        return True

    def begin(self, number: int, work: Coroutine[Any, Any, PullAnswer]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks[number] = task

        def done(task: "asyncio.Task[PullAnswer]") -> None:
            if not task.cancelled():
                self._ended(number)

        task.add_done_callback(done)

    def take(self, number: int) -> PullAnswer | None:
        """The answer of one that has ended, or its error; None: there is none."""
        task = self._tasks.pop(number, None)
        if number in self._grown:
            self._grown.remove(number)
            self._ended(number)
        return None if task is None else task.result()
