"""The service's side of `rpc.local_calls`: the handlers of its gRPC server, called without gRPC."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
from grpc.aio import EOF, AbortError

from stratamq.rpc.local_calls import MAX_BYTES, SIZE, decode_request, encode_answer, encode_error
from stratamq.rpc.request_ids import KEY

HandlerOf = Callable[[str], grpc.RpcMethodHandler | None]
"""A method's handler, wrapped (`guarded_handlers`)."""
MAX_REQUEST_BYTES = MAX_BYTES + 1_024
"""With its size and names."""


class LocalListener:
    """Answers unary methods to processes of this machine that may use the socket."""

    def __init__(self) -> None:
        self.handler_of: HandlerOf = lambda method: None
        self._server: asyncio.AbstractServer | None = None
        self._path: Path | None = None
        self._connections: set[_Connection] = set()

    async def listen(self, path: Path) -> None:
        """In a directory that is this user's alone. OSError."""
        path.unlink(missing_ok=True)  # of a process that was killed
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._connection, path)
        self._path = path
        path.chmod(0o600)

    async def stop(self, grace_s: float) -> None:
        """Take no further call; those under way may end within the time."""
        if self._server is None or self._path is None:
            return
        self._server.close()
        self._path.unlink(missing_ok=True)
        calls = [task for one in self._connections if (task := one.stop()) is not None]
        if calls:
            await asyncio.wait(calls, timeout=grace_s)
        for connection in list(self._connections):
            connection.close()
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls)

    def _connection(self) -> "_Connection":
        return _Connection(self._connections, self.handler_of)


class _Connection(asyncio.Protocol):
    """One connection: a call at a time, in the order in which they come."""

    def __init__(self, connections: set["_Connection"], handler_of: HandlerOf) -> None:
        self._connections = connections
        self._handler_of = handler_of
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._call: asyncio.Task[None] | None = None
        self._stopping = False

    def stop(self) -> asyncio.Task[None] | None:
        """Take no further call; the one that is under way."""
        self._stopping = True
        if self._call is None:
            self.close()
        return self._call

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._connections.discard(self)
        if self._call is not None:
            self._call.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._call is None:
            self._begin()
        elif len(self._received) > MAX_REQUEST_BYTES and self._transport is not None:
            self._transport.pause_reading()

    def _begin(self) -> None:
        """The next call, if it is there."""
        received = self._received
        if len(received) < SIZE.size or self._transport is None:
            return
        end = SIZE.size + SIZE.unpack_from(received)[0]
        if end > MAX_REQUEST_BYTES:
            self._transport.close()
            return
        if len(received) < end:
            return
        request = decode_request(bytes(received[SIZE.size : end]))
        del received[:end]
        handler = None if request is None else self._handler_of(request[0])
        if request is None or handler is None or handler.stream_unary is None:
            self._transport.close()
            return
        _, traceparent, message = request
        self._call = asyncio.create_task(self._serve(handler, message, traceparent))
        self._call.add_done_callback(self._ended)

    async def _serve(
        self, handler: grpc.RpcMethodHandler, message: bytes, traceparent: str
    ) -> None:
        context = _Context(message, traceparent)
        try:
            response = await handler.stream_unary(context.requests(), context)
            serialize = handler.response_serializer
            answer = encode_answer(response if serialize is None else serialize(response))
        except _Refused as refused:
            answer = refused.answer
        if self._transport is not None:
            self._transport.write(answer)

    def _ended(self, call: asyncio.Task[None]) -> None:
        self._call = None
        if call.cancelled() or call.exception() is not None or self._stopping:
            self.close()
            if not call.cancelled():
                call.result()
            return
        if self._transport is not None and not self._transport.is_reading():
            self._transport.resume_reading()
        self._begin()


class _Refused(AbortError):
    """The call ends with this answer."""

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self.answer = answer


class _Context:
    """What `GuardedHandlers` use of gRPC's context."""

    def __init__(self, message: bytes, traceparent: str) -> None:
        self._message: Any = message
        self._traceparent = traceparent

    def peer(self) -> str:
        return "unix:"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ((KEY, self._traceparent),) if self._traceparent else ()

    def time_remaining(self) -> None:
        """The caller's deadline closes the connection."""

    async def read(self) -> Any:
        message, self._message = self._message, EOF
        return message

    async def requests(self) -> AsyncIterator[bytes]:
        yield await self.read()

    async def abort(
        self, code: grpc.StatusCode, details: str, metadata: tuple[tuple[str, str], ...]
    ) -> None:
        raise _Refused(encode_error(code, details, dict(metadata)))
