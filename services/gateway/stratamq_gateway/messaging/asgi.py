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
import struct
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    MutableMapping,
)
from contextlib import aclosing, suppress
from logging import getLogger
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote

import grpc

log = getLogger(__name__)

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
AsgiApp = Callable[[Mapping[str, Any], Receive, Send], Awaitable[None]]
Metadata = tuple[tuple[str, str | bytes], ...]
CONTENT_TYPE = b"application/grpc"
MAX_HELD_BYTES = 256 << 20
"""The limit of all requests together that have not come whole."""
FRAMES_IN_A_TURN = 16
"""Then other calls have theirs."""
_GRPC = re.compile(rb"application/grpc([+;].*)?")
_HEAD = struct.Struct(">BI")
_UNITS_S = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", CONTENT_TYPE)],
    "trailers": True,
}
_PLAIN = " !\"#$&'()*+,/:;<=>?@[]^`{|}"
"""What a status message says as it is, beside letters and digits."""
_END = {"type": "http.response.body", "body": b"", "more_body": False}


def serialized(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


class GrpcMethod(NamedTuple):
    serve: Callable[..., Any]
    """Gives what `dump` takes, or with `gives_stream` an iterator over some."""
    takes_stream: bool = False
    gives_stream: bool = False
    dump: Callable[[Any], bytes] = serialized


class _Ended(Exception):
    """The call has this status."""

    def __init__(self, code: grpc.StatusCode, message: str, metadata: Metadata = ()) -> None:
        super().__init__(message)
        self.code = code
        self.metadata = metadata


class AsgiCall:
    """What functions that serve calls need of grpc.aio's ServicerContext."""

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self._client: tuple[str, int] | None = scope.get("client")
        headers = scope["headers"]
        self._metadata = [
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in headers
        ]
        self._deadline: float | None = None
        for name, value in self._metadata:
            if name == "grpc-timeout":
                self._deadline = asyncio.get_running_loop().time() + _timeout_s(value)

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return self._metadata

    def auth_context(self) -> Mapping[str, Any]:
        """Connections in clear have none."""
        return {}

    def peer(self) -> str:
        if self._client is None:
            return "unix:"
        host, port = self._client
        return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"

    def time_remaining(self) -> float | None:
        """Seconds."""
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - asyncio.get_running_loop().time())

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()
    ) -> NoReturn:
        raise _Ended(code, details, trailing_metadata)


def _timeout_s(text: str) -> float:
    digits, unit = text[:-1], text[-1:]
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 8 and unit in _UNITS_S):
        raise _Ended(grpc.StatusCode.INTERNAL, f"no grpc-timeout: {text!r:.40}")
    return int(digits) * _UNITS_S[unit]


class _Held:
    """What all calls together keep of requests that are not whole."""

    def __init__(self) -> None:
        self.bytes = 0


