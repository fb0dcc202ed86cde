"""StrataMQ's own API through the gateway's port: each call goes to the service that owns it.

    client ──► the gateway: who calls? ──► the service's socket for fronts: may they?

Requests and responses pass as bytes. Request id, deadline, status and trailing metadata pass, too.
A client needs no other address: DescribeBroker names this port for all services. Health is the
gateway's own, and reflection lists what the port serves.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

import grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from stratamq.errors import StrataError, UnavailableError
from stratamq.rpc.address import advertised_address
from stratamq.rpc.framing import identity
from stratamq.rpc.methods import DESCRIBE_BROKER, METHODS, Method, rule_of
from stratamq.rpc.request_ids import KEY
from stratamq.rpc.rooms import GATEWAY
from stratamq.rpc.status import to_status
from stratamq.service.describing import describe
from stratamq.service.entrance import Call, Entrance
from stratamq.service.front import Front
from stratamq.service.grpc_callers import Callers, delegation, require_no_delegation
from stratamq.service.guarded_handlers import end_with, enter_call
from stratamq.service.health import SERVICE as HEALTH
from stratamq_gateway.messaging.asgi import GrpcMethod
from stratamq_gateway.metrics import requests_of

_REFLECTION = f"/{reflection.SERVICE_NAME}/ServerReflectionInfo"
_OF_GRPC = "grpc-"
"""Metadata that gRPC makes itself."""
_LOST = "Internal error from Core"
"""How gRPC's asyncio client ends a call whose status comes while it writes: the status is lost.
https://github.com/grpc/grpc/issues/36066"""

Bytes = AsyncGenerator[bytes, None]


class OwnApi:
    """Belongs to the event loop."""

    def __init__(
        self,
        front: Front,
        callers: Callers,
        entrance: Callable[..., Entrance],
        address: Callable[[], str],
        others: tuple[str, ...],
    ) -> None:
        """`address`: of the port, as clients are told. `others`: further services on it."""
        self._front = front
        self._callers = callers
        self._entrance = entrance
        self._address = address
        own = {one.path.split("/")[1] for one in METHODS.values()}
        described = DESCRIBE_BROKER.path.split("/")[1]
        names = (*others, *own, described, HEALTH.full_name, reflection.SERVICE_NAME)
        self._reflecting = reflection.aio.ReflectionServicer(sorted(names))

    def methods(self) -> dict[str, GrpcMethod]:
        """By their paths."""
        health = [
            Method(GATEWAY, f"/{HEALTH.full_name}/{one.name}", kind, None, None)
            for one in HEALTH.methods
            for kind in ["unary_stream" if one.server_streaming else "unary_unary"]
        ]
        passed = (*METHODS.values(), *health)
        own = {DESCRIBE_BROKER.path: self._describe, _REFLECTION: self._reflect}
        return {one.path: self._passed(one) for one in passed} | {
            path: GrpcMethod(
                partial(self._served, self._entered(path, path == _REFLECTION), serve),
                takes_stream=path == _REFLECTION,
                gives_stream=True,
            )
            for path, serve in own.items()
        }

    def _passed(self, method: Method) -> GrpcMethod:
        """A call with one answer, too, is watched for a client that leaves, as streams are."""
        takes_stream = method.kind.startswith("stream")
        entrance = self._entered(method.path, takes_stream, method.kind.endswith("stream"))
        serve = partial(self._served, entrance, partial(self._pass, method))
        return GrpcMethod(serve, takes_stream, gives_stream=True, dump=identity)

    def _entered(self, path: str, takes_stream: bool, gives_stream: bool = False) -> Entrance:
        kind = {"takes_stream": takes_stream, "gives_stream": gives_stream}
        return self._entrance(path, rule_of(path), **kind)

    async def _served(
        self, entrance: Entrance, serve: Callable[..., Any], given: Any, context: Any
    ) -> AsyncGenerator[Any, None]:
        requests_of(entrance.method.rpartition("/")[2]).inc()
        try:
            require_no_delegation(self._callers, context, entrance.method)
            with enter_call(entrance, self._callers, context) as call:
                if not entrance.is_stream:
                    call.require_room()
                async with aclosing(serve(given, call, context)) as answers:
                    async for answer in answers:
                        size, delay_s = call.hold(answer), 0.0
                        try:
                            yield answer
                        finally:
                            delay_s = call.given(size)
                        if delay_s:
                            await asyncio.sleep(delay_s)
        except StrataError as error:
            await end_with(context, to_status(error))

    async def _pass(self, method: Method, given: Any, call: Call, context: Any) -> Bytes:
        is_stream = method.kind.startswith("stream")
        if is_stream:
            await call.require(None)
            given = call.metered(given)
        shown: list[tuple[str, Any]] = [delegation(call.caller)]
        given_keys = {name for name, _ in context.invocation_metadata() or ()}
        if call.request.span is not None or KEY in given_keys:
            shown.append((KEY, call.request.traceparent))
        begun = self._front.call(method)
        options = {"metadata": shown, "timeout": context.time_remaining()}
        try:
            if method.kind == "unary_unary":
                yield await begun(given, **options)
                return
            answers = _both_ways(begun(**options), given) if is_stream else begun(given, **options)
            async for data in answers:
                yield data
        except grpc.aio.AioRpcError as failure:
            if failure.details() == _LOST:
                raise UnavailableError(
                    f"the {method.room} service has ended the stream: open it again"
                ) from failure
            metadata = [
                (name, value)
                for name, value in failure.trailing_metadata() or ()
                if not name.startswith(_OF_GRPC)
            ]
            await context.abort(failure.code(), failure.details() or "", tuple(metadata))

    async def _describe(self, _: bytes, call: Call, __: Any) -> AsyncGenerator[Any, None]:
        await call.require(None)
        found = await asyncio.to_thread(describe, self._front.root, GATEWAY)
        here = advertised_address(self._address())
        for place in found.services:
            place.address = here
        yield found

    async def _reflect(
        self, requests: AsyncIterator[bytes], call: Call, context: Any
    ) -> AsyncGenerator[Any, None]:
        await call.require(None)
        asked = (reflection_pb2.ServerReflectionRequest.FromString(one) async for one in requests)
        async for answer in self._reflecting.ServerReflectionInfo(asked, context):
            yield answer


async def _both_ways(call: Any, requests: AsyncIterator[bytes]) -> Bytes:
    async def feed() -> None:
        async for data in requests:
            await call.write(data)
        await call.done_writing()

    def fed(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            call.cancel()  # unless it has ended, and its end says why

    feeding = asyncio.get_running_loop().create_task(feed())
    feeding.add_done_callback(fed)
    try:
        async for data in call:
            yield data
    except asyncio.CancelledError:
        if feeding.done() and not feeding.cancelled():
            feeding.result()
        raise
    finally:
        feeding.cancel()
        call.cancel()
