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


class GuardedHandlers(grpc.GenericRpcHandler):
    """Handlers of all four kinds, each wrapped. Not a gRPC interceptor: those cost every call a
    coroutine."""

    def __init__(self, handlers: grpc.GenericRpcHandler) -> None:
        self._handlers = handlers
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
            known = self._wrapped[method] = (handler, _wrap(handler, method))
        return known[1]


def _wrap(handler: Handler, method: str) -> Handler:
    """Requests are decoded inside: gRPC answers bytes that are no message with UNKNOWN."""
    read = _reader(handler.request_deserializer, method, handler.request_streaming)
    codecs = {"request_deserializer": None, "response_serializer": handler.response_serializer}
    if handler.unary_unary:
        return grpc.unary_unary_rpc_method_handler(
            _single(handler.unary_unary, read, method), **codecs
        )
    if handler.stream_unary:
        return grpc.stream_unary_rpc_method_handler(
            _single(handler.stream_unary, read, method), **codecs
        )
    if handler.unary_stream:
        return grpc.unary_stream_rpc_method_handler(
            _stream(handler.unary_stream, read, method), **codecs
        )
    return grpc.stream_stream_rpc_method_handler(
        _stream(handler.stream_stream, read, method), **codecs
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


def _single(
    behaviour: Callable[..., Any], read: Read, method: str
) -> Callable[..., Awaitable[Any]]:
    answered = CALLS.labels(method, "OK")
    seconds = CALL_SECONDS.labels(method)
    waits = inspect.iscoroutinefunction(behaviour)

    async def call(request: Any, context: grpc.aio.ServicerContext) -> Any:
        started_ns = time.perf_counter_ns()
        try:
            response = behaviour(read(request), context)
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


def _stream(behaviour: Callable[..., Any], read: Read, method: str) -> Callable[..., Any]:
    answered = CALLS.labels(method, "OK")
    open_streams = OPEN_STREAMS.labels(method)

    async def generate(request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        with open_streams.track_inprogress():
            try:
                # Closed here, or a generator whose caller has gone would wait for the collector.
                async with aclosing(behaviour(read(request), context)) as responses:
                    async for response in responses:
                        yield response
            except AbortError:
                raise
            except Exception as error:  # noqa: BLE001 - the top of an RPC
                await _abort(context, error, method)
            answered.inc()

    async def write(request: Any, context: grpc.aio.ServicerContext) -> None:
        with open_streams.track_inprogress():
            try:
                outcome = behaviour(read(request), context)
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
