"""Unary calls between the processes of one broker, over a Unix socket without gRPC.

A small call by gRPC costs both processes together 1.7 ms of CPU when messages come one by one,
because each of its steps wakes several threads; the same call here costs 0.2 ms. Under SYNC_MASTER
every message waits for two such calls: the slave's `AppendData`, the master's `ReportReplication`.

    request   u32 size of what follows | u8 size, method | u8 size, traceparent | message
    answer    u32 size of what follows | u8 status, as gRPC numbers it | message
              of an error: JSON, [sentence, {trailing metadata}]

Numbers are big-endian. A connection carries one call at a time. Methods, handlers, errors and
deadlines are those of gRPC; a caller that ends its call early closes the connection, and where no
connection can be made the call goes by gRPC.
"""

import asyncio
import json
import struct
from collections.abc import Callable, Mapping

import grpc
from grpc.aio import AioRpcError, Metadata

from stratamq.rpc.request_ids import current

SIZE = struct.Struct(">I")
MAX_BYTES = 128 << 10
"""A larger message goes by gRPC: it is not small beside what the call costs, and would not fit the
socket's buffer."""
OK = 0
_CODES = {code.value[0]: code for code in grpc.StatusCode}


def encode_request(method: str, traceparent: str, message: bytes) -> bytes:
    """`method` and `traceparent` are ASCII, and at most 255 bytes long."""
    name, parent = method.encode("ascii"), traceparent.encode("ascii")
    size = 2 + len(name) + len(parent) + len(message)
    head = SIZE.pack(size), bytes((len(name),)), name, bytes((len(parent),)), parent
    return b"".join((*head, message))


def decode_request(data: bytes) -> tuple[str, str, bytes] | None:
    """Method, traceparent and message of what follows the size; None when it is no request."""
    try:
        name_end = 1 + data[0]
        parent_end = name_end + 1 + data[name_end]
        if parent_end > len(data):
            return None
        name, parent = data[1:name_end].decode("ascii"), data[name_end + 1 : parent_end]
        return name, parent.decode("ascii"), data[parent_end:]
    except (IndexError, UnicodeDecodeError):
        return None


def encode_answer(message: bytes) -> bytes:
    return SIZE.pack(1 + len(message)) + b"\0" + message


def encode_error(code: grpc.StatusCode, sentence: str, metadata: Mapping[str, str]) -> bytes:
    document = json.dumps([sentence, dict(metadata)]).encode()
    return SIZE.pack(1 + len(document)) + bytes((code.value[0],)) + document


def _message(data: bytes) -> bytes:
    """The message of what follows the size. AioRpcError: the service's error."""
    if data[:1] == b"\0":
        return data[1:]
    try:
        code = _CODES[data[0]]
        sentence, pairs = json.loads(data[1:])
        metadata = Metadata(*((str(name), str(value)) for name, value in pairs.items()))
    except (LookupError, ValueError, TypeError, AttributeError):
        raise _error(grpc.StatusCode.INTERNAL, "the service's answer cannot be read") from None
    raise AioRpcError(code, Metadata(), metadata, sentence)


def _error(code: grpc.StatusCode, sentence: str) -> AioRpcError:
    return AioRpcError(code, Metadata(), Metadata(), sentence)


class LocalCalls:
    """The calls of this process to one service. Belongs to the event loop."""

    def __init__(self, find: Callable[[], str]) -> None:
        """`find` returns the path of the service's socket; "": it has none for this process."""
        self._find = find
        self._idle: list[_Connection] = []
        """Those on which no call waits for its answer."""
        self._open: set[_Connection] = set()

    async def ask(self, method: str, message: bytes, timeout_s: float) -> bytes | None:
        """The answer; None when no connection can be made: nothing was sent.

        AioRpcError: the service's error, UNAVAILABLE when the connection broke, DEADLINE_EXCEEDED
        when no answer came in time; after both the call may have been carried out.
        """
        connection = self._idle.pop() if self._idle else await self._connect()
        if connection is None:
            return None
        request = current()
        traceparent = "" if request is None else request.traceparent
        try:
            async with asyncio.timeout(timeout_s):
                answer = await connection.ask(encode_request(method, traceparent, message))
        except TimeoutError:
            raise _error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
        finally:
            connection.end_call()
        if connection.is_open:
            self._idle.append(connection)
        return _message(answer)

    async def close(self) -> None:
        """End all connections, and the calls on them."""
        for connection in list(self._open):
            connection.close()

    async def _connect(self) -> "_Connection | None":
        path = self._find()
        if not path:
            return None
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_unix_connection(self._new, path)
        except OSError:
            return None
        return connection

    def _new(self) -> "_Connection":
        connection = _Connection(self._ended)
        self._open.add(connection)
        return connection

    def _ended(self, connection: "_Connection") -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)


class _Connection(asyncio.Protocol):
    """One connection, which carries one call at a time."""

    def __init__(self, on_end: Callable[["_Connection"], None]) -> None:
        self._on_end = on_end
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answer: asyncio.Future[bytes] | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def ask(self, request: bytes) -> bytes:
        """What follows the size of the answer. AioRpcError: the connection broke."""
        self._answer = asyncio.get_running_loop().create_future()
        if self._transport is None:
            raise _error(grpc.StatusCode.UNAVAILABLE, "the connection broke")
        self._transport.write(request)
        return await self._answer

    def end_call(self) -> None:
        """The caller waits no longer; a connection that may yet bring its answer is closed."""
        answer, self._answer = self._answer, None
        if answer is None or not answer.done() or answer.cancelled() or answer.exception():
            self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        if len(received) < SIZE.size:
            return
        end = SIZE.size + SIZE.unpack_from(received)[0]
        if len(received) < end:
            return
        if self._answer is None or self._answer.done() or len(received) > end:
            self.close()  # it answers what was not asked
            return
        self._answer.set_result(bytes(received[SIZE.size :]))
        received.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._on_end(self)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(
                _error(grpc.StatusCode.UNAVAILABLE, f"the connection broke: {exc or 'closed'}")
            )
