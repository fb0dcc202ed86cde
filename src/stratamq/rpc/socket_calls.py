"""Calls between the processes of one broker, over a Unix socket without gRPC.

A small call by gRPC costs both processes together 1.7 ms of CPU when messages come one by one,
because each of its steps wakes several threads; the same call here costs 0.2 ms. Under SYNC_MASTER
every message waits for two such calls: the slave's `AppendData`, the master's `ReportReplication`.

    begin     u32 size of what follows | u8 kind | u32 ms left, 0: unlimited
              | u8 size, method | u8 size, traceparent | u16 size, caller | message
    request   u32 size of what follows | message         further ones, of a call of kind STREAM
              u32 LAST                                   there are no more
    answer    u32 size of what follows | u8 status, as gRPC numbers it | message
              of an error: JSON, [sentence, {trailing metadata}]
              status ENDED: a stream of answers is over

Numbers are big-endian. A connection carries one call at a time; that of a stream ends with it.
`caller` is the message that is the metadata `stratamq-caller-bin` of gRPC, by which a front
(`service.front`) names its caller; empty: the process calls for itself. Methods, handlers, errors
and deadlines are those of gRPC (decision 096); a caller that ends its call early closes the
connection, and where no connection can be made the call goes by gRPC.
"""

import asyncio
import contextlib
import json
import resource
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import grpc
from grpc.aio import EOF, AioRpcError, Metadata

from stratamq.rpc.sized_frames import SIZE, Frame, SizedFrames

SINGLE, STREAM = 0, 1
OK, ENDED = 0, 0xFF
LAST = 0xFFFF_FFFF
MAX_CONNECTIONS = 1_024
"""The most single calls at a time, held ones among them, each of which takes a descriptor here and
in the service; further ones go by gRPC. Fewer where a process may have few descriptors."""
MAX_IDLE = MIN_CONNECTIONS = 64
"""Connections that are kept for further calls, and that any process may have."""
MAX_STREAMS = 256
"""The most streams at a time, each of which takes a descriptor here and in the service; further
ones go by gRPC, over one connection for all."""
MAX_UNREAD_BYTES = 1 << 18
"""Answers or requests of a stream that wait for their reader. Behind so many nothing more is
received."""
Connection = TypeVar("Connection", bound=asyncio.BaseProtocol)
_BEGIN = struct.Struct(">IBIB")
_CALLER_SIZE = struct.Struct(">H")
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Begin(NamedTuple):
    """What a call begins with."""

    kind: int
    left_ms: int
    method: str
    traceparent: str
    caller: bytes
    message: bytes


def left_ms_of(timeout_s: float | None) -> int:
    """`Begin.left_ms` of a call that may take so long."""
    return 0 if timeout_s is None else max(1, round(timeout_s * 1000))


def encode_begin(begin: Begin) -> bytes:
    """`method` and `traceparent` are ASCII, and at most 255 bytes long."""
    name, parent = begin.method.encode("ascii"), begin.traceparent.encode("ascii")
    size = _BEGIN.size - SIZE.size + len(name) + 1 + len(parent) + _CALLER_SIZE.size
    size += len(begin.caller) + len(begin.message)
    return b"".join(
        (
            _BEGIN.pack(size, begin.kind, begin.left_ms, len(name)),
            name,
            bytes((len(parent),)),
            parent,
            _CALLER_SIZE.pack(len(begin.caller)),
            begin.caller,
            begin.message,
        )
    )


def decode_begin(data: bytes) -> Begin | None:
    """What follows the size; None when it begins no call."""
    try:
        _, kind, left_ms, name_size = _BEGIN.unpack_from(bytes(SIZE.size) + data[:6])
        at = _BEGIN.size - SIZE.size
        name_end = at + name_size
        parent_end = name_end + 1 + data[name_end]
        (caller_size,) = _CALLER_SIZE.unpack_from(data, parent_end)
        caller_at = parent_end + _CALLER_SIZE.size
        message_at = caller_at + caller_size
        if message_at > len(data) or kind not in (SINGLE, STREAM):
            return None
        name, parent = data[at:name_end].decode("ascii"), data[name_end + 1 : parent_end]
        caller, message = data[caller_at:message_at], data[message_at:]
        return Begin(kind, left_ms, name, parent.decode("ascii"), caller, message)
    except (IndexError, struct.error, UnicodeDecodeError):
        return None


