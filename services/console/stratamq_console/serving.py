"""Serves the pages within the service's event loop, until it is cancelled."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from stratamq.service.tls import Contexts

GRACE_S = 2
"""For requests that are being answered at a stop; live pages end with their next event."""
KEEP_ALIVE_S = 30
MAX_CONCURRENT = 512
"""Open connections and requests; more are answered 503."""


class _WithinLoop(uvicorn.Server):
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
        http="h11",
        loop="asyncio",
        ssl_context_factory=None if contexts is None else lambda *_: _renewing(contexts),
    )
    server = _WithinLoop(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await serving
        raise


def _renewing(contexts: Contexts) -> ssl.SSLContext:
    def use_current(connection: ssl.SSLObject, _name: str, _context: ssl.SSLContext) -> None:
        connection.context = contexts()

    first = contexts()
    first.sni_callback = use_current
    return first
