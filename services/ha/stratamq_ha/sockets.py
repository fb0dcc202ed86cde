"""Sockets for the event loop: listening, connecting, whole writes, files without copying."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from weakref import WeakKeyDictionary

from stratamq.files.port import File
from stratamq.rpc.address import join_address, split_address
from stratamq.service.sockets import readable, writable
from stratamq_ha.host_names import HostNames

Secure = Callable[[socket.socket, str], Awaitable[socket.socket]]
"""From a connection to a host, the socket on which the protocol goes on. OSError."""
_secure: WeakKeyDictionary[asyncio.AbstractEventLoop, Secure] = WeakKeyDictionary()
_names: WeakKeyDictionary[asyncio.AbstractEventLoop, HostNames] = WeakKeyDictionary()


def address_of(name: tuple[object, ...]) -> str:
    """`host:port` of what `getsockname`, `accept` and `getpeername` give."""
    host, port = str(name[0]).removeprefix("::ffff:"), int(str(name[1]))
    return join_address(host, port)


def encrypt(secure: Secure) -> None:
    """What `connect` makes of each connection of this event loop from now on."""
    _secure[asyncio.get_running_loop()] = secure


async def connect(address: str) -> socket.socket:
    """OSError. Tries every address that the name has."""
    connection = await _connected(address)
    secure = _secure.get(asyncio.get_running_loop())
    if secure is None:
        return connection
    try:
        return await secure(connection, split_address(address)[0])
    except BaseException:
        connection.close()
        raise


async def _connected(address: str) -> socket.socket:
    loop = asyncio.get_running_loop()
    host, port = split_address(address)
    found = await _names.setdefault(loop, HostNames()).addresses(host, port)
    failure: OSError = OSError(f"{address} has no address")
    for family, kind, protocol, _, where in found:
        connection = socket.socket(family, kind, protocol)
        connection.setblocking(False)
        try:
            await loop.sock_connect(connection, where)
        except OSError as error:
            connection.close()
            failure = error
        except BaseException:
            connection.close()
            raise
        else:
            prepare(connection)
            return connection
    raise failure


def prepare(connection: socket.socket) -> None:
    """Disable delays like RocketMQ, and detect peers whose machine is gone."""
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


async def send(connection: socket.socket, data: bytes, *, more: bool = False) -> None:
    """All of `data`; `more`: what follows at once may share its packet."""
    flags = socket.MSG_MORE if more else 0
    left = memoryview(data)
    while left:
        try:
            left = left[connection.send(left, flags) :]
        except BlockingIOError:
            await writable(connection)


async def send_file(connection: socket.socket, file: File, position: int, length: int) -> None:
    """[position, position + length) of a file by `sendfile`."""
    while length:
        try:
            sent = file.send(connection.fileno(), position, length)
        except BlockingIOError:
            await writable(connection)
            continue
        if sent == 0:
            raise EOFError(f"{file.path} ends before {position + length}")
        position += sent
        length -= sent


async def receive(connection: socket.socket, most: int, timeout_s: float) -> bytes | None:
    """What is there, "" at the end; None when nothing came within the time. A cancellation and a
    timeout take nothing from the socket. A peer that sends without a pause does not keep the loop
    to itself."""
    await asyncio.sleep(0)
    with contextlib.suppress(BlockingIOError):
        return connection.recv(most)
    return await receive_later(connection, most, timeout_s)


async def receive_later(connection: socket.socket, most: int, timeout_s: float) -> bytes | None:
    """Like `receive`, of a socket that had nothing a moment ago."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await readable(connection)
    with contextlib.suppress(BlockingIOError):
        return connection.recv(most)
    return None


async def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """EOFError when the peer ends before."""
    data = b""
    while len(data) < size:
        more = await asyncio.get_running_loop().sock_recv(connection, size - len(data))
        if not more:
            raise EOFError("the peer closed the connection")
        data += more
    return data


Now = Callable[[], int]
"""Monotonic milliseconds."""
