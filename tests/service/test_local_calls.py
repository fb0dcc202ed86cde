"""Calls between the processes of one broker without gRPC are what the same calls by gRPC are."""

import asyncio
import contextlib
import math
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.errors import (
    BusyError,
    InvalidRequestError,
    NotWritableError,
    OffsetOutOfRangeError,
    StrataError,
    UnavailableError,
)
from stratamq.rpc import discovery, local_calls
from stratamq.rpc.asking import ask
from stratamq.rpc.endpoints import Channels, Endpoints
from stratamq.rpc.framing import APPEND_DATA_REQUEST
from stratamq.rpc.local_calls import MAX_BYTES, SIZE, LocalCalls, encode_request
from stratamq.rpc.methods import METHODS
from stratamq.rpc.request_ids import current, one_request
from stratamq.rpc.rooms import COMMITLOG
from stratamq.service.entrance import Call
from stratamq.service.local_listener import MAX_REQUEST_BYTES
from stratamq.service.server import Server

REPORT, APPEND = METHODS["ReportReplication"].path, METHODS["AppendData"].path
Behaviour = Callable[[pb.ReportReplicationRequest], Awaitable[int]]


async def plus_one(request: pb.ReportReplicationRequest) -> int:
    return request.generation + 1


class Log:
    """A server with two of the log's methods, and channels to it as its followers have them."""

    def __init__(self, root: Path, report: Behaviour = plus_one, *, grace_ms: int = 5_000) -> None:
        self.root = root
        self.report = report
        self.by_grpc: list[bool] = []
        """Of each call, whether it came by gRPC."""
        self.grace_ms = grace_ms
        self.server = self.new_server()
        self.channels = Channels(Endpoints(root), grpc.aio)

    def new_server(self) -> Server:
        server = Server(COMMITLOG, root=self.root, stop_grace_ms=self.grace_ms)
        handlers = {
            "ReportReplication": grpc.unary_unary_rpc_method_handler(
                self._report,
                pb.ReportReplicationRequest.FromString,
                pb.ReportReplicationResponse.SerializeToString,
            ),
            "AppendData": grpc.stream_unary_rpc_method_handler(
                self._append, None, pb.AppendDataResponse.SerializeToString
            ),
        }
        name = REPORT.split("/")[1]
        server.add_generic(grpc.method_handlers_generic_handler(name, handlers))
        server.answer_local_calls()
        return server

    async def _report(self, request: Any, call: Call) -> pb.ReportReplicationResponse:
        self.by_grpc.append(math.isfinite(call.deadline))
        return pb.ReportReplicationResponse(confirmed_offset=await self.report(request))

    async def _append(self, requests: AsyncIterator[bytes], call: Call) -> pb.AppendDataResponse:
        self.by_grpc.append(math.isfinite(call.deadline))
        parts = [APPEND_DATA_REQUEST.decode(request)[1][0] async for request in requests]
        return pb.AppendDataResponse(appended_offset=sum(map(len, parts)))

    async def ask(self, generation: int = 1, timeout_s: float = 60, *, locally: bool = True) -> int:
        request = pb.ReportReplicationRequest(generation=generation)
        found = await ask(self.channels, "ReportReplication", request, timeout_s, locally=locally)
        return found.confirmed_offset

    async def append(self, size: int) -> int:
        request = APPEND_DATA_REQUEST.encode(pb.AppendDataRequest(generation=1), bytes(size))
        found = await ask(self.channels, "AppendData", request, 60, locally=True)
        return found.appended_offset

    @property
    def socket(self) -> Path:
        return Path(Endpoints(self.root).calls(COMMITLOG))


@contextlib.asynccontextmanager
async def log_at(root: Path, *arguments: Any, **options: Any) -> AsyncIterator[Log]:
    log = Log(root, *arguments, **options)
    await log.server.start("127.0.0.1:0")
    try:
        yield log
    finally:
        for channel in log.channels.close():
            await channel.close()
        await log.server.stop()


class Waiting:
    """A call that waits for `go`."""

    def __init__(self) -> None:
        self.begun, self.go, self.cancelled = (asyncio.Event() for _ in range(3))

    async def __call__(self, request: pb.ReportReplicationRequest) -> int:
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return request.generation


