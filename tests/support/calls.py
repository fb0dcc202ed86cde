"""Calls of gRPC's clients, and handlers that wait."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from stratamq.api.v1 import commitlog_pb2
from stratamq.errors import UnavailableError
from stratamq.rpc.methods import kind_of

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


class Stub:
    """`stub.Append(request)`: each method of a proto's service on a channel, synchronous or
    asyncio; large fields go through protobuf, unlike in our client."""

    def __init__(self, service: ServiceDescriptor, channel: Any) -> None:
        for method in service.methods:
            call = getattr(channel, kind_of(method))(
                f"/{service.full_name}/{method.name}",
                request_serializer=GetMessageClass(method.input_type).SerializeToString,
                response_deserializer=GetMessageClass(method.output_type).FromString,
            )
            setattr(self, method.name, call)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the service has no method {name}")


class Waiting:
    """A handler whose calls wait for `go`: `ReportReplication`, and streams of requests."""

    def __init__(self) -> None:
        self.begun, self.go, self.cancelled = (asyncio.Event() for _ in range(3))

    async def __call__(self, request: Any) -> int:
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return request.generation

    async def stream(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for request in requests:
            await self(commitlog_pb2.ReportReplicationRequest())
            yield request
