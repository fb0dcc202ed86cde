"""The unavoidable work of reading a log over gRPC: two processes, nothing else.

One server process reads a file in pieces and writes them to a server stream (identity serialisers);
one client process takes them in and looks at nothing. As many bytes as the messages' frames have,
in responses of the same size.

    python -m stratamq_bench.floor_pull [--frame-bytes 1180] [--piece 262144] [--seconds 5]
                                        [--dir DIR]

Prints one JSON object: rate in messages of that size, and CPU per message of each process.
"""

import argparse
import asyncio
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator

import grpc
from grpc import aio

from stratamq_bench.floor_stream import OPTIONS, identity

FILE_BYTES = 1 << 28


async def serve(directory: str | None) -> None:
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(FILE_BYTES >> 20):
            file.write(os.urandom(1 << 20))
        file.flush()
        descriptor = file.fileno()

        async def read(request: bytes, context: aio.ServicerContext) -> AsyncIterator[bytes]:
            (piece,) = struct.unpack(">I", request)
            while True:
                for position in range(0, FILE_BYTES - piece + 1, piece):
                    yield os.pread(descriptor, piece, position)

        async def usage(request: bytes, context: aio.ServicerContext) -> bytes:
            return struct.pack(">d", time.process_time())

        server = aio.server(options=OPTIONS)
        methods = {
            "Read": grpc.unary_stream_rpc_method_handler(read, identity, identity),
            "Usage": grpc.unary_unary_rpc_method_handler(usage, identity, identity),
        }
        handlers = grpc.method_handlers_generic_handler("floor.Reader", methods)
        server.add_generic_rpc_handlers((handlers,))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        print(port, flush=True)
        await server.wait_for_termination()


def pull(
    port: int, frame_bytes: int, piece: int, seconds: float, warm_up: float
) -> dict[str, object]:
    """Read as the synchronous client does."""
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
        usage = channel.unary_unary("/floor.Reader/Usage", identity, identity)
        stream = channel.unary_stream("/floor.Reader/Read", identity, identity)
        responses = stream(struct.pack(">I", piece))

        def read_for(limit_s: float) -> int:
            received, end = 0, time.perf_counter() + limit_s
            while time.perf_counter() < end:
                received += len(next(responses))
            return received

        read_for(warm_up)
        server_cpu = struct.unpack(">d", usage(b""))[0]
        client_cpu, wall = time.process_time(), time.perf_counter()
        messages = read_for(seconds) / frame_bytes
        client_cpu, wall = time.process_time() - client_cpu, time.perf_counter() - wall
        server_cpu = struct.unpack(">d", usage(b""))[0] - server_cpu
        responses.cancel()
        return {
            "messages_per_s": round(messages / wall),
            "cpu_us_per_message": {
                "client": round(client_cpu / messages * 1e6, 3),
                "server": round(server_cpu / messages * 1e6, 3),
            },
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--frame-bytes", type=int, default=1180, help="bytes of one message")
    parser.add_argument("--piece", type=int, default=256 << 10, help="bytes of one response")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds before")
    parser.add_argument("--dir", default=None, help="directory of the file")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.dir))
        return
    command = [sys.executable, "-m", __spec__.name, "--serve"]
    command += ["--dir", options.dir] if options.dir else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline())
            shape = (options.frame_bytes, options.piece, options.seconds, options.warm_up)
            result = pull(port, *shape)
        finally:
            server.terminate()
    kind = {"floor": "pull", "frame_bytes": options.frame_bytes, "piece_bytes": options.piece}
    print(json.dumps(kind | result))


if __name__ == "__main__":
    main()