class _Requests:
    """The frames of a request's body. A frame that is too large is not read."""

    def __init__(self, receive: Receive, max_bytes: int, held: _Held) -> None:
        self._receive = receive
        self._max_bytes = max_bytes
        self._held = held
        self._read = bytearray()
        self._is_whole = False
        self._serving: asyncio.Task[None] | None = None

    def cancel_when_left(self, serving: "asyncio.Task[None]") -> None:
        self._serving = serving

    def _leave(self) -> None:
        """The client has ended the call, or its connection is lost."""
        if self._serving is not None and self._serving is not asyncio.current_task():
            self._serving.cancel()

    async def _more(self) -> None:
        """CancelledError: the client has left."""
        event = await self._receive()
        if event["type"] == "http.disconnect":
            self._leave()
            raise asyncio.CancelledError
        body = event.get("body", b"")
        if self._held.bytes + len(body) > MAX_HELD_BYTES:
            raise _Ended(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "the gateway waits for the rest of too many large requests: send it again",
            )
        self._read += body
        self._held.bytes += len(body)
        self._is_whole = not event.get("more_body", False)

    async def next(self) -> bytes | None:
        """None: there are no more."""
        while len(self._read) < _HEAD.size:
            if self._is_whole:
                if self._read:
                    raise _Ended(grpc.StatusCode.INTERNAL, "a request ends within its head")
                return None
            await self._more()
        compressed, size = _HEAD.unpack_from(self._read)
        if compressed:
            raise _Ended(grpc.StatusCode.UNIMPLEMENTED, "requests are not compressed by gRPC")
        if size > self._max_bytes:
            raise _Ended(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"a message of {size} bytes is too large: at most {self._max_bytes}",
            )
        end = _HEAD.size + size
        while len(self._read) < end:
            if self._is_whole:
                raise _Ended(grpc.StatusCode.INTERNAL, "a request ends within a message")
            await self._more()
        data = bytes(memoryview(self._read)[_HEAD.size : end])
        del self._read[:end]
        self._held.bytes -= end
        return data

    def close(self) -> None:
        """Give back the room of what was not taken."""
        self._held.bytes -= len(self._read)
        self._read.clear()

    async def alone(self) -> bytes:
        """The only one."""
        data = await self.next()
        if data is None or await self.next() is not None:
            raise _Ended(grpc.StatusCode.INTERNAL, "the method takes one request")
        return data

    async def all(self) -> AsyncIterator[bytes]:
        number = 0
        while (data := await self.next()) is not None:
            yield data
            number += 1
            if number % FRAMES_IN_A_TURN == 0:  # those that came together wait for nothing
                await asyncio.sleep(0)

    async def left(self) -> None:
        """Until the client has left. It has nothing more to say."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()


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
        self._held = _Held()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Always ends the answer: h2corn prints a traceback of one that ends by an error."""
        headers = dict(scope["headers"])
        # A server cannot send trailers, and with them statuses, to who does not say so.
        is_grpc = _GRPC.fullmatch(headers.get(b"content-type", b"")) is not None
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        if not is_grpc or headers.get(b"te") != b"trailers" or scope["http_version"] == "1.1":
            try:
                await self._no_call(is_grpc, scope, receive, send)
            finally:
                self._calls.discard(task)
            return
        requests, answer = _Requests(receive, self._max_bytes, self._held), _Answer(send)
        try:
            await self._serve(scope, requests, answer)
        except _Ended as ended:
            await answer.end(ended.code, str(ended), ended.metadata)
        except TimeoutError:
            await answer.end(grpc.StatusCode.DEADLINE_EXCEEDED, "the call's time is over")
        except asyncio.CancelledError:
            if self._is_closing:
                await answer.end(grpc.StatusCode.UNAVAILABLE, "the gateway stops")
            else:
                await answer.end(grpc.StatusCode.CANCELLED, "the client has left")
        except Exception:
            log.exception("a call failed", extra={"path": scope["path"]})
            await answer.end(grpc.StatusCode.UNKNOWN, "internal error: see the gateway's log")
        finally:
            requests.close()
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

    async def _serve(
        self, scope: Mapping[str, Any], requests: _Requests, answer: "_Answer"
    ) -> None:
        method = self._methods.get(scope["path"])
        if method is None:
            raise _Ended(grpc.StatusCode.UNIMPLEMENTED, f"no method {scope['path'][:200]}")
        call = AsgiCall(scope)
        async with asyncio.timeout(call.time_remaining()):
            if method.takes_stream:
                answers = method.serve(requests.all(), call)
                await _while_there(_stream(answers, method.dump, answer), requests)
            elif method.gives_stream:
                answers = method.serve(await requests.alone(), call)
                giving = _stream(answers, method.dump, answer)
                await _while_there(giving, requests, requests.left())
            else:
                await answer.give(method.dump(await method.serve(await requests.alone(), call)))
        await answer.end(grpc.StatusCode.OK)


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
    requests: _Requests,
    watching: Coroutine[Any, Any, None] | None = None,
) -> None:
    """Cancel the work when the client has left: `watching` notices, or the work as it reads."""
    loop = asyncio.get_running_loop()
    working = loop.create_task(work)
    requests.cancel_when_left(working)
    watcher = loop.create_task(watching) if watching is not None else None
    try:
        await working
    finally:
        working.cancel()
        if watcher is not None:
            watcher.cancel()


class _Answer:
    """Its head goes out with its first message: one that has none is its trailers alone."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._has_begun = False
        self._body_has_ended = False

    async def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            await self._send(_START)

    async def give(self, data: bytes) -> None:
        """CancelledError: the client has left."""
        body = _HEAD.pack(0, len(data)) + data
        try:
            await self._begin()
            await self._send({"type": "http.response.body", "body": body, "more_body": True})
        except OSError as error:  # ASGI's for a client that has left
            raise asyncio.CancelledError from error

    async def end(self, code: grpc.StatusCode, message: str = "", metadata: Metadata = ()) -> None:
        trailers = [(b"grpc-status", str(code.value[0]).encode())]
        if message:
            trailers.append((b"grpc-message", quote(message, safe=_PLAIN).encode()))
        trailers += [(name.encode(), _encoded(value)) for name, value in metadata]
        with suppress(OSError):  # the client has left
            await self._begin()
            if not self._body_has_ended:
                self._body_has_ended = True
                await self._send(_END)
            await self._send(
                {"type": "http.response.trailers", "headers": trailers, "more_trailers": False}
            )
