"""Calls of a front without gRPC are what the same calls by gRPC are."""

import asyncio
import contextlib
import math
import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.errors import BusyError, InvalidRequestError, UnavailableError
from stratamq.rpc import discovery, socket_calls
from stratamq.rpc.methods import METHODS
from stratamq.rpc.request_ids import current, one_request
from stratamq.rpc.rooms import COMMITLOG
from stratamq.rpc.sized_frames import KEPT_BYTES, SIZE
from stratamq.rpc.socket_calls import (
    ENDED,
    LAST,
    SINGLE,
    STREAM,
    Begin,
    connected,
    decode_begin,
    encode_begin,
)
from stratamq.service import socket_listener
from stratamq.service.caller import Caller
from stratamq.service.entrance import Call
from stratamq.service.front import Front
from stratamq.service.grpc_callers import delegation
from stratamq.service.server import Server
from stratamq.service.socket_listener import MAX_REQUEST_BYTES, MAX_UNREAD_BYTES
from tests.support.calls import Waiting

REPORT, STREAMED, FOLLOW = METHODS["ReportReplication"], METHODS["AppendStream"], METHODS["Follow"]
CALLER = Caller("10.0.0.7", 4711, False)
ENDS_S = 30.0
"""What waits in vain fails here, not in the run's time-out."""
Behaviour = Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]


