"""Calls of gRPC's asyncio clients."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc

from stratamq.errors import UnavailableError

T = TypeVar("T")
LOST = "Internal error from Core"


async def with_status(call: Callable[[], Awaitable[T]]) -> T:
    """What `call()` returns or raises, called again while gRPC has lost the server's status: one
    that comes while a request is written is overwritten (grpc/grpc issue 36066)."""
    while True:
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            if error.details() != LOST:
                raise
        except UnavailableError as error:  # what our client makes of it
            if not error.message.endswith(LOST):
                raise
