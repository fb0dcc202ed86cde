"""One client's connection: cuts what it receives into commands, and runs each as a task. Only sends
that go to the log undecoded have no task: they wait for their batch (`row_sends.py`).

Requests of one connection do not wait for each other, and are answered in any order. Reading pauses
while `MAX_REQUESTS` requests are unanswered, or while the peer leaves `MAX_UNSENT_BYTES` of answers
in the socket's buffer.
"""

import asyncio
import socket
import struct
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from logging import getLogger
from typing import Any, Protocol

from stratamq.errors import InvalidRequestError, StrataError, UnavailableError
from stratamq.rpc.request_ids import Request, within
from stratamq.service.access import AccessControl
from stratamq.service.caller import Caller, common_name, ip_host
from stratamq.service.entrance import Entrance
from stratamq.service.front import Front, FrontClient
from stratamq.service.logging import DEFECTS, PEERS
from stratamq_gateway.codes import FAILURES, ResponseCode, code_of
from stratamq_gateway.frames import (
    ACCESS_KEY,
    SIGNATURE,
    Answer,
    Command,
    FrameBuffer,
    encode_answer,
    encode_request,
)
from stratamq_gateway.metrics import FAILED, requests_of
from stratamq_gateway.pulls_at_once import answer_at_once
from stratamq_gateway.row_sends import RowSends

defects, of_peers = getLogger(DEFECTS), getLogger(PEERS)

_LINGER = struct.Struct("ii")
"""On or off, and for how many seconds."""

MAX_REQUESTS = 2_000
MAX_CALLERS = 16
MAX_UNSENT_BYTES = 8 << 20
LARGE_BYTES = 64 << 10
"""Pieces of more bytes together are sent one by one: to join them costs more than a call."""
ANSWER_S = 10.0
"""How long a client has for an answer."""


class Handler(Protocol):
    use_case: str
    """Whose permission rule it has."""

    def decode(self, command: Command) -> object:
        """The request, with the names that its use case's rule asks for, or an awaitable of it."""

    async def answer(self, client: FrontClient, channel: Any, asked: Any) -> Answer:
        """`channel`: the connection, `asked`: what `decode` has returned. StrataError."""


