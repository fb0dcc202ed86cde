"""Sockets for the event loop: listening, accepting, waiting until one can be read or written."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine
from logging import getLogger
from typing import Any

from stratamq.rpc.address import split_address
from stratamq.service.logging import PEERS
from stratamq.service.ports import cannot_listen

log, of_peers = getLogger(__name__), getLogger(PEERS)

BACKLOG = 1024
ACCEPT_AGAIN_S = 1.0


def listen(address: str, who: str) -> socket.socket:
    """A listening socket that does not block. ConfigurationError, which names `who` waits there."""
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it. Without it the second part of an answer waits for the peer to
        # acknowledge the first, which it puts off by 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        fault = f"{who} cannot listen on {address}: {error.strerror or error}"
        raise cannot_listen(fault, error) from error
    listener.setblocking(False)
    return listener


class AcceptedConnections:
    """The connections to a listener until each has begun. Belongs to the event loop."""

    def __init__(self, begin: Callable[[socket.socket], Coroutine[Any, Any, None]]) -> None:
        """`begin` is given a connection that does not block, which is closed if it raises OSError
        or EOFError."""
        self._begin = begin
        self._beginning: set[asyncio.Task[None]] = set()

    async def serve(self, listener: socket.socket) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                try:
                    connection, _ = await loop.sock_accept(listener)
                except OSError as error:  # too many open files
                    log.warning("cannot take connections", extra={"why": error})
                    await asyncio.sleep(ACCEPT_AGAIN_S)
                    continue
                task = loop.create_task(self._begun(connection))
                self._beginning.add(task)
                task.add_done_callback(self._beginning.discard)

    def cancel(self) -> None:
        """Close those that have not begun."""
        for task in self._beginning:
            task.cancel()

    async def _begun(self, connection: socket.socket) -> None:
        try:
            connection.setblocking(False)
            await self._begin(connection)
        except (OSError, EOFError) as error:  # TimeoutError and ssl.SSLError are OSError
            of_peers.info("a connection did not begin", extra={"why": error})
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise


async def first_byte(connection: socket.socket) -> bytes:
    """The first byte that comes, which stays in the socket. EOFError when none does."""
    while True:
        with contextlib.suppress(BlockingIOError):
            first = connection.recv(1, socket.MSG_PEEK)
            if not first:
                raise EOFError("the peer closed the connection")
            return first
        await readable(connection)


async def first_bytes(connection: socket.socket, count: int) -> bytes:
    """The first ones that come, which stay in the socket; fewer when the peer has ended."""
    try:
        # Otherwise it would be readable by what has been looked at.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
        await readable(connection)
        return connection.recv(count, socket.MSG_PEEK)
    finally:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


async def readable(connection: socket.socket) -> None:
    """Until the socket has bytes, or its end has come."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    descriptor = connection.fileno()
    loop.add_reader(descriptor, _resolve, ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


async def writable(connection: socket.socket) -> None:
    """Until the socket takes bytes again."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    descriptor = connection.fileno()
    loop.add_writer(descriptor, _resolve, ready)
    try:
        await ready
    finally:
        loop.remove_writer(descriptor)


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
