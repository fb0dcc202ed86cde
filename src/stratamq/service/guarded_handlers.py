"""Around every call of a server: it has a request id, errors become statuses, calls are counted,
timed and, where traces are recorded, a span.

A handler raises errors of `stratamq.errors` and never touches status codes. It may be a coroutine,
an async generator, or a plain function that does not block.

A request is read once its caller is known and may call the method at all: gRPC would read a single
request before it asks anyone, and hold as much as a peer sends, for as many calls as it opens. So
every method is offered to gRPC as one that takes a stream; on the wire they are the same.
"""

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from grpc.aio import EOF, AbortError

from stratamq.errors import InvalidRequestError
from stratamq.rpc.framing import identity
from stratamq.rpc.permissions import Rule, rule_of
from stratamq.rpc.request_ids import ERROR_KEY, one_request
from stratamq.rpc.request_ids import begin as begin_request
from stratamq.rpc.status import to_status
from stratamq.service import metrics
from stratamq.service.access import AccessControl, Caller, begin, is_loopback
from stratamq.service.client_limits import Client, ClientLimits, host_of
from stratamq.service.recorder import Recorded, Recorder

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


class GuardedHandlers(grpc.GenericRpcHandler):
    """Handlers of all four kinds, each wrapped. Not a gRPC interceptor: those cost every call a
    coroutine."""

    def __init__(
        self,
        handlers: grpc.GenericRpcHandler,
        access: AccessControl | None = None,
        limits: ClientLimits | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        """Without `access` everyone may do everything; without `limits` as much as they like;
        without a `recorder` there are no spans."""
        self._handlers = handlers
        self._access = access
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
            entrance = Entrance(self._access, self._limits, self._recorder, method, handler)
            known = self._wrapped[method] = (handler, _wrap(handler, method, entrance))
        return known[1]


class UnknownMethods(grpc.GenericRpcHandler):
    """Asked when no other handler has the method: the call is noted, and refused as gRPC does."""

    def __init__(self, access: AccessControl) -> None:
        self._access = access

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler:
        method = str(handler_call_details.method)

        async def refuse(_: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> None:
            self._access.no_such_method(context, method)
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

        return grpc.stream_stream_rpc_method_handler(refuse)


class Entrance:
    """What every call of one method passes through."""

    def __init__(
        self,
        access: AccessControl | None,
        limits: ClientLimits | None,
        recorder: Recorder | None,
        method: str,
        handler: Handler,
    ) -> None:
        self._recorder = recorder
        self.access = access
        self.method = method
        self.takes_stream = bool(handler.request_streaming)
        self.is_stream = bool(handler.request_streaming or handler.response_streaming)
        rule = rule_of(method)
        self.has_effects = rule is not None and rule.has_effects
        self._limits = limits

    def enter(self, context: Any) -> "Call":
        """UnauthenticatedError, BusyError."""
        request = begin_request(context)
        span = None if self._recorder is None else self._recorder.serve(self.method, request)
        if span is None:
            return self._enter(context, None)
        try:
            return self._enter(context, span)
        except BaseException as error:
            span.end(error)
            raise

    def _enter(self, context: Any, span: Recorded | None) -> "Call":
        admitted = None if self.access is None else begin(self.access, context, self.method)
        caller, rule = admitted or (None, None)
        client = self._client(context, caller)
        if client is not None:
            client.begin(stream=self.is_stream)
        return Call(self, caller, rule, client, span)

    def _client(self, context: Any, caller: Caller | None) -> Client | None:
        if self._limits is None or (caller is not None and caller.trusted):
            return None
        peer = context.peer()
        if caller is not None:
            return self._limits.of(f"user {caller.name}")
        host = host_of(peer)
        counted = self.access is not None or not is_loopback(peer)
        return self._limits.of(host, counted=counted) if host else None


class Call:
    """One call from its beginning to its end."""

    __slots__ = ("_caller", "_client", "_entrance", "_request", "_rule", "_span", "_version")

    def __init__(
        self,
        entrance: Entrance,
        caller: Caller | None,
        rule: Rule | None,
        client: Client | None,
        span: Recorded | None,
    ) -> None:
        self._span = span
        self._entrance = entrance
        self._caller = caller
        self._rule = rule
        self._client = client
        self._request: Any = None
        self._version = -1

    def __enter__(self) -> "Call":
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._client is not None:
            self._client.end(stream=self._entrance.is_stream)
        if self._span is not None:
            self._span.end(error)

    async def receive(self, read: Callable[[], Awaitable[Any]]) -> Any:
        """The request's bytes."""
        data = await (read() if self._client is None else self._client.receive(read))
        if data is EOF:
            raise InvalidRequestError(f"{self._entrance.method} was called without a request")
        if self._client is not None:
            self._client.spend_bytes(len(data))
        return data

    async def require(self, request: Any) -> None:
        """NotPermittedError, UnauthenticatedError. `request` None: the method takes a stream."""
        access = self._entrance.access
        if access is not None and self._caller is not None and self._rule is not None:
            self._request = request
            self._version = access.version
            await access.require(self._caller, self._rule, self._entrance.method, request)

    async def recheck(self) -> None:
        """Check an open stream like `require`: the permissions may have changed."""
        access = self._entrance.access
        if access is None or self._caller is None or self._rule is None:
            return
        version = access.version
        if version != self._version:
            await access.recheck(self._caller, self._rule, self._entrance.method, self._request)
            self._version = version

    def require_room(self) -> None:
        """Before anything is done. BusyError."""
        if self._client is not None:
            self._client.require_room()

    def answer_alone(self, response: Any) -> None:
        """The one answer of the call, which ends with it once the client has taken it: gRPC keeps
        an answer as long as its client gives it no room. BusyError."""
        client = self._client
        if client is None:
            return
        size = _size(response)
        client.hold(size, refusable=not self._entrance.has_effects)
        client.spend_bytes(size)
        task = asyncio.current_task()
        assert task is not None
        self._client = None  # it ends with the task, and not with the handler
        is_stream = self._entrance.is_stream

        def taken(_: object) -> None:
            client.let_go(size)
            client.end(stream=is_stream)

        task.add_done_callback(taken)

    def hold(self, response: Any) -> int:
        """One of several answers is about to be given; its size, for `given`. BusyError."""
        if self._client is None:
            return 0
        size = _size(response)
        self._client.hold(size, refusable=not self._entrance.has_effects)
        return size

    def given(self, size: int) -> float:
        """The client has taken it; how long it waits before the next one."""
        if self._client is None:
            return 0.0
        self._client.let_go(size)
        return self._client.spend_bytes(size)

    def metered(self, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """A stream of requests, as fast as its client may send."""
        client = self._client
        return requests if client is None or not client.counts_bytes else _slowed(requests, client)


async def _slowed(requests: AsyncIterator[bytes], client: Client) -> AsyncIterator[bytes]:
    async for data in requests:
        delay_s = client.spend_bytes(len(data))
        yield data
        if delay_s:
            await asyncio.sleep(delay_s)


def _size(response: Any) -> int:
    return len(response) if isinstance(response, bytes) else int(response.ByteSize())


def _wrap(handler: Handler, method: str, entrance: Entrance) -> Handler:
    """Requests are decoded inside: gRPC answers bytes that are no message with UNKNOWN."""
    read = _reader(handler.request_deserializer, method, handler.request_streaming)
    codecs = {"request_deserializer": None, "response_serializer": handler.response_serializer}
    behaviour = (
        handler.unary_unary or handler.stream_unary or handler.unary_stream or handler.stream_stream
    )
    if handler.response_streaming:
        return grpc.stream_stream_rpc_method_handler(
            _stream(behaviour, read, method, entrance), **codecs
        )
    return grpc.stream_unary_rpc_method_handler(
        _single(behaviour, read, method, entrance), **codecs
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
    behaviour: Callable[..., Any], read: Read, method: str, entrance: Entrance
) -> Callable[..., Awaitable[Any]]:
    answered = CALLS.labels(method, "OK")
    seconds = CALL_SECONDS.labels(method)
    waits = inspect.iscoroutinefunction(behaviour)

    async def call(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> Any:
        try:
            with entrance.enter(context) as entered:
                asked = await _asked(entered, entrance, read, requests, context)
                entered.require_room()
                started_ns = time.perf_counter_ns()
                response = behaviour(asked, context)
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
    behaviour: Callable[..., Any], read: Read, method: str, entrance: Entrance
) -> Callable[..., Any]:
    answered = CALLS.labels(method, "OK")
    open_streams = OPEN_STREAMS.labels(method)

    async def generate(
        requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[Any]:
        with open_streams.track_inprogress():
            try:
                with entrance.enter(context) as entered:
                    asked = await _asked(entered, entrance, read, requests, context)
                    # Closed here, or a generator whose caller has gone waits for the collector.
                    async with aclosing(behaviour(asked, context)) as responses:
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

    async def write(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> None:
        with open_streams.track_inprogress():
            try:
                with entrance.enter(context) as entered:
                    asked = await _asked(entered, entrance, read, requests, context)
                    outcome = behaviour(asked, context)
                    if inspect.isawaitable(outcome):
                        await outcome
            except AbortError:
                raise
            except Exception as error:  # noqa: BLE001 - the top of an RPC
                await _abort(context, error, method)
            answered.inc()

    return generate if inspect.isasyncgenfunction(behaviour) else write


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
    code, message, metadata = to_status(error)
    log.debug("call failed", extra={"method": method, "status": code.name, "reason": message})
    CALLS.labels(method, code.name).inc()
    with one_request() as request:
        await context.abort(code, message, (*metadata, (ERROR_KEY, request.id)))
