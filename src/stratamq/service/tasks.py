"""Several coroutines as one: errors are raised as they are, and no task outlives its caller."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any


async def first_ended(*work: Coroutine[Any, Any, None]) -> None:
    """Until one of them has ended; the others are cancelled, and have ended on return. The first
    error is raised."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end(tasks)
    _raise_first(tasks)


async def all_of(*work: Coroutine[Any, Any, None]) -> None:
    """Until all have ended; then the first error is raised."""
    tasks = [asyncio.ensure_future(one) for one in work]
    if not tasks:
        return
    try:
        await asyncio.wait(tasks)
    finally:
        await _end(tasks)
    _raise_first(tasks)


async def _end(tasks: Sequence["asyncio.Future[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def _raise_first(tasks: Sequence["asyncio.Future[None]"]) -> None:
    for task in tasks:
        if not task.cancelled():
            task.result()
