"""The unavoidable work of a producer and a log over gRPC: two processes, nothing else.

One client process encodes frames and writes batches to one bidirectional stream (identity
serialisers, hand framing, a window of batches in flight); one server process does the append of
`floor_append` and answers each batch with its first queue offset, after an fdatasync that the
waiting batches share when --sync is given.

    python -m stratamq_bench.floor_stream [--batch 256] [--body 1024] [--seconds 10] [--sync]
                                          [--record-crc] [--dir DIR]

Prints one JSON object: rate, and CPU per message of each process.
"""

import argparse
import asyncio
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator

import grpc
from grpc import aio

from stratamq_bench.floor_append import Segment, encode_batch

METHOD = "/floor.Log/Append"
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
WINDOW_BATCHES = 16
WARM_UP_SECONDS = 2.0


def identity(value: bytes) -> bytes:
    return value


async def serve(sync: bool, directory: str | None, record_crc: bool) -> None:
    segment = Segment(directory, record_crc)

    def append(request: bytes) -> int:
        (count,) = struct.unpack_from(">I", request)
        return segment.append(request[4 : 4 + 4 * count], memoryview(request)[4 + 4 * count :])

    async def answer_at_once(
        requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[bytes]:
        async for request in requests:
            yield struct.pack(">q", append(request))

    async def answer_when_flushed(
        requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[bytes]:
        waiting: asyncio.Queue[int | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        async def take() -> None:
            async for request in requests:
                waiting.put_nowait(append(request))
            waiting.put_nowait(None)

        taker, open_ = asyncio.create_task(take()), True
        while open_:
            group = [await waiting.get()]
            while not waiting.empty():
                group.append(waiting.get_nowait())
            await loop.run_in_executor(None, os.fdatasync, segment.fd)
            for offset in group:
                if offset is None:
                    open_ = False
                else:
                    yield struct.pack(">q", offset)
        await taker

    async def usage(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        return struct.pack(">d", time.process_time())

    server = aio.server(options=OPTIONS)
    answer = answer_when_flushed if sync else answer_at_once
    append_handler = grpc.stream_stream_rpc_method_handler(answer, identity, identity)
    usage_handler = grpc.unary_unary_rpc_method_handler(usage, identity, identity)
    methods = {"Append": append_handler, "Usage": usage_handler}
    handlers = grpc.method_handlers_generic_handler("floor.Log", methods)
    server.add_generic_rpc_handlers((handlers,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


async def produce(
    port: int, batch: int, body: int, seconds: float, record_crc: bool, warm_up: float
) -> dict[str, object]:
    bodies = [os.urandom(body) for _ in range(batch)]
    async with aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
        usage = channel.unary_unary("/floor.Log/Usage", identity, identity)
        stream = channel.stream_stream(METHOD, identity, identity)()
        sent = received = 0

        async def run_for(limit_s: float) -> None:
            nonlocal sent, received
            end = time.perf_counter() + limit_s
            while time.perf_counter() < end or received < sent:
                while time.perf_counter() < end and sent - received < WINDOW_BATCHES:
                    lengths, frames = encode_batch(
                        bodies, first_key=sent * batch, record_crc=record_crc
                    )
                    await stream.write(struct.pack(">I", batch) + lengths + frames)
                    sent += 1
                if received < sent:
                    await stream.read()
                    received += 1

        await run_for(warm_up)
        before, server_cpu = received, struct.unpack(">d", await usage(b""))[0]
        client_cpu, wall = time.process_time(), time.perf_counter()
        await run_for(seconds)
        client_cpu, wall = time.process_time() - client_cpu, time.perf_counter() - wall
        server_cpu = struct.unpack(">d", await usage(b""))[0] - server_cpu
        await stream.done_writing()
        messages = (received - before) * batch
        return {
            "messages_per_s": round(messages / wall),
            "cpu_us_per_message": {
                "client": round(client_cpu / messages * 1e6, 2),
                "log": round(server_cpu / messages * 1e6, 2),
            },
        }


def run(
    batch: int,
    body: int,
    seconds: float,
    *,
    sync: bool,
    directory: str | None,
    record_crc: bool = False,
    warm_up: float = WARM_UP_SECONDS,
) -> dict[str, object]:
    """Start the server, produce in this process, stop the server."""
    command = [sys.executable, "-m", __spec__.name, "--serve"]
    command += ["--sync"] * sync + ["--record-crc"] * record_crc
    command += ["--dir", directory] if directory else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline())
            return asyncio.run(produce(port, batch, body, seconds, record_crc, warm_up))
        finally:
            server.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--batch", type=int, default=256, help="messages per batch")
    parser.add_argument("--body", type=int, default=1024, help="bytes per body, incompressible")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warm-up", type=float, default=WARM_UP_SECONDS, help="seconds before")
    parser.add_argument("--sync", action="store_true", help="answer after fdatasync")
    parser.add_argument("--record-crc", action="store_true", help="a checksum of the whole record")
    parser.add_argument("--dir", default=None, help="directory of the segment")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.sync, options.dir, options.record_crc))
        return
    result = run(
        options.batch,
        options.body,
        options.seconds,
        sync=options.sync,
        directory=options.dir,
        record_crc=options.record_crc,
        warm_up=options.warm_up,
    )
    kind = {
        "floor": "stream",
        "batch": options.batch,
        "body_bytes": options.body,
        "sync": options.sync,
        "record_crc": options.record_crc,
    }
    print(json.dumps(kind | result))


if __name__ == "__main__":
    main()
