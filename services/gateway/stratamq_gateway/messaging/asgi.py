"""gRPC's calls as an ASGI application, which any server with HTTP/2 and trailers can serve.

    request    path /package.Service/Method, content-type: application/grpc, a body of frames
    a frame    compressed, 0 (1 byte) · length (4, big-endian) · message
    answer     status 200, frames, trailers grpc-status and grpc-message (percent-encoded)
    deadline   grpc-timeout: up to 8 digits and H, M, S, m, u or n

The functions that serve calls are those of gRPC's own asyncio server: they take the request, or an
iterator over requests, and a context. https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
"""

import asyncio
import base64
import re
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
)
from contextlib import aclosing, suppress
from logging import getLogger
from typing import Any, NamedTuple
from urllib.parse import quote

import grpc

from stratamq_gateway.messaging.asgi_calls import (
    FRAME_HEAD,
    AsgiCall,
    Deadlines,
    EndedCall,
    HeldBytes,
    Metadata,
    Receive,
    RequestFrames,
)

log = getLogger(__name__)

Send = Callable[[dict[str, Any]], Awaitable[None]]
AsgiApp = Callable[[Mapping[str, Any], Receive, Send], Awaitable[None]]
CONTENT_TYPE = b"application/grpc"
_GRPC = re.compile(rb"application/grpc([+;].*)?")
_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", CONTENT_TYPE)],
    "trailers": True,
}
_PLAIN = " !\"#$&'()*+,/:;<=>?@[]^`{|}"
"""What a status message says as it is, beside letters and digits."""
_END = {"type": "http.response.body", "body": b"", "more_body": False}
_OK_TRAILERS = {
    "type": "http.response.trailers",
    "headers": [(b"grpc-status", b"0")],
    "more_trailers": False,
}


def serialized(message: Any) -> bytes:
    """`message`: one of protobuf's, or its bytes."""
    data: bytes = message if isinstance(message, bytes) else message.SerializeToString()
    return data


class GrpcMethod(NamedTuple):
    serve: Callable[..., Any]
    """Gives what `dump` takes, or with `gives_stream` an iterator over some."""
    takes_stream: bool = False
    gives_stream: bool = False
    dump: Callable[[Any], bytes] = serialized


class GrpcApp:
    """Belongs to the event loop."""

    def __init__(
        self, methods: Mapping[str, GrpcMethod], max_bytes: int, web: AsgiApp | None = None
    ) -> None:
        """By their paths. `max_bytes`: of one request. `web` is given what is no call."""
        self._methods = methods
        self._web = web
        self._max_bytes = max_bytes
        self._calls: set[asyncio.Task[Any]] = set()
        self._is_closing = False
        self._held = HeldBytes()
        self._deadlines = Deadlines()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Always ends the answer: h2corn prints a traceback of one that ends by an error."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()  # a system call, on Python 3.11
        call = AsgiCall(scope, loop)
        kind = call.headers.get(b"content-type", b"")
        # A server cannot send trailers, and with them statuses, to who does not say so.
        is_grpc = kind == CONTENT_TYPE or _GRPC.fullmatch(kind) is not None
        task = asyncio.current_task(loop)
        assert task is not None
        self._calls.add(task)
        if not is_grpc or call.headers.get(b"te") != b"trailers" or scope["http_version"] == "1.1":
            try:
                await self._no_call(is_grpc, scope, receive, send)
            finally:
                self._calls.discard(task)
            return
        requests, answer = RequestFrames(receive, self._max_bytes, self._held), _Answer(send)
        is_over = False
        try:
            method = self._methods.get(scope["path"])
            if method is None:
                raise EndedCall(grpc.StatusCode.UNIMPLEMENTED, f"no method {scope['path'][:200]}")
            ends_at = call.begin_time()
            step = None if ends_at is None else self._deadlines.add(loop, task, ends_at)
            try:
                if method.takes_stream or method.gives_stream:
                    await _serve_stream(method, call, requests, answer)
                    await answer.end(grpc.StatusCode.OK)
                else:
                    response = await method.serve(await requests.alone(), call)
                    await answer.whole(method.dump(response))
            finally:
                if step is not None:
                    is_over = self._deadlines.discard(step, task)
        except EndedCall as ended:
            await answer.end(ended.code, str(ended), ended.metadata)
        except asyncio.CancelledError:
            if is_over:
                await answer.end(grpc.StatusCode.DEADLINE_EXCEEDED, "the call's time is over")
            elif self._is_closing:
                await answer.end(grpc.StatusCode.UNAVAILABLE, "the gateway stops")
            else:
                await answer.end(grpc.StatusCode.CANCELLED, "the client has left")
        except Exception:
            log.exception("a call failed", extra={"path": scope["path"]})
            await answer.end(grpc.StatusCode.UNKNOWN, "internal error: see the gateway's log")
        finally:
            requests.close()
            call.done()
            self._calls.discard(task)

    async def _no_call(
        self, is_grpc: bool, scope: Mapping[str, Any], receive: Receive, send: Send
    ) -> None:
        if is_grpc or self._web is None:
            await send({"type": "http.response.start", "status": 415, "headers": []})
            await send(_END)
            return
        answer = _Whole(send)
        try:
            await self._web(scope, receive, answer.send)
        except asyncio.CancelledError:
            pass  # the client has left, or the gateway stops
        except Exception:
            log.exception("a request failed", extra={"path": scope["path"]})
        await answer.end()

    async def close(self) -> None:
        """Calls in flight end with UNAVAILABLE."""
        self._is_closing = True
        calls = list(self._calls)
        for one in calls:
            one.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