def encode_error(code: grpc.StatusCode, sentence: str, metadata: Mapping[str, str]) -> bytes:
    document = json.dumps([sentence, dict(metadata)]).encode()
    return SIZE.pack(1 + len(document)) + bytes((code.value[0],)) + document


def message_of(data: Frame) -> Frame:
    """The message of what follows the size. AioRpcError: the service's error."""
    if data and data[0] == OK:
        return data[1:]
    try:
        code = _CODES[data[0]]
        sentence, pairs = json.loads(bytes(data[1:]))
        metadata = Metadata(*((str(name), str(value)) for name, value in pairs.items()))
    except (LookupError, ValueError, TypeError, AttributeError):
        raise call_error(grpc.StatusCode.INTERNAL, "the service's answer cannot be read") from None
    raise AioRpcError(code, Metadata(), metadata, sentence)


def call_error(code: grpc.StatusCode, sentence: str) -> AioRpcError:
    """What gRPC would raise."""
    return AioRpcError(code, Metadata(), Metadata(), sentence)


async def connected(path: str, new: Callable[[], Connection]) -> Connection | None:
    """A connection to the socket at `path`. None: it is not there, its listener has no room, or
    this process no descriptor.

    A Unix socket connects at once or not at all. Where there is no room it says EAGAIN, which
    asyncio's own connecting takes for a connection that will come.
    """
    with contextlib.ExitStack() as made:
        try:
            there = made.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            there.setblocking(False)
            there.connect(path)
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_unix_connection(new, sock=there)
        except OSError:
            return None
        made.pop_all()  # the connection has it
    return connection


class SocketCalls:
    """The calls of this process to one service. Belongs to the event loop."""

    def __init__(self, find: Callable[[], str]) -> None:
        """`find` returns the path of the service's socket, which may not be there; "": it has none
        for this process."""
        self._find = find
        self._most = _most_connections()
        self._idle: list[_Connection] = []
        """Those on which no call waits for its answer."""
        self._open: set[_Connection] = set()

    async def ask(self, begin: Begin) -> Frame | None:
        """The answer to a call of kind SINGLE. None: nothing was sent.

        AioRpcError: the service's error, UNAVAILABLE when the connection broke, DEADLINE_EXCEEDED
        when no answer came in time; after both the call may have been carried out.
        """
        connection = await self._free()
        if connection is None:
            return None
        connection.ended = False
        try:
            connection.send(encode_begin(begin))
            async with asyncio.timeout(begin.left_ms / 1000 if begin.left_ms else None):
                answer = await connection.next()
            connection.ended = True
        except TimeoutError:
            raise call_error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
        finally:
            is_kept = connection.ended and len(self._idle) < MAX_IDLE
            if is_kept and connection.transport is not None:
                self._idle.append(connection)
            else:
                connection.close()
        return message_of(answer)

    async def close(self) -> None:
        """End all connections, and the calls on them."""
        for connection in list(self._open):
            connection.close()

    async def _free(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.transport is not None and not connection.transport.is_closing():
                return connection
        return None if len(self._open) >= self._most else await self.connect()

    async def connect(self) -> "_Connection | None":
        """None when none can be made."""
        path = self._find()
        return await connected(path, self._new) if path else None

    async def connect_stream(self) -> "_Connection | None":
        """The same, for a stream, which keeps it. None when there are MAX_STREAMS as well."""
        if len(self._open) >= self._most + MAX_STREAMS:
            return None
        return await self.connect()

    def _new(self) -> "_Connection":
        connection = _Connection(self._lost)
        self._open.add(connection)
        return connection

    def _lost(self, connection: "_Connection") -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)


