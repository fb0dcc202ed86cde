"""Around every call of a server: errors become statuses, calls are counted and timed.

A handler raises errors of `stratamq.errors` and never touches status codes. It may be a coroutine,
an async generator, or a plain function that does not block.
"""

import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from grpc.aio import AbortError

from stratamq.errors import InvalidRequestError
from stratamq.rpc.framing import identity
from stratamq.rpc.status import to_status
from stratamq.service import metrics
from stratamq.service.access import AccessControl, begin

CALLS = metrics.counter(
    "grpc_calls", "Calls answered, by full method name and status.", ("method", "status")
)
CALL_SECONDS = metrics.histogram(
    "grpc_call_seconds",
    "Time from the arrival of a unary-response call to its answer.",
    ("method",),
)
OPEN_STREAMS = metrics.gauge(
    "grpc_open_streams", "Response streams that are open now.", ("method",)
)

Handler: TypeAlias = grpc.RpcMethodHandler
Read: TypeAlias = Callable[[Any], Any]
StillAllowed: TypeAlias = Callable[[], None]
Admit: TypeAlias = Callable[[Any, Any], StillAllowed]


class GuardedHandlers(grpc.GenericRpcHandler):
    """Handlers of all four kinds, each wrapped. Not a gRPC interceptor: those cost every call a
    coroutine."""

    def __init__(
        self, handlers: grpc.GenericRpcHandler, access: AccessControl | None = None
    ) -> None:
        """Without `access` everyone may do everything."""
        self._handlers = handlers
        self._access = access
        # Wrapped once per method, not per call. Bounded: unknown methods have no handler.
        self._wrapped: dict[str, tuple[Handler, Handler]] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        """What gRPC asks for each call."""
        handler = self._handlers.service(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        known = self._wrapped.get(method)
        if known is None or known[0] is not handler:
            known = self._wrapped[method] = (handler, _wrap(handler, method, self._access))
        return known[1]


def _wrap(handler: Handler, method: str, access: AccessControl | None) -> Handler:
    """Requests are decoded inside: gRPC answers bytes that are no message with UNKNOWN."""
    read = _reader(handler.request_deserializer, method, handler.request_streaming)
    admit = _admission(access, method, handler.request_streaming)
    codecs = {"request_deserializer": None, "response_serializer": handler.response_serializer}
    if handler.unary_unary:
        return grpc.unary_unary_rpc_method_handler(
            _single(handler.unary_unary, read, method, admit), **codecs
        )
    if handler.stream_unary:
        return grpc.stream_unary_rpc_method_handler(
            _single(handler.stream_unary, read, method, admit), **codecs
        )
    if handler.unary_stream:
        return grpc.unary_stream_rpc_method_handler(
            _stream(handler.unary_stream, read, method, admit), **codecs
        )
    return grpc.stream_stream_rpc_method_handler(
        _stream(handler.stream_stream, read, method, admit), **codecs
    )


def _reader(deserialize: Read | None, method: str, streaming: bool) -> Read:
    """Bytes, or a stream of them, to what the handler expects."""
    if deserialize is None or deserialize is identity:
        return _as_it_is

    def one(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError as error:
            raise InvalidRequestError(
                f"these {len(data)} bytes are no request of {method.rpartition('/')[2]}"
            ) from error

    async def each(requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        async for data in requests:
            yield one(data)

    return each if streaming else one


def _as_it_is(request: Any) -> Any:
    return request


def _admission(access: AccessControl | None, method: str, streaming: bool) -> Admit:
    """What is called with each call's context and request; its result, with each response."""
    if access is None:
        return _everyone

    def admit(context: Any, request: Any) -> StillAllowed:
        admitted = begin(access, context, method)
        if admitted is None:
            return _always
        caller, rule = admitted
        named = None if streaming else request
        access.require(caller, rule, method, named)
        version = access.version

        def still() -> None:
            nonlocal version
            if access.version != version:
                access.recheck(caller, rule, method, named)
                version = access.version

        return still

    return admit


def _everyone(context: Any, request: Any) -> StillAllowed:
    return _always


def _always() -> None:
    pass


def _single(
    behaviour: Callable[..., Any], read: Read, method: str, admit: Admit
) -> Callable[..., Awaitable[Any]]:
    answered = CALLS.labels(method, "OK")
    seconds = CALL_SECONDS.labels(method)
    waits = inspect.iscoroutinefunction(behaviour)

    async def call(request: Any, context: grpc.aio.ServicerContext) -> Any:
        started_ns = time.perf_counter_ns()
        try:
            asked = read(request)
            admit(context, asked)
            response = behaviour(asked, context)
            if waits or inspect.isawaitable(response):
                response = await response
        except AbortError:
            raise
        except Exception as error:  # noqa: BLE001 - the top of an RPC
            await _abort(context, error, method)
        answered.inc()
        seconds.observe((time.perf_counter_ns() - started_ns) / 1e9)
        return response

    return call


def _stream(
    behaviour: Callable[..., Any], read: Read, method: str, admit: Admit
) -> Callable[..., Any]:
    answered = CALLS.labels(method, "OK")
    open_streams = OPEN_STREAMS.labels(method)

    async def generate(request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        with open_streams.track_inprogress():
            try:
                asked = read(request)
                still_allowed = admit(context, asked)
                # Closed here, or a generator whose caller has gone would wait for the collector.
                async with aclosing(behaviour(asked, context)) as responses:
                    async for response in responses:
                        still_allowed()
                        yield response
            except AbortError:
                raise
            except Exception as error:  # noqa: BLE001 - the top of an RPC
                await _abort(context, error, method)
            answered.inc()

    async def write(request: Any, context: grpc.aio.ServicerContext) -> None:
        with open_streams.track_inprogress():
            try:
                asked = read(request)
                admit(context, asked)
                outcome = behaviour(asked, context)
                if inspect.isawaitable(outcome):
                    await outcome
            except AbortError:
                raise
            except Exception as error:  # noqa: BLE001 - the top of an RPC
                await _abort(context, error, method)
            answered.inc()

    return generate if inspect.isasyncgenfunction(behaviour) else write


async def _abort(context: grpc.aio.ServicerContext, error: Exception, method: str) -> None:
    code, message, metadata = to_status(error)
    CALLS.labels(method, code.name).inc()
    await context.abort(code, message, metadata)