class _Whole:
    """An answer that ends whatever happens: h2corn prints a line about one that does not."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._has_begun = self._has_ended = False

    async def send(self, event: dict[str, Any]) -> None:
        self._has_begun = True
        self._has_ended = not event.get("more_body", event["type"] == "http.response.start")
        await self._send(event)

    async def end(self) -> None:
        with suppress(OSError):  # the client has left
            if not self._has_begun:
                await self._send({"type": "http.response.start", "status": 503, "headers": []})
            if not self._has_ended:
                await self._send(_END)


async def _serve_stream(
    method: GrpcMethod, call: AsgiCall, requests: RequestFrames, answer: "_Answer"
) -> None:
    if method.takes_stream:
        answers = method.serve(requests.all(), call)
        await _while_there(_stream(answers, method.dump, answer), requests)
    else:
        answers = method.serve(await requests.alone(), call)
        giving = _stream(answers, method.dump, answer)
        await _while_there(giving, requests, requests.left())


async def _stream(
    answers: AsyncGenerator[Any, None], dump: Callable[[Any], bytes], answer: "_Answer"
) -> None:
    async with aclosing(answers):
        async for one in answers:
            await answer.give(dump(one))


def _encoded(value: str | bytes) -> bytes:
    """Metadata in bytes, whose names end with -bin, travel as base64."""
    return base64.b64encode(value) if isinstance(value, bytes) else value.encode()


async def _while_there(
    work: Coroutine[Any, Any, None],
    requests: RequestFrames,
    watching: Coroutine[Any, Any, None] | None = None,
) -> None:
    """Cancel the call when the client has left: `watching` notices, or the work as it reads."""
    serving = asyncio.current_task()
    assert serving is not None
    requests.cancel_when_left(serving)
    watcher = serving.get_loop().create_task(watching) if watching is not None else None
    try:
        await work
    finally:
        if watcher is not None:
            watcher.cancel()


class _Answer:
    """Its head goes out with its first message: one that has none is its trailers alone."""

    __slots__ = ("_body_has_ended", "_has_begun", "_has_ended", "_send")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._has_begun = self._body_has_ended = self._has_ended = False

    async def give(self, data: bytes) -> None:
        """One message of several. CancelledError: the client has left."""
        try:
            if not self._has_begun:
                self._has_begun = True
                await self._send(_START)
            await self._send(_body(data, more=True))
        except OSError as error:  # ASGI's for a client that has left
            raise asyncio.CancelledError from error

    async def whole(self, data: bytes) -> None:
        """The only message. CancelledError: the client has left."""
        send = self._send
        self._has_begun = True
        try:
            await send(_START)
            self._body_has_ended = True
            await send(_body(data, more=False))
            self._has_ended = True
            await send(_OK_TRAILERS)
        except OSError as error:
            raise asyncio.CancelledError from error

    async def end(self, code: grpc.StatusCode, message: str = "", metadata: Metadata = ()) -> None:
        """Nothing where it has ended."""
        if self._has_ended:
            return
        trailers = _OK_TRAILERS
        if code is not grpc.StatusCode.OK or message or metadata:
            trailers = _trailers(code, message, metadata)
        with suppress(OSError):  # the client has left
            if not self._has_begun:
                self._has_begun = True
                await self._send(_START)
            if not self._body_has_ended:
                self._body_has_ended = True
                await self._send(_END)
            self._has_ended = True
            await self._send(trailers)


def _body(data: bytes, *, more: bool) -> dict[str, Any]:
    frame = FRAME_HEAD.pack(0, len(data)) + data
    return {"type": "http.response.body", "body": frame, "more_body": more}


def _trailers(code: grpc.StatusCode, message: str, metadata: Metadata) -> dict[str, Any]:
    headers = [(b"grpc-status", str(code.value[0]).encode())]
    if message:
        headers.append((b"grpc-message", quote(message, safe=_PLAIN).encode()))
    headers += [(name.encode(), _encoded(value)) for name, value in metadata]
    return {"type": "http.response.trailers", "headers": headers, "more_trailers": False}