def resets_when_killed(connection: socket.socket, *, resets: bool) -> None:
    """Whether the system resets the connection if this process ends without closing it. Java's
    clients of 4.x notice no other end: they wait 30 s for each pull that was held. A connection
    that is closed in order must not be reset, or its last answers are lost."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER.pack(resets, 0))


class Connection(asyncio.Protocol):
    """Belongs to the event loop."""

    def __init__(
        self,
        front: Front,
        table: Mapping[int, tuple[Entrance, Handler]],
        lifetimes: "Lifetimes",
    ) -> None:
        self._front = front
        self._table = table
        self._lifetimes = lifetimes
        self._frames = FrameBuffer()
        self._tasks: set[asyncio.Task[None]] = set()
        self._clients: dict[Caller, FrontClient] = {}
        self._sends = RowSends(self)
        self._last_opaque = 0
        self._asked: dict[int, asyncio.Future[Command]] = {}
        """What the client has not answered yet, by the request's number."""
        self.language, self.version = "OTHER", 0
        """What the client's last request says of it."""
        self._paused = False
        self.transport: asyncio.Transport

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        resets_when_killed(transport.get_extra_info("socket"), resets=True)
        transport.set_write_buffer_limits(MAX_UNSENT_BYTES)
        host, port, *_ = transport.get_extra_info("peername")
        encrypted = transport.get_extra_info("sslcontext") is not None
        self._origin = Caller(ip_host(host), port, encrypted)
        self._certificate = common_name(transport.get_extra_info("peercert"))
        self._lifetimes.opened(self)

    def data_received(self, data: bytes) -> None:
        try:
            commands = self._frames.take(data)
        except InvalidRequestError as error:
            said = {"peer": self._origin.address, "why": error}
            of_peers.warning("closed a connection", extra=said)
            self._end_in_order()
            self.transport.abort()
            return
        for command in commands:
            if command.is_answer:
                self._take_answer(command)
            else:
                self.language, self.version = command.language, command.version
                found = self._table.get(command.code)
                if found is None or not (
                    self._sends.take(command, *found) or answer_at_once(self, command, *found)
                ):
                    self.spawn(self._serve(command))
        self._read_on()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def pause_writing(self) -> None:
        self._paused = True
        self._read_on()

    def resume_writing(self) -> None:
        self._paused = False
        self._read_on()

    def eof_received(self) -> None:
        self._end_in_order()

    def _end_in_order(self) -> None:
        """What was sent arrives before the end."""
        resets_when_killed(self.transport.get_extra_info("socket"), resets=False)

    def close(self) -> None:
        """Once what was written is sent."""
        self._end_in_order()
        self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        for task in self._tasks:
            task.cancel()
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_exception(UnavailableError("the client has closed its connection"))
        self._lifetimes.closed(self)
        for client in self._clients.values():
            closing = asyncio.get_running_loop().create_task(client.close())
            self._tasks.add(closing)  # until it has ended: the loop keeps weak references
            closing.add_done_callback(self._tasks.discard)

    # --- ---

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._read_on()

    def _read_on(self) -> None:
        if self.transport.is_closing():
            return
        if self._paused or len(self._tasks) + len(self._sends) >= MAX_REQUESTS:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    async def _serve(self, command: Command) -> None:
        answer = await self._answer(command)
        if not command.is_oneway:
            self.write(encode_answer(answer, command.opaque))

    def write(self, pieces: list[bytes | memoryview]) -> None:
        """Pieces that are large are not copied."""
        if self.transport.is_closing():
            return
        if sum(map(len, pieces)) <= LARGE_BYTES:
            self.transport.writelines(pieces)
        else:
            for piece in pieces:
                self.transport.write(piece)

    async def _answer(self, command: Command) -> Answer:
        found = self._table.get(command.code)
        if found is None:
            remark = f" request type {command.code} not supported"
            return Answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        entrance, handler = found
        requests_of(entrance.method).inc()
        with within(Request()) as request:
            try:
                if command.wrong:
                    raise InvalidRequestError(command.wrong)
                identify = partial(self.caller, entrance.access, command)
                with entrance.enter(identify, request) as call:
                    asked = handler.decode(command)
                    if isawaitable(asked):
                        asked = await asked
                    await call.require(asked)
                    call.require_room()
                    return await handler.answer(self._client(call.caller), self, asked)
            except Exception as error:  # noqa: BLE001 - it is logged, or is the client's
                return self.failure(command, entrance.method, error, request)

    def failure(self, command: Command, method: str, error: Exception, request: Request) -> Answer:
        """What a request that failed is answered."""
        if not isinstance(error, StrataError):
            FAILED.labels(method).inc()
            defects.error("a request failed", exc_info=error, extra={"code": command.code})
            remark = f"internal error ({request.id}): see the gateway's log"
            return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        if command.is_oneway:
            of_peers.warning(
                "a request without an answer failed",
                extra={"peer": self._origin.address, "code": command.code, "why": error},
            )
        code = code_of(error)
        if code in FAILURES:
            FAILED.labels(method).inc()
        return Answer(code, remark=f"{error} ({request.id})")

    @property
    def address(self) -> str:
        return self._origin.address

    def caller(self, access: AccessControl | None, command: Command) -> Caller:
        user, signature = command.fields.get(ACCESS_KEY), command.fields.get(SIGNATURE)
        if access is None:
            return self._origin
        if not self._certificate and user and signature:
            return access.by_signature(self._origin, user, signature, command.signed_content())
        return access.identify(self._origin, self._certificate)

    def known_client(self, caller: Caller) -> FrontClient | None:
        """The caller's, if it has called before."""
        return self._clients.get(caller)

    def _client(self, caller: Caller) -> FrontClient:
        """What the broker's services are called with, on behalf of the caller."""
        client = self._clients.get(caller)
        if client is None:
            if len(self._clients) >= MAX_CALLERS:
                raise InvalidRequestError(f"a connection has at most {MAX_CALLERS} callers")
            client = self._clients[caller] = self._front.client(caller)
        return client

    def notify(self, code: int, fields: dict[str, object], body: bytes = b"") -> None:
        if self.transport.is_closing():
            return
        self._last_opaque += 1
        with suppress(ConnectionError):
            self.transport.write(encode_request(code, self._last_opaque, fields, body, oneway=True))

    async def ask(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> Command:
        if self.transport.is_closing():
            raise UnavailableError("the client has closed its connection")
        self._last_opaque += 1
        number = self._last_opaque
        waiting = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self.transport.write(encode_request(code, number, fields, body, oneway=False))
            async with asyncio.timeout(ANSWER_S):
                return await waiting
        finally:
            del self._asked[number]

    def _take_answer(self, command: Command) -> None:
        waiting = self._asked.get(command.opaque)
        if waiting is not None and not waiting.done():
            waiting.set_result(command)


class Lifetimes(Protocol):
    """Told of each connection that can be used, and of its end."""

    def opened(self, channel: Connection) -> None: ...

    def closed(self, channel: Connection) -> None: ...
