"""One client's connection: cuts what it receives into commands, and runs each as a task.

Requests of one connection do not wait for each other, and are answered in any order. A connection
is not read on while `MAX_REQUESTS` of its requests are not answered, or while its peer leaves
`MAX_UNSENT_BYTES` of answers in the socket's buffer.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from inspect import isawaitable
from logging import getLogger
from typing import Any, Protocol

from stratamq.client import AsyncClient
from stratamq.errors import InvalidRequestError, StrataError
from stratamq.rpc.request_ids import Request, within
from stratamq.service.caller import Caller, ip_host
from stratamq.service.entrance import Entrance
from stratamq.service.front import Front
from stratamq_gateway.codes import FAILURES, ResponseCode, code_of
from stratamq_gateway.frames import Answer, Command, FrameBuffer, encode_answer, encode_request
from stratamq_gateway.metrics import FAILED, REQUESTS

log = getLogger(__name__)

MAX_REQUESTS = 2_000
MAX_UNSENT_BYTES = 8 << 20


class Handler(Protocol):
    use_case: str
    """Whose permission rule it has."""

    def decode(self, command: Command) -> object:
        """The request, with the names that its use case's rule asks for, or an awaitable of it."""

    async def answer(self, client: AsyncClient, channel: Any, asked: Any) -> Answer:
        """`channel`: the connection, `asked`: what `decode` has returned. StrataError."""


class Connection(asyncio.Protocol):
    """Belongs to the event loop."""

    def __init__(
        self,
        front: Front,
        table: Mapping[int, tuple[Entrance, Handler]],
        closed: "ClosedListener",
    ) -> None:
        self._front = front
        self._table = table
        self._closed = closed
        self._frames = FrameBuffer()
        self._tasks: set[asyncio.Task[None]] = set()
        self._client: AsyncClient | None = None
        self._last_opaque = 0
        self._paused = False
        self.transport: asyncio.Transport

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(MAX_UNSENT_BYTES)
        host, port, *_ = transport.get_extra_info("peername")
        self.caller = Caller(ip_host(host), port)

    def data_received(self, data: bytes) -> None:
        try:
            commands = self._frames.take(data)
        except InvalidRequestError as error:
            log.warning("closed a connection", extra={"peer": self.caller.address, "why": error})
            self.transport.abort()
            return
        for command in commands:
            if not command.is_answer:
                task = asyncio.get_running_loop().create_task(self._serve(command))
                self._tasks.add(task)
                task.add_done_callback(self._done)
        self._read_on()

    def pause_writing(self) -> None:
        self._paused = True
        self._read_on()

    def resume_writing(self) -> None:
        self._paused = False
        self._read_on()

    def connection_lost(self, error: Exception | None) -> None:
        for task in self._tasks:
            task.cancel()
        self._closed.closed(self)
        if self._client is not None:
            closing = asyncio.get_running_loop().create_task(self._client.close())
            self._tasks.add(closing)  # until it has ended: the loop keeps weak references
            closing.add_done_callback(self._tasks.discard)

    # --- ---

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._read_on()

    def _read_on(self) -> None:
        if self.transport.is_closing():
            return
        if self._paused or len(self._tasks) >= MAX_REQUESTS:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    async def _serve(self, command: Command) -> None:
        answer = await self._answer(command)
        if not command.is_oneway and not self.transport.is_closing():
            self.transport.writelines(encode_answer(answer, command.opaque))

    async def _answer(self, command: Command) -> Answer:
        found = self._table.get(command.code)
        if found is None:
            remark = f" request type {command.code} not supported"
            return Answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        entrance, handler = found
        REQUESTS.labels(entrance.method).inc()
        with within(Request()) as request:
            try:
                with entrance.enter(lambda: self.caller, request) as call:
                    asked = handler.decode(command)
                    if isawaitable(asked):
                        asked = await asked
                    await call.require(asked)
                    call.require_room()
                    return await handler.answer(self.client, self, asked)
            except StrataError as error:
                if command.is_oneway:
                    log.warning(
                        "a request without an answer failed",
                        extra={"peer": self.caller.address, "code": command.code, "why": error},
                    )
                code = code_of(error)
                if code in FAILURES:
                    FAILED.labels(entrance.method).inc()
                return Answer(code, remark=f"{error} ({request.id})")
            except Exception:
                FAILED.labels(entrance.method).inc()
                log.exception("a request failed", extra={"code": command.code})
                remark = f"internal error ({request.id}): see the gateway's log"
                return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)

    @property
    def client(self) -> AsyncClient:
        """What the broker's services are called with, on behalf of this connection's caller."""
        if self._client is None:
            self._client = self._front.client(self.caller)
        return self._client

    def notify(self, code: int, fields: dict[str, object], body: bytes = b"") -> None:
        if self.transport.is_closing():
            return
        self._last_opaque += 1
        with suppress(ConnectionError):
            self.transport.write(encode_request(code, self._last_opaque, fields, body, oneway=True))


class ClosedListener(Protocol):
    def closed(self, channel: Connection) -> None: ...
