"""The event loops of the tests: gRPC may still tell one of something after it is closed.

gRPC's asyncio part has one queue for all loops of a process, which every loop reads. Where a test
ends before a call that it cancelled, the next test's loop reads that call's end and passes it on.
asyncio then raises RuntimeError in the wrong test, and gRPC leaves the rest of its queue unread.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any


class LoopOfTests(asyncio.SelectorEventLoop):
    """Ignores what gRPC tells it after it is closed."""

    def call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self.is_closed() and callback.__module__ == "grpc._cython.cygrpc":
            return asyncio.Handle(callback, args, self, context)
        return super().call_soon_threadsafe(callback, *args, context=context)


class LoopsOfTests(asyncio.DefaultEventLoopPolicy):
    """Makes each loop a `LoopOfTests`."""

    _loop_factory = LoopOfTests