async def test_small_calls_go_without_grpc_and_large_ones_by_it(tmp_path):
    async with log_at(tmp_path) as log:
        assert [await log.ask(number) for number in range(3)] == [1, 2, 3]
        assert await log.append(MAX_BYTES // 2) == MAX_BYTES // 2
        assert log.by_grpc == [False] * 4
        assert await log.append(MAX_BYTES) == MAX_BYTES
        assert await log.ask(1, locally=False) == 2
        assert log.by_grpc[4:] == [True] * 2


async def test_calls_at_one_time_have_a_connection_each_and_it_is_kept(tmp_path):
    async with log_at(tmp_path) as log:
        for _ in range(3):
            found = await asyncio.gather(*(log.ask(number) for number in range(5)))
            assert found == [1, 2, 3, 4, 5]
        calls = log.channels.local_calls(COMMITLOG)
        assert len(calls._open) == len(calls._idle) == 5
        assert log.by_grpc == [False] * 15


@pytest.mark.parametrize("way", ["no root", "none offered", "removed"])
async def test_where_there_is_no_socket_calls_go_by_grpc(tmp_path, way):
    async with log_at(tmp_path) as log:
        if way == "removed":
            log.socket.unlink()
        elif way == "none offered":
            await log.server._local_calls.stop(0)
        else:
            log.channels = Channels(Endpoints(addresses={COMMITLOG: log.server.address}), grpc.aio)
        assert await log.ask(6) == 7
        assert log.by_grpc == [True]
        for channel in log.channels.close():
            await channel.close()


@pytest.mark.parametrize(
    "error",
    [
        NotWritableError("the log is in generation 7", "generation"),
        BusyError("come back", 250),
        OffsetOutOfRangeError("gone", 5, 9),
        InvalidRequestError("“not” ASCII", appended=12),
        UnavailableError("the log is being opened"),
        TimeoutError(),
        ValueError("a bug of ours"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_errors_are_those_of_the_same_call_by_grpc(tmp_path, error):
    async def fails(request):
        raise error

    found = []
    async with log_at(tmp_path, fails) as log:
        for locally in (True, False):
            with one_request() as request, pytest.raises(StrataError) as caught:
                await log.ask(locally=locally)
            assert caught.value.request_id == request.id
            message = caught.value.message.replace(request.id, "ID")
            found.append((type(caught.value), message, caught.value.fields))
        assert log.by_grpc == [False, True]
    assert found[0] == found[1]


async def test_the_request_id_goes_along(tmp_path):
    seen = []

    async def note(request):
        seen.append(current().id)
        return 0

    async with log_at(tmp_path, note) as log:
        with one_request() as request:
            await log.ask()
        await log.ask()
    assert seen[0] == request.id != seen[1]


async def test_a_call_without_an_answer_in_time_is_ended_and_its_answer_is_nobody_elses(tmp_path):
    waiting = Waiting()
    async with log_at(tmp_path, waiting) as log:
        with pytest.raises(UnavailableError) as caught:
            await log.ask(1, timeout_s=0.05)
        assert caught.value.fields["status"] == "DEADLINE_EXCEEDED"
        await waiting.cancelled.wait()
        waiting.go.set()
        assert await log.ask(2) == 2
        assert log.by_grpc == [False, False]


async def test_a_caller_that_is_cancelled_ends_its_call_and_its_answer_is_nobody_elses(tmp_path):
    waiting = Waiting()
    async with log_at(tmp_path, waiting) as log:
        task = asyncio.create_task(log.ask(1))
        await waiting.begun.wait()
        task.cancel()
        await waiting.cancelled.wait()
        waiting.go.set()
        assert await log.ask(2) == 2
        assert task.cancelled()


async def test_a_service_that_stops_answers_what_is_under_way_and_takes_no_more(tmp_path):
    waiting = Waiting()
    async with log_at(tmp_path, waiting) as log:
        task = asyncio.create_task(log.ask(5))
        await waiting.begun.wait()
        path = log.socket
        stopping = asyncio.create_task(log.server.stop())
        while path.exists():
            await asyncio.sleep(0)
        with pytest.raises(UnavailableError):
            await log.ask(6)
        waiting.go.set()
        assert await task == 5
        await stopping


async def test_a_call_that_outlives_the_grace_is_ended(tmp_path):
    waiting = Waiting()
    async with log_at(tmp_path, waiting, grace_ms=10) as log:
        task = asyncio.create_task(log.ask(5))
        await waiting.begun.wait()
        await log.server.stop()
        assert waiting.cancelled.is_set()
        with pytest.raises(UnavailableError):
            await task


async def test_after_a_restart_the_next_call_finds_the_new_process(tmp_path):
    async with log_at(tmp_path) as log:
        assert await log.ask(1) == 2
        await log.server.stop()
        with pytest.raises(UnavailableError):
            await log.ask(2)
        log.server = log.new_server()
        await log.server.start("127.0.0.1:0")
        found = None
        while found is None:  # gRPC waits before it connects again
            with contextlib.suppress(UnavailableError):
                found = await log.ask(3)
        assert found == 4
        assert log.by_grpc == [False, False]


async def test_a_socket_that_a_killed_process_left_is_replaced(tmp_path):
    path = discovery.make_socket_directory(tmp_path) / "commitlog.call"
    path.write_bytes(b"")
    async with log_at(tmp_path) as log:
        assert await log.ask(1) == 2
        assert log.by_grpc == [False]
        assert log.socket == path
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert not path.exists()


ENDS_S = 30.0
"""A listener that waits for the rest of such a request fails here, not in the run's time-out."""
HOSTILE = {
    "too large": SIZE.pack(MAX_REQUEST_BYTES),
    "no method": encode_request("/a/b", "", b""),
    "a stream": encode_request(METHODS["Follow"].path, "", b""),
    "not ASCII": SIZE.pack(3) + b"\x01\xff\x00",
    "beyond its end": SIZE.pack(4) + b"\x00\x09ab",
    "empty": SIZE.pack(0),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
async def test_what_is_no_call_of_a_method_ends_its_connection_alone(tmp_path, data):
    async with log_at(tmp_path) as log:
        assert await log.ask(1) == 2
        reader, writer = await asyncio.open_unix_connection(log.socket)
        writer.write(data)
        async with asyncio.timeout(ENDS_S):
            assert await reader.read() == b""
        writer.close()
        assert await log.ask(2) == 3


async def test_requests_that_come_at_once_are_answered_one_by_one_in_their_order(tmp_path):
    most = running = 0

    async def slow(request):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return request.generation

    async with log_at(tmp_path, slow) as log:
        reader, writer = await asyncio.open_unix_connection(log.socket)
        requests = [
            encode_request(
                REPORT, "", pb.ReportReplicationRequest(generation=number).SerializeToString()
            )
            for number in range(1, 200)
        ]
        for byte in b"".join(requests[:2]):
            writer.write(bytes((byte,)))
            await writer.drain()
        writer.write(b"".join(requests[2:]))
        found = []
        for _ in requests:
            (size,) = SIZE.unpack(await reader.readexactly(SIZE.size))
            answer = await reader.readexactly(size)
            found.append(pb.ReportReplicationResponse.FromString(answer[1:]).confirmed_offset)
        writer.close()
    assert found == list(range(1, 200))
    assert most == 1


async def test_a_service_reads_no_further_while_a_call_is_under_way(tmp_path):
    waiting = Waiting()
    async with log_at(tmp_path, waiting) as log:
        _, writer = await asyncio.open_unix_connection(log.socket)
        one = pb.ReportReplicationRequest(generation=1).SerializeToString()
        writer.write(encode_request(REPORT, "", one))
        await waiting.begun.wait()
        writer.write(encode_request(REPORT, "", bytes(MAX_BYTES)) * 64)
        (connection,) = log.server._local_calls._connections
        while connection._transport.is_reading():
            await asyncio.sleep(0)
        assert len(connection._received) < 3 * MAX_REQUEST_BYTES + (1 << 18)
        writer.transport.abort()
        waiting.go.set()


@pytest.mark.parametrize(
    "answer", [b"\0\0\0\2\x63x", b"\0\0\0\3\x0e[]", b"\0\0\0\1\0\0\0\0\1\0", b""]
)
async def test_an_answer_that_is_none_is_an_error_of_its_call(tmp_path, answer):
    async def serve(reader, writer):
        await reader.readexactly(5)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "s")
    calls = LocalCalls(lambda: str(tmp_path / "s"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await calls.ask(REPORT, b"", 60)
    assert caught.value.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE)
    await calls.close()
    server.close()


def test_names_are_bounded_by_what_is_sent():
    assert all(len(method.path) < 256 for method in METHODS.values())
    assert local_calls.decode_request(encode_request(APPEND, "", b"x")[4:]) == (APPEND, "", b"x")