async def echo(requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for request in requests:
        yield bytes(request)


async def plus_one(request: pb.ReportReplicationRequest) -> int:
    return request.generation + 1


class Served:
    """A log with two methods, and a front's client of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.answers: Callable[[Any], Awaitable[int]] = plus_one
        self.streams: Behaviour = echo
        self.calls: list[Call] = []
        self.server = self.new_server()
        self.front = Front(root)
        self.client = self.front.client(CALLER)

    def new_server(self, **options: Any) -> Server:
        server = Server(COMMITLOG, root=self.root, **options)
        handlers = {
            "ReportReplication": grpc.unary_unary_rpc_method_handler(
                self._report,
                pb.ReportReplicationRequest.FromString,
                pb.ReportReplicationResponse.SerializeToString,
            ),
            "AppendStream": grpc.stream_stream_rpc_method_handler(self._stream),
        }
        name = REPORT.path.split("/")[1]
        server.add_generic(grpc.method_handlers_generic_handler(name, handlers))
        return server

    async def _report(self, request: Any, call: Call) -> pb.ReportReplicationResponse:
        self.calls.append(call)
        return pb.ReportReplicationResponse(confirmed_offset=await self.answers(request))

    async def _stream(self, requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
        self.calls.append(call)
        async for answer in self.streams(requests):
            yield answer

    @property
    def connections(self) -> Any:
        return self.client._brokers.whole.connections

    @property
    def socket(self) -> Path:
        return discovery.socket_directory(self.root) / f"{COMMITLOG}-front.calls"

    @property
    def taken(self) -> set[Any]:
        """Connections of fronts."""
        return self.server._front_listener._connections

    async def ask(self, generation: int = 1, timeout_s: float | None = 60) -> int:
        call = await self.connections.callable(REPORT)
        request = pb.ReportReplicationRequest(generation=generation)
        return (await call(request, timeout=timeout_s)).confirmed_offset

    async def stream(self, requests: AsyncIterator[bytes]) -> Any:
        way = self.connections._channels.channel(COMMITLOG)
        call = way.stream_stream(STREAMED.path, request_serializer=None, response_deserializer=None)
        return call(requests, metadata=(delegation(CALLER),))


@contextlib.asynccontextmanager
async def served_at(root: Path, way: str = "without gRPC") -> AsyncIterator[Served]:
    served = Served(root)
    await served.server.start("127.0.0.1:0")
    if way == "by gRPC":
        served.socket.unlink()
    try:
        yield served
    finally:
        await served.client.close()
        await served.front.close()
        await served.server.stop()


both_ways = pytest.mark.parametrize("way", ["without gRPC", "by gRPC"])


async def every(call: Any) -> list[bytes]:
    found = []
    async with asyncio.timeout(ENDS_S):
        while (answer := await call.read()) is not grpc.aio.EOF:
            found.append(bytes(answer))
    return found


async def each(*requests: bytes) -> AsyncIterator[bytes]:
    for request in requests:
        yield request


SIZES = (0, 1, KEPT_BYTES - SIZE.size, KEPT_BYTES, 3 * KEPT_BYTES, 5, 1 << 20, 7)


@both_ways
async def test_single_calls_and_streams_of_any_size_come_as_they_are(tmp_path, way):
    async with served_at(tmp_path, way) as served:
        assert [await served.ask(number) for number in range(5)] == [1, 2, 3, 4, 5]
        sent = [os.urandom(size) for size in SIZES]
        assert await every(await served.stream(each(*sent))) == sent
        assert bool(served.taken) is (way == "without gRPC")
        assert {call.caller for call in served.calls} == {CALLER._replace(delegated=True)}


@both_ways
@pytest.mark.parametrize(
    "error",
    [
        BusyError("come back", 250),
        InvalidRequestError("“not” ASCII", appended=12),
        UnavailableError("the log is being opened"),
        ValueError("a bug of ours"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_errors_are_those_of_grpc_and_the_next_call_is_answered(tmp_path, way, error):
    async def fails(request):
        raise error

    async def fails_behind_one(requests):
        async for _ in requests:
            yield b"one"
        raise error

    async with served_at(tmp_path, way) as served:
        served.answers, served.streams = fails, fails_behind_one
        with one_request() as request, pytest.raises(grpc.aio.AioRpcError) as single:
            await served.ask()
        stream = await served.stream(each(b"x" * 1000))
        assert await stream.read() == b"one"
        with pytest.raises(grpc.aio.AioRpcError) as streamed:
            await stream.read()
        assert single.value.code() == streamed.value.code()
        assert (request.id in single.value.details()) is isinstance(error, ValueError)
        metadata = dict(single.value.trailing_metadata())
        assert metadata["stratamq-request-id"] == request.id
        served.answers = plus_one
        assert await served.ask(1) == 2


@both_ways
async def test_the_request_id_and_the_time_left_go_along(tmp_path, way):
    seen = []

    async def note(request):
        seen.append(current().id)
        return 0

    async with served_at(tmp_path, way) as served:
        served.answers = note
        now = asyncio.get_running_loop().time()
        with one_request() as request:
            await served.ask(timeout_s=50)
        await served.ask(timeout_s=None)
        assert seen[0] == request.id != seen[1]
        first, second = (call.deadline for call in served.calls)
        assert now + 40 < first < now + 60
        assert second == math.inf


@pytest.mark.parametrize("ends", ["in time", "cancelled"])
async def test_a_call_that_is_given_up_is_ended_and_no_other_call_gets_its_answer(tmp_path, ends):
    waiting = Waiting()
    async with served_at(tmp_path) as served:
        served.answers = waiting
        asking = asyncio.create_task(served.ask(7, timeout_s=60 if ends == "cancelled" else 0.05))
        await waiting.begun.wait()
        if ends == "cancelled":
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        else:
            with pytest.raises(grpc.aio.AioRpcError) as late:
                await asking
            assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await waiting.cancelled.wait()
        waiting.go.set()
        assert await served.ask(2) == 2


@both_ways
async def test_a_stream_that_is_cancelled_ends_on_both_sides(tmp_path, way):
    waiting = Waiting()
    ended = asyncio.Event()

    async def for_ever() -> AsyncIterator[bytes]:
        try:
            yield b"one"
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with served_at(tmp_path, way) as served:
        served.streams = waiting.stream
        stream = await served.connections.open(STREAMED, for_ever())
        await waiting.begun.wait()
        reading = asyncio.create_task(stream.read())
        await asyncio.sleep(0)
        stream.end()
        async with asyncio.timeout(ENDS_S):
            assert await reading is None
            await waiting.cancelled.wait()
            await ended.wait()


@both_ways
async def test_a_service_that_stops_ends_streams_and_calls(tmp_path, way):
    waiting = Waiting()
    async with served_at(tmp_path, way) as served:
        await served.server.stop()
        served.server = served.new_server(stop_grace_ms=10)
        await served.server.start("127.0.0.1:0")
        if way == "by gRPC":
            served.socket.unlink()
        served.answers, served.streams = waiting, waiting.stream
        asking = asyncio.create_task(served.ask())
        stream = await served.stream(each(b"one"))
        reading = asyncio.create_task(stream.read())
        await waiting.begun.wait()
        await served.server.stop()
        for one in (asking, reading):
            with pytest.raises(grpc.aio.AioRpcError):
                async with asyncio.timeout(ENDS_S):
                    await one
        assert not served.socket.exists()


async def test_the_socket_is_this_users_alone(tmp_path):
    async with served_at(tmp_path) as served:
        assert stat.S_IMODE(served.socket.stat().st_mode) == 0o600


async def test_many_calls_at_once_have_a_bounded_number_of_connections(tmp_path, monkeypatch):
    monkeypatch.setattr(socket_calls, "MAX_CONNECTIONS", 3)
    waiting = Waiting()
    async with served_at(tmp_path) as served:
        served.answers = waiting
        asking = [asyncio.create_task(served.ask(number)) for number in range(10)]
        while len(served.calls) < len(asking):
            await asyncio.sleep(0)
        assert len(served.taken) == 3
        waiting.go.set()
        assert await asyncio.gather(*asking) == list(range(10))
        assert await served.ask(5) == 5
        assert len(served.taken) == 3


async def test_of_many_connections_that_wait_for_a_call_a_few_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(socket_calls, "MAX_IDLE", 2)
    waiting = Waiting()
    async with served_at(tmp_path) as served:
        served.answers = waiting
        asking = [asyncio.create_task(served.ask(number)) for number in range(5)]
        while len(served.calls) < len(asking):
            await asyncio.sleep(0)
        waiting.go.set()
        assert await asyncio.gather(*asking) == list(range(5))
        async with asyncio.timeout(ENDS_S):
            while len(served.taken) != 2:
                await asyncio.sleep(0)


async def test_further_streams_go_by_grpc(tmp_path, monkeypatch):
    """Each takes a descriptor of both processes, and gRPC's share one."""
    monkeypatch.setattr(socket_calls, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(socket_calls, "MAX_STREAMS", 2)
    async with served_at(tmp_path) as served:
        ended = asyncio.Event()
        calls = [await served.stream(asked(b"%d" % number, ended)) for number in range(6)]
        for number, call in enumerate(calls):
            async with asyncio.timeout(ENDS_S):
                assert await call.read() == b"%d" % number
        assert len(served.taken) == 3
        ended.set()
        for call in calls:
            assert await every(call) == []


async def test_a_stream_that_is_refused_while_it_sends_hears_why(tmp_path):
    async def refuse(requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        raise InvalidRequestError("not this one")
        yield b""

    async with served_at(tmp_path) as served:
        served.streams = refuse
        call = await served.stream(asked(b"first"))
        await call._made.wait()
        connection = call._connection
        connection.transport.pause_reading()
        while not served.calls or any(one._call for one in served.taken):
            await asyncio.sleep(0)
        for _ in range(3):
            connection.send(SIZE.pack(5), b"later")
            await asyncio.sleep(0)
        if connection.transport is not None:
            connection.transport.resume_reading()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            async with asyncio.timeout(ENDS_S):
                await call.read()
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_front_that_does_not_read_the_last_answer_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(socket_listener, "LINGER_S", 0.05)
    async with served_at(tmp_path) as served:
        begin = Begin(STREAM, 0, STREAMED.path, "", delegation(CALLER)[1], b"")
        reader, writer = await asyncio.open_unix_connection(str(served.socket))
        writer.write(encode_begin(begin) + SIZE.pack(LAST))
        async with asyncio.timeout(ENDS_S):
            assert await reader.read() == SIZE.pack(1) + bytes((ENDED,))
        writer.close()


async def asked(first: bytes, ended: asyncio.Event | None = None) -> AsyncIterator[bytes]:
    """A stream that stays open until then."""
    yield first
    await (ended or asyncio.Event()).wait()


async def test_a_listener_without_room_is_none(tmp_path):
    """And no connection that will come, which asyncio takes it for."""
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listening, contextlib.ExitStack() as others:
        listening.bind(path)
        listening.listen(0)
        with pytest.raises(BlockingIOError):
            while True:
                other = others.enter_context(socket.socket(socket.AF_UNIX))
                other.setblocking(False)
                other.connect(path)
        assert await connected(path, asyncio.Protocol) is None
    assert await connected(path, asyncio.Protocol) is None


async def test_hundreds_connect_while_the_service_does_something_else(tmp_path):
    async with served_at(tmp_path) as served:
        path, made = str(served.socket), list[asyncio.Protocol | None]()
        with contextlib.ExitStack() as others:
            for _ in range(500):  # its loop is this one, and takes none meanwhile
                other = others.enter_context(socket.socket(socket.AF_UNIX))
                other.setblocking(False)
                other.connect(path)
        made.append(await connected(path, asyncio.Protocol))
        assert made[0] is not None


async def test_who_does_not_read_is_waited_for(tmp_path):
    given = 0

    async def gives(requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        nonlocal given
        for _ in range(500):
            given += 1
            yield bytes(1 << 16)

    async with served_at(tmp_path) as served:
        served.streams = gives
        stream = await served.stream(each(b"one"))
        assert await stream.read() == bytes(1 << 16)
        before = -1
        while given != before:  # until nothing moves any more
            before = given
            await asyncio.sleep(0.1)
        assert given < 50, "a few hundred KiB at both ends, and what the socket holds"
        assert len(await every(stream)) == 499


async def test_a_handler_that_does_not_read_is_not_sent_to_without_bound(tmp_path):
    sent = 0
    waiting = Waiting()

    async def sends() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(500):
            sent += 1
            yield bytes(1 << 16)

    async with served_at(tmp_path) as served:
        served.streams = waiting.stream
        stream = await served.stream(sends())
        await waiting.begun.wait()
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.1)
        (connection,) = served.taken
        assert sent < 100
        assert connection._context._unread_bytes < MAX_UNREAD_BYTES + 2 * KEPT_BYTES
        waiting.go.set()
        assert len(await every(stream)) == 500


def begin(kind: int = SINGLE, method: str = REPORT.path, message: bytes = b"") -> bytes:
    return encode_begin(Begin(kind, 0, method, "", delegation(CALLER)[1], message))


HOSTILE = {
    "too large": SIZE.pack(MAX_REQUEST_BYTES + 1),
    "no method": begin(method="/a/b"),
    "a stream of answers": begin(method=FOLLOW.path),
    "another kind": begin(kind=2),
    "an end of nothing": SIZE.pack(LAST),
    "not ASCII": SIZE.pack(10) + b"\x00\0\0\0\0\x01\xff\x00\0\0",
    "beyond its end": SIZE.pack(8) + b"\0\0\0\0\0\x09ab",
    "empty": SIZE.pack(0),
    "three calls at once": begin() * 3,
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
async def test_what_is_no_call_ends_its_connection_alone(tmp_path, data):
    waiting = Waiting()
    async with served_at(tmp_path) as served:
        assert await served.ask(1) == 2
        served.answers = waiting
        reader, writer = await asyncio.open_unix_connection(served.socket)
        writer.write(data)
        async with asyncio.timeout(ENDS_S):
            assert await reader.read() == b""
        writer.close()
        served.answers = plus_one
        assert await served.ask(2) == 3


async def test_a_call_may_come_before_the_last_ones_task_has_ended(tmp_path):
    async with served_at(tmp_path) as served:
        reader, writer = await asyncio.open_unix_connection(served.socket)
        writer.write(begin() * 2)
        async with asyncio.timeout(ENDS_S):
            for _ in range(2):
                (size,) = SIZE.unpack(await reader.readexactly(SIZE.size))
                assert (await reader.readexactly(size))[0] == 0
        writer.close()


async def test_requests_may_come_in_any_pieces(tmp_path):
    async with served_at(tmp_path) as served:
        reader, writer = await asyncio.open_unix_connection(served.socket)
        sent = begin(STREAM, STREAMED.path) + SIZE.pack(3) + b"abc" + SIZE.pack(0)
        for byte in sent + SIZE.pack(LAST):
            writer.write(bytes((byte,)))
            await writer.drain()
        async with asyncio.timeout(ENDS_S):
            found = await reader.read()
        writer.close()
        assert found == b"\0\0\0\4\0abc" + b"\0\0\0\1\0" + b"\0\0\0\1\xff"


async def test_a_call_without_a_caller_is_refused(tmp_path):
    async with served_at(tmp_path) as served:
        reader, writer = await asyncio.open_unix_connection(served.socket)
        writer.write(encode_begin(Begin(SINGLE, 0, REPORT.path, "", b"", b"")))
        (size,) = SIZE.unpack(await reader.readexactly(SIZE.size))
        answer = await reader.readexactly(size)
        assert answer[0] == grpc.StatusCode.UNAUTHENTICATED.value[0]
        assert not served.calls
        writer.close()


@pytest.mark.parametrize("answer", [b"\0\0\0\2\x63x", b"\0\0\0\3\x0e[]", b"\0\0\0\0", b""])
async def test_an_answer_that_is_none_is_an_error_of_its_call(tmp_path, answer):
    async def serve(reader, writer):
        await reader.readexactly(5)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "s")
    calls = socket_calls.SocketCalls(lambda: str(tmp_path / "s"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await calls.ask(Begin(SINGLE, 60_000, REPORT.path, "", b"", b""))
    assert caught.value.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE)
    await calls.close()
    server.close()


def test_names_fit_their_sizes():
    assert all(len(method.path) < 256 for method in METHODS.values())


def test_a_begin_reads_back_and_a_part_of_one_begins_nothing():
    whole = Begin(STREAM, 1234, "/a/b", "00-ab", b"\0caller", b"message")
    data = encode_begin(whole)[SIZE.size :]
    assert decode_begin(data) == whole
    assert all(decode_begin(data[:end]) is None for end in range(len(data) - len(whole.message)))
