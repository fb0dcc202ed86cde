"""The unavoidable work of a slave: bytes from a socket into a gRPC stream into a mapped file.

Three processes and nothing else: one sends a file over TCP (`sendfile`), one receives and writes to
one gRPC stream, one copies what arrives into a mapped segment and answers each piece.

    python -m stratamq_bench.floor_replicate [--frame-bytes 1180] [--piece 262144] [--seconds 5]

Prints one JSON object: rate in messages of that size, and CPU per message of each process.
"""

import argparse
import asyncio
import json
import mmap
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator

import grpc
from grpc import aio

from stratamq_bench.floor_stream import OPTIONS, identity
from stratamq_bench.usage import CpuMeter

FILE_BYTES = 1 << 28
WINDOW_PIECES = 8


def send(directory: str | None) -> None:
    """The master: send the same file repeatedly to every client that connects."""
    with tempfile.TemporaryFile(dir=directory) as file, socket.create_server(("", 0)) as listener:
        for _ in range(FILE_BYTES >> 20):
            file.write(os.urandom(1 << 20))
        file.flush()
        print(listener.getsockname()[1], flush=True)
        peer, _ = listener.accept()
        try:
            while True:
                position = 0
                while position < FILE_BYTES:
                    position += os.sendfile(peer.fileno(), file.fileno(), position, 1 << 20)
        except (BrokenPipeError, ConnectionResetError):
            return


async def store(directory: str | None) -> None:
    """The slave's log: a copy into a mapped file, an answer for each piece."""
    with tempfile.TemporaryFile(dir=directory) as file:
        os.posix_fallocate(file.fileno(), 0, FILE_BYTES)
        with mmap.mmap(file.fileno(), FILE_BYTES) as segment:

            async def append(
                requests: AsyncIterator[bytes], context: aio.ServicerContext
            ) -> AsyncIterator[bytes]:
                position = 0
                async for request in requests:
                    if position + len(request) > FILE_BYTES:
                        position = 0
                    segment[position : position + len(request)] = request
                    position += len(request)
                    yield struct.pack(">q", position)

            server = aio.server(options=OPTIONS)
            methods = {"Append": grpc.stream_stream_rpc_method_handler(append, identity, identity)}
            handlers = grpc.method_handlers_generic_handler("floor.Slave", methods)
            server.add_generic_rpc_handlers((handlers,))
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            print(port, flush=True)
            await server.wait_for_termination()


async def carry(
    master: int, log: int, piece: int, seconds: float, warm_up: float, pids: dict[str, int]
) -> tuple[int, float, dict[str, float]]:
    """The replication process: bytes carried, seconds, CPU seconds of all three."""
    loop = asyncio.get_running_loop()
    peer = socket.create_connection(("127.0.0.1", master))
    peer.setblocking(False)
    async with aio.insecure_channel(f"127.0.0.1:{log}", options=OPTIONS) as channel:
        stream = channel.stream_stream("/floor.Slave/Append", identity, identity)()
        sent = received = 0

        async def carry_for(limit_s: float) -> int:
            nonlocal sent, received
            carried, end = 0, time.perf_counter() + limit_s
            while time.perf_counter() < end or received < sent:
                while time.perf_counter() < end and sent - received < WINDOW_PIECES:
                    buffer = bytearray(piece)
                    view, filled = memoryview(buffer), 0
                    while filled < piece:
                        filled += await loop.sock_recv_into(peer, view[filled:])
                    await stream.write(bytes(buffer))
                    sent += 1
                    carried += piece
                if received < sent:
                    await stream.read()
                    received += 1
            return carried

        await carry_for(warm_up)
        meter, began = CpuMeter(pids), time.perf_counter()
        carried = await carry_for(seconds)
        took, used = time.perf_counter() - began, meter.seconds()
        await stream.done_writing()
    peer.close()
    return carried, took, used


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--frame-bytes", type=int, default=1180, help="bytes of one message")
    parser.add_argument("--piece", type=int, default=256 << 10, help="bytes of one append")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds before")
    parser.add_argument("--dir", default=None, help="where the files lie")
    parser.add_argument("--role", choices=("send", "store"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role == "send":
        send(options.dir)
        return
    if options.role == "store":
        asyncio.run(store(options.dir))
        return
    command = [sys.executable, "-m", __spec__.name]
    command += ["--dir", options.dir] if options.dir else []
    pipe = subprocess.PIPE
    with (
        subprocess.Popen([*command, "--role", "send"], stdout=pipe, text=True) as master,
        subprocess.Popen([*command, "--role", "store"], stdout=pipe, text=True) as log,
    ):
        assert master.stdout is not None and log.stdout is not None
        try:
            ports = (int(master.stdout.readline()), int(log.stdout.readline()))
            pids = {"master": master.pid, "replication": os.getpid(), "log": log.pid}
            shape = (options.piece, options.seconds, options.warm_up)
            carried, seconds, used = asyncio.run(carry(*ports, *shape, pids))
        finally:
            master.terminate()
            log.terminate()
    messages = carried / options.frame_bytes
    answer = {
        "floor": "replicate",
        "frame_bytes": options.frame_bytes,
        "messages_per_s": round(messages / seconds),
        "cpu_us_per_message": {name: round(s / messages * 1e6, 3) for name, s in used.items()},
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
