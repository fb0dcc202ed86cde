"""A stream's reads of the tier, beside those of its other queues."""

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

from stratamq_dispatcher.pull import PullAnswer


class TierFetches:
    """By the number of the cursor; cancelled at the end. Belongs to the event loop."""

    def __init__(self) -> None:
        self._tasks: dict[int, asyncio.Task[PullAnswer]] = {}

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

    def is_under_way(self, number: int) -> bool:
        task = self._tasks.get(number)
        return task is not None and not task.done()

    def begin(
        self,
        number: int,
        work: Coroutine[Any, Any, PullAnswer],
        ended: Callable[[int], object],
    ) -> None:
        """`ended(number)` is called when there is an answer, or an error."""
        task = asyncio.ensure_future(work)
        self._tasks[number] = task

        def done(task: "asyncio.Task[PullAnswer]") -> None:
            if not task.cancelled():
                ended(number)

        task.add_done_callback(done)

    def take(self, number: int) -> PullAnswer | None:
        """The answer of one that has ended, or its error; None: there is none."""
        task = self._tasks.pop(number, None)
        return None if task is None else task.result()
