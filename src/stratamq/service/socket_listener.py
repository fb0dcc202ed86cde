"""The service's side of `rpc.socket_calls`: the handlers of its gRPC servers, called without
gRPC."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
from grpc.aio import EOF, AbortError

from stratamq.rpc.request_ids import KEY
from stratamq.rpc.sized_frames import SIZE, Frame, SizedFrames
from stratamq.rpc.socket_calls import (
    ENDED,
    LAST,
    MAX_UNREAD_BYTES,
    OK,
    STREAM,
    Begin,
    decode_begin,
    encode_error,
)
from stratamq.service.grpc_callers import DELEGATED

HandlerOf = Callable[[str], grpc.RpcMethodHandler | None]
"""A method's handler, wrapped (`guarded_handlers`)."""
BACKLOG = 1_024
"""So many connections may be made while the event loop does something else."""

MAX_REQUEST_BYTES = (8 << 20) + 4_096
"""gRPC's limit, and room for a call's names and caller."""
LINGER_S = 5.0
"""For so long a stream's caller may take to read the last answer and close."""


class SocketListener:
    """Answers processes of this machine that may use the socket."""

    def __init__(self) -> None:
        self.handler_of: HandlerOf = lambda method: None
        self._server: asyncio.AbstractServer | None = None
        self._path: Path | None = None
        self._connections: set[_Connection] = set()

    async def listen(self, path: Path) -> None:
        """In a directory that is this user's alone. OSError."""
        path.unlink(missing_ok=True)  # of a process that was killed
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._connection, path, backlog=BACKLOG)
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


class _Connection(SizedFrames):
    """One connection: a call at a time."""

    longest = MAX_REQUEST_BYTES

    def __init__(self, connections: "set[_Connection]", handler_of: HandlerOf) -> None:
        super().__init__()
        self._connections = connections
        self._handler_of = handler_of
        self._call: asyncio.Task[None] | None = None
        self._context: _Context | None = None
        self._room: asyncio.Future[None] | None = None
        self._next: Frame | None = None
        """A call that came before the last one's task had ended."""
        self._full = False
        self._stopping = False
        self._lingering: asyncio.TimerHandle | None = None
        """The stream is over, and what its caller still sends is dropped."""

    def stop(self) -> asyncio.Task[None] | None:
        """Take no further call; the one that is under way."""
        self._stopping = True
        if self._call is None:
            self.close()
        return self._call

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._connections.discard(self)
        if self._lingering is not None:
            self._lingering.cancel()
        self.resume_writing()
        if self._call is not None:
            self._call.cancel()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def ends(self, size: int) -> bool:
        return size == LAST

    def received(self, frame: Frame | None) -> None:
        if self._lingering is not None:
            return
        if self._context is None:
            self._begin(frame)
        elif self._context.streams:
            self._context.take(frame)
        elif self._next is None:  # the answer is sent, and the task about to end
            self._next = frame
        else:
            self.close()

    def _begin(self, frame: Frame | None) -> None:
        begin = None if frame is None else decode_begin(bytes(frame))
        handler = None if begin is None else self._handler_of(begin.method)
        if begin is None or handler is None or self._stopping:
            self.close()
            return
        self._context = _Context(begin, self._pause)
        self._call = asyncio.create_task(self._serve(handler, self._context))
        self._call.add_done_callback(self._ended)

    def _pause(self, pause: bool) -> None:
        if self.transport is not None and not self.transport.is_closing():
            (self.transport.pause_reading if pause else self.transport.resume_reading)()

    async def _serve(self, handler: grpc.RpcMethodHandler, context: "_Context") -> None:
        serialize = handler.response_serializer or bytes
        if not (context.streams or handler.stream_unary):
            self.close()  # a stream of answers to one request goes by gRPC
            return
        try:
            if handler.stream_unary is not None:
                response = await handler.stream_unary(context.requests(), context)
                await self._answer(OK, serialize(response))
                return
            async with aclosing(handler.stream_stream(context.requests(), context)) as responses:
                async for response in responses:
                    await self._answer(OK, serialize(response))
            await self._answer(ENDED, b"")
        except RefusedCall as refused:
            self.send(refused.answer)

    async def _answer(self, status: int, message: bytes) -> None:
        self.send(SIZE.pack(1 + len(message)) + bytes((status,)), message)
        if self._full:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def _ended(self, call: asyncio.Task[None]) -> None:
        context, self._context, self._call = self._context, None, None
        frame, self._next = self._next, None
        failed = call.cancelled() or call.exception() is not None
        if failed or self._stopping or context is None:
            self.close()
        elif context.streams:
            self._linger()
        elif frame is not None:
            self._begin(frame)
        if not call.cancelled():
            call.result()

    def _linger(self) -> None:
        """The caller closes when it has read the last answer. To close first would break what it is
        writing, and it would hear of that instead: a refusal came as a broken pipe."""
        self._lingering = asyncio.get_running_loop().call_later(LINGER_S, self.close)
        self._pause(False)


class RefusedCall(AbortError):
    """The call ends with this answer."""

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self.answer = answer


class _Context:
    """What `GuardedHandlers` use of gRPC's context."""

    def __init__(self, begin: Begin, pause: Callable[[bool], None]) -> None:
        self.streams = begin.kind == STREAM
        self._metadata: tuple[tuple[str, Any], ...] = ()
        if begin.caller:
            self._metadata = ((DELEGATED, begin.caller),)
        if begin.traceparent:
            self._metadata += ((KEY, begin.traceparent),)
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + begin.left_ms / 1000 if begin.left_ms else None
        self._pause = pause
        self._unread: deque[Frame | None] = deque()
        self._unread_bytes = 0
        self._waiting: asyncio.Future[None] | None = None
        if not self.streams:
            self._unread += (begin.message, None)

    def take(self, frame: Frame | None) -> None:
        """A request of the stream, or its end."""
        self._unread.append(frame)
        self._unread_bytes += len(frame or b"")
        if self._unread_bytes > MAX_UNREAD_BYTES:
            self._pause(True)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def peer(self) -> str:
        return "unix:"

    def invocation_metadata(self) -> tuple[tuple[str, Any], ...]:
        return self._metadata

    def time_remaining(self) -> float | None:
        """A caller whose time is over closes the connection."""
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - asyncio.get_running_loop().time())

    async def read(self) -> Any:
        if not self._unread:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        frame = self._unread.popleft()
        if frame is None:
            self._unread.append(None)
            return EOF
        was_full = self._unread_bytes > MAX_UNREAD_BYTES
        self._unread_bytes -= len(frame)
        if was_full and self._unread_bytes <= MAX_UNREAD_BYTES:
            self._pause(False)
        return frame

    async def requests(self) -> AsyncIterator[Any]:
        while (request := await self.read()) is not EOF:
            yield request

    async def abort(
        self, code: grpc.StatusCode, details: str, metadata: tuple[tuple[str, str], ...] = ()
    ) -> None:
        raise RefusedCall(encode_error(code, details, dict(metadata)))
