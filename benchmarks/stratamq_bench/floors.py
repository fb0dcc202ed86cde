"""The floors over gRPC: the unavoidable work, in as many processes as it takes, and nothing else.

    python -m stratamq_bench.child floors.stream sync=true seconds=10

`stream` a producer and a log, `unary` calls of one message each, `pull` a reader, `replicate` a
slave. Each starts its servers, works in this process, and prints rate, CPU per message of each
process, and latencies where single messages are waited for. The constants are their own on purpose:
a floor shares no code with what is measured against it.
"""

import asyncio
import mmap
import os
import socket
import struct
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from grpc import aio

from stratamq_bench.child import Child
from stratamq_bench.floor_append import Segment, encode_batch
from stratamq_bench.report import Measured, measured
from stratamq_bench.usage import CpuMeter

OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
WINDOW_BATCHES = 16
WINDOW_PIECES = 8
FILE_BYTES = 1 << 28
ECHO_FILE_BYTES = 64 << 20
HANDLERS: dict[str, Callable[..., grpc.RpcMethodHandler]] = {
    "Echo": grpc.unary_unary_rpc_method_handler,
    "Read": grpc.unary_stream_rpc_method_handler,
    "Append": grpc.stream_stream_rpc_method_handler,
}


def identity(value: bytes) -> bytes:
    return value


@contextmanager
def _server(function: str, **arguments: object) -> Iterator[tuple[int, int]]:
    """(port, pid) of a server of this module, until the end of the `with`."""
    with Child(f"floors.{function}", **arguments) as server:
        yield int(server.line()), server.pid


