"""Around every call of a server: it has a request id, errors become statuses, calls are counted,
timed and, where traces are recorded, a span.

A handler takes a request, or a stream of them, and a `Call`; it sees nothing of gRPC. It raises
errors of `stratamq.errors`. A stream of responses is an async generator, a single one comes from a
coroutine or from a plain function that does not block.

A request is read once its caller is known and may call the method at all: gRPC would read a single
request before it asks anyone, and hold as much as a peer sends, for as many calls as it opens. So
every method is offered to gRPC as one that takes a stream; on the wire they are the same.
"""

import asyncio
import inspect
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypeAlias

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from grpc.aio import AbortError

from stratamq.errors import InvalidRequestError
from stratamq.rpc.framing import identity
from stratamq.rpc.methods import HAND_FRAMED, kind_of, rule_of
from stratamq.rpc.request_ids import ERROR_KEY, begin, one_request
from stratamq.rpc.status import Status, to_status
from stratamq.service import metrics
from stratamq.service.client_limits import ClientLimits
from stratamq.service.entrance import Call, Entrance
from stratamq.service.grpc_callers import Callers
from stratamq.service.recorder import Recorder

log = logging.getLogger(__name__)

CALLS = metrics.counter(
    "grpc_calls",
    "Completed calls, by full method name and status.",
    ("method", "status"),
    asks="Which calls come, and which fail?",
)
CALL_SECONDS = metrics.histogram(
    "grpc_call_seconds",
    "Time from the arrival of a call with a unary response to its response.",
    ("method",),
    asks="How long do callers wait for an answer?",
)
OPEN_STREAMS = metrics.gauge(
    "grpc_open_streams",
    "Open response streams.",
    ("method",),
    asks="Who is connected?",
)

Handler: TypeAlias = grpc.RpcMethodHandler
Read: TypeAlias = Callable[[Any], Any]
Enter: TypeAlias = Callable[[grpc.aio.ServicerContext], Call]


