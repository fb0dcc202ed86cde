"""The unavoidable work of calls that carry one message each: an echo, two processes, nothing else.

    python -m stratamq_bench.floor_unary [--in-flight 64] [--body 1024] [--seconds 5] [--sync]

With --sync the server writes the bytes to a file and answers after an fdatasync that the calls
which wait meanwhile share. Prints one JSON object: rate, latencies, CPU per call of each process.
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

import grpc
from grpc import aio

from stratamq_bench.floor_stream import OPTIONS, identity
from stratamq_bench.plan import percentiles

FILE_BYTES = 64 << 20


class SharedFlush:
    """One fdatasync at a time; callers that arrive while one runs share the next."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: list[asyncio.Future[None]] = []
        self._running: asyncio.Task[None] | None = None

    async def done(self) -> None:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting.append(future)
        if self._running is None:
            self._running = loop.create_task(self._run())
        await future

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            group, self._waiting = self._waiting, []
            await loop.run_in_executor(None, os.fdatasync, self._descriptor)
            for future in group:
                future.set_result(None)
        self._running = None


async def serve(sync: bool, directory: str | None) -> None:
    with tempfile.TemporaryFile(dir=directory) as file:
        os.posix_fallocate(file.fileno(), 0, FILE_BYTES)
        flush, position = SharedFlush(file.fileno()), 0

        async def echo(request: bytes, context: aio.ServicerContext) -> bytes:
            nonlocal position
            if sync:
                if position + len(request) > FILE_BYTES:
                    position = 0
                os.pwrite(file.fileno(), request, position)
                position += len(request)
                await flush.done()
            return request[:64]

        async def usage(request: bytes, context: aio.ServicerContext) -> bytes:
            return struct.pack(">d", time.process_time())

        server = aio.server(options=OPTIONS)
        methods = {
            "Echo": grpc.unary_unary_rpc_method_handler(echo, identity, identity),
            "Usage": grpc.unary_unary_rpc_method_handler(usage, identity, identity),
        }
        handlers = grpc.method_handlers_generic_handler("floor.Echo", methods)
        server.add_generic_rpc_handlers((handlers,))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        print(port, flush=True)
        await server.wait_for_termination()


async def call(
    port: int, in_flight: int, body: int, seconds: float, warm_up: float
) -> dict[str, object]:
    async with aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
        usage = channel.unary_unary("/floor.Echo/Usage", identity, identity)
        echo = channel.unary_unary("/floor.Echo/Echo", identity, identity)
        payload = os.urandom(body)

        async def call_until(end: float, took: list[float]) -> None:
            while (began := time.perf_counter()) < end:
                await echo(payload)
                took.append((time.perf_counter() - began) * 1e3)

        async def all_for(limit_s: float) -> list[float]:
            took: list[float] = []
            end = time.perf_counter() + limit_s
            await asyncio.gather(*(call_until(end, took) for _ in range(in_flight)))
            return took

        await all_for(warm_up)
        server_cpu = struct.unpack(">d", await usage(b""))[0]
        client_cpu, wall = time.process_time(), time.perf_counter()
        took = sorted(await all_for(seconds))
        client_cpu, wall = time.process_time() - client_cpu, time.perf_counter() - wall
        server_cpu = struct.unpack(">d", await usage(b""))[0] - server_cpu
        p50, p99, p999 = percentiles(took)
        return {
            "messages_per_s": round(len(took) / wall),
            "p50_ms": round(p50, 3),
            "p99_ms": round(p99, 3),
            "p999_ms": round(p999, 3),
            "cpu_us_per_message": {
                "client": round(client_cpu / len(took) * 1e6, 2),
                "server": round(server_cpu / len(took) * 1e6, 2),
            },
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--in-flight", type=int, default=64, help="calls at a time")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a call")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds before")
    parser.add_argument("--sync", action="store_true", help="answer after fdatasync")
    parser.add_argument("--dir", default=None, help="directory of the file")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.sync, options.dir))
        return
    command = [sys.executable, "-m", __spec__.name, "--serve", *["--sync"] * options.sync]
    command += ["--dir", options.dir] if options.dir else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline())
            shape = (options.in_flight, options.body, options.seconds, options.warm_up)
            result = asyncio.run(call(port, *shape))
        finally:
            server.terminate()
    kind = {"floor": "unary", "in_flight": options.in_flight, "sync": options.sync}
    print(json.dumps(kind | result))


if __name__ == "__main__":
    main()
