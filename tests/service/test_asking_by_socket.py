"""What the processes of one broker ask each other goes without gRPC, and is what it is by gRPC.

The calls themselves: test_socket_calls.py.
"""

import asyncio
import contextlib
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
from stratamq.rpc import discovery
from stratamq.rpc.asking import ask
from stratamq.rpc.endpoints import Channels, Endpoints
from stratamq.rpc.framing import APPEND_DATA_REQUEST
from stratamq.rpc.methods import METHODS
from stratamq.rpc.request_ids import current, one_request
from stratamq.rpc.rooms import COMMITLOG
from stratamq.service.entrance import Call
from stratamq.service.server import Server
from tests.support.calls import Waiting

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
        self.hosts: set[str] = set()
        """Where they came from; "": this machine, by a socket."""
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
        return server

    def note(self, call: Call) -> None:
        self.hosts.add(call.caller.host)
        self.by_grpc.append(not any(one._call for one in self.server._local_listener._connections))

    async def _report(self, request: Any, call: Call) -> pb.ReportReplicationResponse:
        self.note(call)
        return pb.ReportReplicationResponse(confirmed_offset=await self.report(request))

    async def _append(self, requests: AsyncIterator[bytes], call: Call) -> pb.AppendDataResponse:
        self.note(call)
        parts = [APPEND_DATA_REQUEST.decode(request)[1][0] async for request in requests]
        return pb.AppendDataResponse(appended_offset=sum(map(len, parts)))

    async def ask(self, generation: int = 1, timeout_s: float = 60) -> int:
        request = pb.ReportReplicationRequest(generation=generation)
        found = await ask(self.channels, "ReportReplication", request, timeout_s)
        return found.confirmed_offset

    async def append(self, size: int) -> int:
        request = APPEND_DATA_REQUEST.encode(pb.AppendDataRequest(generation=1), bytes(size))
        found = await ask(self.channels, "AppendData", request, 60)
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


async def test_what_is_asked_goes_without_grpc_whatever_its_size(tmp_path):
    async with log_at(tmp_path) as log:
        assert [await log.ask(number) for number in range(3)] == [1, 2, 3]
        for size in (1, 1 << 20, 4 << 20):
            assert await log.append(size) == size
        assert log.by_grpc == [False] * 6
        assert log.hosts == {""}


async def test_calls_at_one_time_have_a_connection_each_and_it_is_kept(tmp_path):
    async with log_at(tmp_path) as log:
        for _ in range(3):
            found = await asyncio.gather(*(log.ask(number) for number in range(5)))
            assert found == [1, 2, 3, 4, 5]
        calls = log.channels.socket_calls(COMMITLOG)
        assert len(calls._open) == len(calls._idle) == 5
        assert log.by_grpc == [False] * 15


@pytest.mark.parametrize("way", ["no root", "none offered", "removed"])
async def test_where_there_is_no_socket_calls_go_by_grpc(tmp_path, way):
    async with log_at(tmp_path) as log:
        if way == "removed":
            log.socket.unlink()
        elif way == "none offered":
            await log.server._local_listener.stop(0)
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
        for way in ("without gRPC", "by gRPC"):
            if way == "by gRPC":
                log.socket.unlink()
                await log.channels.socket_calls(COMMITLOG).close()
            with one_request() as request, pytest.raises(StrataError) as caught:
                await log.ask()
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
    path = discovery.make_socket_directory(tmp_path) / "commitlog.calls"
    path.write_bytes(b"")
    async with log_at(tmp_path) as log:
        assert await log.ask(1) == 2
        assert log.by_grpc == [False]
        assert log.socket == path
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert not path.exists()