class GuardedHandlers(grpc.GenericRpcHandler):
    """Handlers of all four kinds, each wrapped. Not a gRPC interceptor: those cost every call a
    coroutine."""

    def __init__(
        self,
        handlers: grpc.GenericRpcHandler,
        callers: Callers,
        limits: ClientLimits | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        """Without `limits` clients may do as much as they like; without a `recorder` there are no
        spans."""
        self._handlers = handlers
        self._callers = callers
        self._limits = limits
        self._recorder = recorder
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
            entrance = Entrance(
                self._callers.access,
                self._limits,
                self._recorder,
                method,
                rule_of(method),
                takes_stream=bool(handler.request_streaming),
                gives_stream=bool(handler.response_streaming),
            )
            known = self._wrapped[method] = (handler, self._wrap(handler, entrance))
        return known[1]

    def _wrap(self, handler: Handler, entrance: Entrance) -> Handler:
        """Requests are decoded inside: gRPC answers bytes that are no message with UNKNOWN."""
        method = entrance.method
        read = _reader(handler.request_deserializer, method, handler.request_streaming)
        codecs = {"request_deserializer": None, "response_serializer": handler.response_serializer}
        behaviour = (
            handler.unary_unary
            or handler.stream_unary
            or handler.unary_stream
            or handler.stream_stream
        )
        enter = partial(enter_call, entrance, self._callers)
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(
                _stream(behaviour, read, entrance, enter), **codecs
            )
        return grpc.stream_unary_rpc_method_handler(
            _single(behaviour, read, entrance, enter), **codecs
        )


def enter_call(entrance: Entrance, callers: Callers, context: Any) -> Call:
    """Begin a call of gRPC's, by its context (grpc.aio). UnauthenticatedError, BusyError."""
    left_s = context.time_remaining()
    deadline = math.inf if left_s is None else asyncio.get_running_loop().time() + left_s
    identify = partial(callers.identify, context, entrance.method)
    return entrance.enter(identify, begin(context), deadline)


async def end_with(context: Any, status: Status) -> None:
    """End a call with the status of an error (`rpc.status.to_status`), and its request's id."""
    code, message, metadata = status
    with one_request() as request:
        await context.abort(code, message, (*metadata, (ERROR_KEY, request.id)))


class _Details(grpc.HandlerCallDetails):  # type: ignore[misc]
    """A method, as handlers are asked for it."""

    def __init__(self, method: str) -> None:
        self.method = method
        self.invocation_metadata = ()


def handlers_of(service: ServiceDescriptor, servicer: Any) -> grpc.GenericRpcHandler:
    """The methods of a servicer that has them by the names in the proto. Requests that are framed
    by hand come as bytes; any response may be bytes that the servicer has encoded.

    A method that the servicer has not is left to other handlers, or UNIMPLEMENTED."""
    handlers = {}
    for method in service.methods:
        behaviour = getattr(servicer, method.name, None)
        if behaviour is not None:
            name = f"{kind_of(method)}_rpc_method_handler"
            framed = method.input_type.full_name in HAND_FRAMED
            decode = None if framed else GetMessageClass(method.input_type).FromString
            handlers[method.name] = getattr(grpc, name)(behaviour, decode, _encoded)
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def _encoded(response: Any) -> bytes:
    return response if type(response) is bytes else response.SerializeToString()


class GuardedServer:
    """What services are added to, so that their errors become statuses."""

    def __init__(
        self,
        server: grpc.aio.Server,
        callers: Callers,
        limits: ClientLimits | None,
        recorder: Recorder | None,
    ) -> None:
        self._server = server
        self._guards = callers, limits, recorder
        self._handlers: list[GuardedHandlers] = []

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        guarded = tuple(GuardedHandlers(each, *self._guards) for each in handlers)
        self._server.add_generic_rpc_handlers(guarded)
        self._handlers += guarded

    def handler_of(self, method: str) -> grpc.RpcMethodHandler | None:
        """What gRPC would call."""
        details = _Details(method)
        return next((one for each in self._handlers if (one := each.service(details))), None)


class UnknownMethods(grpc.GenericRpcHandler):
    """Asked when no other handler has the method: the call is noted, and refused as gRPC does."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler:
        method = str(handler_call_details.method)

        async def refuse(_: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> None:
            access = self._callers.access
            if access is not None:
                caller = self._callers.identify(context, method)
                access.note_refusal(caller, method, "there is no such method")
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

        return grpc.stream_stream_rpc_method_handler(refuse)


def _reader(deserialize: Read | None, method: str, streaming: bool) -> Read:
    """Bytes, or a stream of them, to what the handler expects."""
    if deserialize is None or deserialize is identity:
        return lambda request: request

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


def _single(
    behaviour: Callable[..., Any], read: Read, entrance: Entrance, enter: Enter
) -> Callable[..., Awaitable[Any]]:
    method = entrance.method
    answered = CALLS.labels(method, "OK")
    seconds = CALL_SECONDS.labels(method)
    waits = inspect.iscoroutinefunction(behaviour)

    async def call(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> Any:
        try:
            with enter(context) as entered:
                asked = await _asked(entered, entrance, read, requests, context)
                entered.require_room()
                started_ns = time.perf_counter_ns()
                response = behaviour(asked, entered)
                if waits or inspect.isawaitable(response):
                    response = await response
                entered.answer_alone(response)
        except AbortError:
            raise
        except Exception as error:  # noqa: BLE001 - the top of an RPC
            await _abort(context, error, method)
        answered.inc()
        seconds.observe((time.perf_counter_ns() - started_ns) / 1e9)
        return response

    return call


def _stream(
    behaviour: Callable[..., Any], read: Read, entrance: Entrance, enter: Enter
) -> Callable[..., Any]:
    method = entrance.method
    answered = CALLS.labels(method, "OK")
    open_streams = OPEN_STREAMS.labels(method)

    async def generate(
        requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[Any]:
        with open_streams.track_inprogress():
            try:
                with enter(context) as entered:
                    asked = await _asked(entered, entrance, read, requests, context)
                    # Closed here, or a generator whose caller has gone waits for the collector.
                    async with aclosing(behaviour(asked, entered)) as responses:
                        async for response in responses:
                            await entered.recheck()
                            size, delay_s = entered.hold(response), 0.0
                            try:
                                yield response
                            finally:
                                delay_s = entered.given(size)
                            if delay_s:
                                await asyncio.sleep(delay_s)
            except AbortError:
                raise
            except Exception as error:  # noqa: BLE001 - the top of an RPC
                await _abort(context, error, method)
            answered.inc()

    return generate


async def _asked(
    entered: Call,
    entrance: Entrance,
    read: Read,
    requests: AsyncIterator[bytes],
    context: grpc.aio.ServicerContext,
) -> Any:
    """What the handler is called with, and may be."""
    if entrance.takes_stream:
        await entered.require(None)
        return read(entered.metered(requests))
    asked = read(await entered.receive(context.read))
    await entered.require(asked)
    return asked


async def _abort(context: grpc.aio.ServicerContext, error: Exception, method: str) -> None:
    code, message, _ = status = to_status(error)
    log.debug("call failed", extra={"method": method, "status": code.name, "reason": message})
    CALLS.labels(method, code.name).inc()
    await end_with(context, status)
