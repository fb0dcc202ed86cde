"""Serves the pages within the service's event loop, until it is cancelled."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from stratamq.service.caller import is_loopback
from stratamq.service.tls import Contexts

GRACE_S = 2
"""For requests that are being answered at a stop; live pages end with their next event."""
KEEP_ALIVE_S = 30
REQUEST_S, READ_S = 60, 60
"""For a request to arrive whole, its form too; for a browser to take some of what it asked for."""
MAX_CONCURRENT, MAX_OF_A_HOST = 512, 256
"""Open connections and requests. A connection beyond them takes the place of the one that has
waited longest for a request, or else for its browser to read; where all are being answered, it is
answered 503. Of another machine more are not taken: no one host has all."""


class PatientProtocol(H11Protocol):
    """A connection that ends when its browser makes no progress. Uvicorn waits without end for a
    first request, for the rest of one, and for a browser that does not read."""

    _request: asyncio.TimerHandle | None = None
    _reader: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        host = self.client[0] if self.client is not None else ""
        of_host = sum(one.client is not None and one.client[0] == host for one in self._all())
        if host and of_host > MAX_OF_A_HOST and not is_loopback(host):
            transport.abort()
        if len(self.connections) >= MAX_CONCURRENT:
            self._make_room()
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        cycle = self.cycle
        if cycle is not None and not cycle.more_body and not cycle.response_complete:
            self._whole()

    def on_response_complete(self) -> None:
        self._await_request()  # also for what it has yet to read of this answer
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reader = self.loop.call_later(READ_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._read()
        super().resume_writing()

    def _all(self) -> "list[PatientProtocol]":
        return [one for one in self.connections if isinstance(one, PatientProtocol)]

    def _make_room(self) -> None:
        """Many requests at once, whose answers are not read, keep a connection busy for as long as
        a browser may take; of a connection without a request less is lost."""
        everyone = self._all()
        waiting = {one: one._request.when() for one in everyone if one._request is not None}
        unread = {one: one._reader.when() for one in everyone if one._reader is not None}
        if found := waiting or unread:
            longest = min(found, key=found.__getitem__)
            longest._forget()  # it is chosen once, though it is lost only in the loop's next turn
            longest.transport.abort()

    def _await_request(self) -> None:
        self._whole()
        self._request = self.loop.call_later(REQUEST_S, self.transport.abort)

    def _whole(self) -> None:
        if self._request is not None:
            self._request.cancel()
            self._request = None

    def _read(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None

    def _forget(self) -> None:
        self._whole()
        self._read()


class _WithinLoop(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        """Tick once a second, for the header `Date`: uvicorn's ten ticks wake an idle machine."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), 1)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None: they are the service's, which stops all of its parts in order."""
        yield


async def serve_pages(app: ASGIApp, listening: socket.socket, contexts: Contexts | None) -> None:
    """`contexts`: HTTPS, with the certificate as it is at each connection."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        limit_concurrency=MAX_CONCURRENT,
        http=PatientProtocol,
        loop="asyncio",
        ssl_context_factory=None if contexts is None else lambda *_: _renewing(contexts),
    )
    server = _WithinLoop(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.stop()
        await serving
        raise


def _renewing(contexts: Contexts) -> ssl.SSLContext:
    def use_current(connection: ssl.SSLObject, _name: str, _context: ssl.SSLContext) -> None:
        connection.context = contexts()

    first = contexts()
    first.sni_callback = use_current
    return first