async def _serve(method: str, behaviour: Any) -> None:
    server = aio.server(options=OPTIONS)
    methods = {method: HANDLERS[method](behaviour, identity, identity)}
    handlers = grpc.method_handlers_generic_handler("floor.Server", methods)
    server.add_generic_rpc_handlers((handlers,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


@contextmanager
def _random_file(directory: str | None) -> Iterator[int]:
    """Its descriptor."""
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(FILE_BYTES >> 20):
            file.write(os.urandom(1 << 20))
        file.flush()
        yield file.fileno()


async def _stream_for(
    limit_s: float, window: int, write: Callable[[int], Any], read: Callable[[], Any]
) -> int:
    """Write with so many unanswered at most, until the time is over and all are answered; return
    how many they were."""
    end, sent, received = time.perf_counter() + limit_s, 0, 0
    while time.perf_counter() < end or received < sent:
        while time.perf_counter() < end and sent - received < window:
            await write(sent)
            sent += 1
        if received < sent:
            await read()
            received += 1
    return sent


async def stream(
    *,
    batch: int = 256,
    body: int = 1024,
    seconds: float = 10.0,
    warm_up: float = 2.0,
    sync: bool = False,
    record_crc: bool = False,
    directory: str | None = None,
) -> Measured:
    """A client process encodes frames and writes batches to one bidirectional stream (identity
    serialisers, hand framing, a window of batches in flight); a server process does the append of
    `floor_append` and answers each batch with its first queue offset, after an fdatasync that the
    waiting batches share when `sync` is set."""
    bodies = [os.urandom(body) for _ in range(batch)]
    with _server("serve_log", sync=sync, record_crc=record_crc, directory=directory) as (port, log):
        async with aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
            call = channel.stream_stream("/floor.Server/Append", identity, identity)()

            async def write(number: int) -> None:
                key = number * batch
                lengths, frames = encode_batch(bodies, first_key=key, record_crc=record_crc)
                await call.write(struct.pack(">I", batch) + lengths + frames)

            await _stream_for(warm_up, WINDOW_BATCHES, write, call.read)
            meter, began = CpuMeter({"client": os.getpid(), "log": log}), time.perf_counter()
            batches = await _stream_for(seconds, WINDOW_BATCHES, write, call.read)
            took, used = time.perf_counter() - began, meter.seconds()
            await call.done_writing()
    return measured(batches * batch, took, used)


async def serve_log(sync: bool, record_crc: bool, directory: str | None) -> None:
    segment = Segment(directory, record_crc)

    def append(request: bytes) -> int:
        (count,) = struct.unpack_from(">I", request)
        return segment.append(request[4 : 4 + 4 * count], memoryview(request)[4 + 4 * count :])

    async def answer_at_once(requests: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
        async for request in requests:
            yield struct.pack(">q", append(request))

    async def answer_when_flushed(
        requests: AsyncIterator[bytes], _: object
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

    await _serve("Append", answer_when_flushed if sync else answer_at_once)


async def unary(
    *,
    in_flight: int = 64,
    body: int = 1024,
    seconds: float = 5.0,
    warm_up: float = 1.0,
    sync: bool = False,
    directory: str | None = None,
) -> Measured:
    """An echo. With `sync` the server writes the bytes to a file and answers after an fdatasync
    that the calls which wait meanwhile share."""
    payload = os.urandom(body)
    with _server("serve_echo", sync=sync, directory=directory) as (port, server):
        async with aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
            echo = channel.unary_unary("/floor.Server/Echo", identity, identity)
            took_ms: list[float] = []

            async def call_until(end: float) -> None:
                while (began := time.perf_counter()) < end:
                    await echo(payload)
                    took_ms.append((time.perf_counter() - began) * 1e3)

            async def all_for(limit_s: float) -> None:
                took_ms.clear()
                end = time.perf_counter() + limit_s
                await asyncio.gather(*(call_until(end) for _ in range(in_flight)))

            await all_for(warm_up)
            meter, began = CpuMeter({"client": os.getpid(), "server": server}), time.perf_counter()
            await all_for(seconds)
            return measured(len(took_ms), time.perf_counter() - began, meter.seconds(), took_ms)


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


async def serve_echo(sync: bool, directory: str | None) -> None:
    with tempfile.TemporaryFile(dir=directory) as file:
        os.posix_fallocate(file.fileno(), 0, ECHO_FILE_BYTES)
        flush, position = SharedFlush(file.fileno()), 0

        async def echo(request: bytes, _: object) -> bytes:
            nonlocal position
            if sync:
                if position + len(request) > ECHO_FILE_BYTES:
                    position = 0
                os.pwrite(file.fileno(), request, position)
                position += len(request)
                await flush.done()
            return request[:64]

        await _serve("Echo", echo)


def pull(
    *,
    frame_bytes: int = 1180,
    piece: int = 256 << 10,
    seconds: float = 5.0,
    warm_up: float = 1.0,
    directory: str | None = None,
) -> Measured:
    """A server process reads a file in pieces and writes them to a server stream; a client process
    takes them in as the synchronous client does, and looks at nothing. As many bytes as the
    messages' frames have, in responses of the same size."""
    with (
        _server("serve_file", piece=piece, directory=directory) as (port, server),
        grpc.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel,
    ):
        responses = channel.unary_stream("/floor.Server/Read", identity, identity)(b"")

        def read_for(limit_s: float) -> int:
            received, end = 0, time.perf_counter() + limit_s
            while time.perf_counter() < end:
                received += len(next(responses))
            return received

        read_for(warm_up)
        meter, began = CpuMeter({"client": os.getpid(), "server": server}), time.perf_counter()
        messages = read_for(seconds) / frame_bytes
        found = measured(messages, time.perf_counter() - began, meter.seconds())
        responses.cancel()
        return found


async def serve_file(piece: int, directory: str | None) -> None:
    with _random_file(directory) as file:

        async def read(request: bytes, _: object) -> AsyncIterator[bytes]:
            while True:
                for position in range(0, FILE_BYTES - piece + 1, piece):
                    yield os.pread(file, piece, position)

        await _serve("Read", read)


async def replicate(
    *,
    frame_bytes: int = 1180,
    piece: int = 256 << 10,
    seconds: float = 5.0,
    warm_up: float = 1.0,
    directory: str | None = None,
) -> Measured:
    """Bytes from a socket into a gRPC stream into a mapped file: one process sends a file over TCP
    (`sendfile`), this one receives and writes to one gRPC stream, one copies what arrives into a
    mapped segment and answers each piece."""
    loop = asyncio.get_running_loop()
    with (
        _server("send_file", directory=directory) as (source, master),
        _server("serve_slave", directory=directory) as (port, log),
        socket.create_connection(("127.0.0.1", source)) as peer,
    ):
        peer.setblocking(False)
        async with aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
            call = channel.stream_stream("/floor.Server/Append", identity, identity)()

            async def write(_: int) -> None:
                buffer = bytearray(piece)
                view, filled = memoryview(buffer), 0
                while filled < piece:
                    filled += await loop.sock_recv_into(peer, view[filled:])
                await call.write(bytes(buffer))

            await _stream_for(warm_up, WINDOW_PIECES, write, call.read)
            pids = {"master": master, "replication": os.getpid(), "log": log}
            meter, began = CpuMeter(pids), time.perf_counter()
            pieces = await _stream_for(seconds, WINDOW_PIECES, write, call.read)
            took, used = time.perf_counter() - began, meter.seconds()
            await call.done_writing()
    return measured(pieces * piece / frame_bytes, took, used)


def send_file(directory: str | None) -> None:
    """The master: send the same file repeatedly to the client that connects."""
    with _random_file(directory) as file, socket.create_server(("", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        peer, _ = listener.accept()
        try:
            while True:
                position = 0
                while position < FILE_BYTES:
                    position += os.sendfile(peer.fileno(), file, position, 1 << 20)
        except (BrokenPipeError, ConnectionResetError):
            return


async def serve_slave(directory: str | None) -> None:
    """The slave's log: a copy into a mapped file, an answer for each piece."""
    with tempfile.TemporaryFile(dir=directory) as file:
        os.posix_fallocate(file.fileno(), 0, FILE_BYTES)
        with mmap.mmap(file.fileno(), FILE_BYTES) as segment:

            async def append(requests: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
                position = 0
                async for request in requests:
                    if position + len(request) > FILE_BYTES:
                        position = 0
                    segment[position : position + len(request)] = request
                    position += len(request)
                    yield struct.pack(">q", position)

            await _serve("Append", append)
