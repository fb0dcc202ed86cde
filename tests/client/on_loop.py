"""The asyncio client in the manner of the synchronous one, so that one test runs with both.

Each method is called on the event loop of the tests, and its end waited for: `await`, `async with`
and `async for` are what a test does not have to write.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

from stratamq.client import (
    AsyncAdminClient,
    AsyncClient,
    AsyncConsumer,
    AsyncDelivery,
    AsyncProducer,
    AsyncSharedReader,
    AsyncTransaction,
)
from stratamq.client.deliveries import Deliveries

Run = Callable[[Any], Any]

WRAPPED = (
    AsyncAdminClient,
    AsyncClient,
    AsyncConsumer,
    AsyncDelivery,
    AsyncGenerator,
    AsyncProducer,
    AsyncSharedReader,
    AsyncTransaction,
    Deliveries,
)
AS_ASYNC = {"__enter__": "__aenter__", "__exit__": "__aexit__", "__next__": "__anext__"}


class OnLoop:
    """`original` with its methods run by `run`, and what they return wrapped alike."""

    def __init__(self, original: Any, run: Run) -> None:
        self.original = original
        self._run = run

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.original, AS_ASYNC.get(name, name))
        if not inspect.isroutine(value):
            return self._wrapped(value)
        return lambda *arguments, **named: self._call(value, arguments, named)

    def _call(self, method: Any, arguments: Any, named: Any) -> Any:
        async def call() -> Any:
            value = method(*arguments, **named)
            waits = asyncio.iscoroutine(value) or isinstance(value, AsyncConsumer)
            return (
                await value if (waits and value is not self.original) or is_step(value) else value
            )

        return self._wrapped(self._run(call()))

    def _wrapped(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._wrapped(one) for one in value]
        return OnLoop(value, self._run) if isinstance(value, WRAPPED) else value

    def __enter__(self) -> "OnLoop":
        return self.__getattr__("__enter__")()

    def __exit__(self, *error: Any) -> None:
        self.__getattr__("__exit__")(*error)

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.original, Deliveries):
            return (self._wrapped(one) for one in self.original)
        return self

    def __next__(self) -> Any:
        try:
            return self.__getattr__("__next__")()
        except StopAsyncIteration:
            raise StopIteration from None

    def __len__(self) -> int:
        return len(self.original)

    def __getitem__(self, index: Any) -> Any:
        return self._wrapped(self.original[index])


def is_step(value: Any) -> bool:
    """What the `__anext__` of an asynchronous generator gives."""
    return type(value).__name__ == "async_generator_asend"


def original(value: Any) -> Any:
    """What a client of either kind made, unwrapped."""
    return value.original if isinstance(value, OnLoop) else value
