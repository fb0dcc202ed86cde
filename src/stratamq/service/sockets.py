"""Sockets for the event loop: listening, and waiting until one can be read or written."""

import asyncio
import contextlib
import socket

from stratamq.rpc.address import split_address
from stratamq.service.ports import cannot_listen

BACKLOG = 1024


def listen(address: str, who: str) -> socket.socket:
    """A listening socket that does not block. ConfigurationError, which names `who` waits there."""
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        fault = f"{who} cannot listen on {address}: {error.strerror or error}"
        raise cannot_listen(fault, error) from error
    listener.setblocking(False)
    return listener


async def first_byte(connection: socket.socket) -> bytes:
    """The first byte that comes, which stays in the socket. EOFError when none does."""
    while True:
        with contextlib.suppress(BlockingIOError):
            first = connection.recv(1, socket.MSG_PEEK)
            if not first:
                raise EOFError("the peer closed the connection")
            return first
        await readable(connection)


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
