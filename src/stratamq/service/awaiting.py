"""From answers through callbacks to `await`. A caller that was cancelled is not answered."""

import asyncio
from collections.abc import Callable, Generator
from typing import TypeVar

from stratamq.errors import StrataError

T = TypeVar("T")

OnDone = Callable[[T | None, BaseException | None], None]
"""Takes a result or an error; exactly one of the two is given (`error` is None after
success)."""


async def answer(call: Callable[[Callable[[T], None]], object]) -> T:
    """What `call(done)` gives to `done`. `call` may be a generator function: the work of one step
    between two yields, after each of which other tasks get their turn."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def done(result: T) -> None:
        if not future.done():
            future.set_result(result)

    steps = call(done)
    if isinstance(steps, Generator):
        for _ in steps:
            await asyncio.sleep(0)
    return await future


async def succeeded(call: Callable[[Callable[[StrataError | None], None]], object]) -> None:
    """Until `call(done)` has called `done`; the error that it gave, raised."""
    error = await answer(call)
    if error is not None:
        raise error


async def finished(call: Callable[[Callable[[], None]], object]) -> None:
    """Until `call(done)` has called `done`."""
    await answer(lambda done: call(lambda: done(None)))


async def outcome(call: Callable[[OnDone[T]], object]) -> T:
    """The result that `call(on_done)` gives to `on_done`; or the error, raised."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def on_done(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    call(on_done)
    return await future