def _most_connections() -> int:
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return min(MAX_CONNECTIONS, max(MIN_CONNECTIONS, descriptors // 8))


class WrittenStream:
    """A stream of answers, and one of requests that its caller writes, as gRPC's (grpc.aio), as
    far as they are used. `open` comes first."""

    def __init__(
        self,
        connect: Callable[[], Any],
        begin: Begin,
        by_grpc: Callable[[], Any],
        codecs: tuple[Any, Any],
    ) -> None:
        """`by_grpc` makes the call where no connection can be made. `codecs`: of a request, and of
        an answer; None: they are bytes."""
        self._connect = connect
        self._begin = begin
        self._by_grpc = by_grpc
        self._serialize, self._parse = codecs
        self._grpc: Any = None
        self._connection: _Connection | None = None
        self._cancelled = False

    async def open(self) -> None:
        connection = await self._connect()
        if self._cancelled:
            if connection is not None:
                connection.close()
        elif connection is None:
            self._grpc = self._by_grpc()
        else:
            self._connection = connection
            connection.send(encode_begin(self._begin))

    async def write(self, request: Any) -> None:
        """InvalidStateError when the call has ended; why, `read` says."""
        if self._grpc is not None:
            await self._grpc.write(request)
            return
        connection = self._connection
        if connection is None or connection.transport is None:
            raise asyncio.InvalidStateError("the stream has ended")
        message = request if self._serialize is None else self._serialize(request)
        connection.send(SIZE.pack(len(message)), message)
        if connection.is_full:
            await connection.room()

    async def done_writing(self) -> None:
        if self._grpc is not None:
            await self._grpc.done_writing()
        elif self._connection is not None:
            self._connection.send(SIZE.pack(LAST))

    async def read(self) -> Any:
        """The next answer; EOF behind the last one. AioRpcError: why it ended. CancelledError once
        the call was cancelled: the task was not."""
        if self._grpc is not None:
            return await self._grpc.read()
        connection = self._connection
        if connection is None or self._cancelled:
            raise asyncio.CancelledError
        try:
            answer = await connection.next()
        except grpc.RpcError:
            if self._cancelled:
                raise asyncio.CancelledError from None
            raise
        if answer[0] == OK:
            return answer[1:] if self._parse is None else self._parse(bytes(answer[1:]))
        connection.close()
        return EOF if answer[0] == ENDED else message_of(answer)

    def cancel(self) -> None:
        self._cancelled = True
        if self._grpc is not None:
            self._grpc.cancel()
        if self._connection is not None:
            self._connection.close()


class StreamCall(WrittenStream):
    """The same, with requests that an iterator gives."""

    def __init__(self, requests: AsyncIterator[Any], *given: Any) -> None:
        super().__init__(*given)
        self._made = asyncio.Event()
        self._sending = asyncio.create_task(self._send(requests))

    async def read(self) -> Any:
        await self._made.wait()
        answer = await super().read()
        if answer is EOF:
            self._sending.cancel()
        return answer

    def cancel(self) -> None:
        self._sending.cancel()
        super().cancel()

    async def _send(self, requests: AsyncIterator[Any]) -> None:
        try:
            await self.open()
        finally:
            self._made.set()
        try:
            async for request in requests:
                await self.write(request)
            await self.done_writing()
        except asyncio.InvalidStateError:
            return  # `read` says why
        except BaseException:
            super().cancel()
            raise


class _Connection(SizedFrames):
    def __init__(self, on_end: Callable[["_Connection"], None]) -> None:
        super().__init__()
        self._on_end = on_end
        self._answers: deque[Frame] = deque()
        self._unread_bytes = 0
        self._reader: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self.is_full = False
        """The peer does not read as fast as is sent."""
        self.ended = False
        self._why = "the connection broke"

    async def next(self) -> Frame:
        """The next answer. AioRpcError when the connection broke."""
        if not self._answers:
            if self.transport is None:
                raise call_error(grpc.StatusCode.UNAVAILABLE, self._why)
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        answer = self._answers.popleft()
        was_full = self._unread_bytes > MAX_UNREAD_BYTES
        self._unread_bytes -= len(answer)
        if was_full and self._unread_bytes <= MAX_UNREAD_BYTES and self.transport is not None:
            self.transport.resume_reading()
        return answer

    async def room(self) -> None:
        """Wait until it is not full, or has ended."""
        self._room = asyncio.get_running_loop().create_future()
        await self._room

    def received(self, frame: Frame) -> None:
        if not frame:
            self.close()  # it has no status
            return
        self._answers.append(frame)
        self._unread_bytes += len(frame)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
        if self.transport is not None and self._unread_bytes > MAX_UNREAD_BYTES:
            self.transport.pause_reading()

    def close(self) -> None:
        """At once: a service that is stopped, not dead, does not read what was written, which
        would stay here with the connection, and who waits for an answer with it."""
        if self.transport is not None:
            self.transport.abort()

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._why = f"the connection broke: {exc or 'closed'}"
        self._on_end(self)
        self.resume_writing()
        if self._reader is not None and not self._reader.done():
            self._reader.set_exception(call_error(grpc.StatusCode.UNAVAILABLE, self._why))
