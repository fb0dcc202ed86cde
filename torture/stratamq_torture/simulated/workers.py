"""Work spread over processes: what any seed or workload does is the same wherever it runs."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import get_context
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def spread(work: Callable[[Task], Result], tasks: Iterable[Task], jobs: int) -> Iterator[Result]:
    """`work` of every task, in no order. `tasks` is asked for more only while workers are short of
    them, so that it can end early; what has begun is waited for. One job works in this process.

    Workers log nothing: the engines warn about every fault that is planned for them.
    """
    if jobs <= 1:
        yield from map(work, tasks)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=logging.disable) as pool:
        left = iter(tasks)
        running: set[Future[Result]] = set()
        while True:
            for task in islice(left, 2 * jobs - len(running)):
                running.add(pool.submit(work, task))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def until(tasks: Iterable[Task], seconds: float) -> Iterator[Task]:
    """Tasks, until so much time is over; 0: all of them."""
    deadline = time.monotonic() + seconds if seconds else float("inf")
    for task in tasks:
        if time.monotonic() >= deadline:
            return
        yield task
