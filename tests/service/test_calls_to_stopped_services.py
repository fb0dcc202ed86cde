"""Calls by socket to a service that is stopped, not dead, and of a process without descriptors."""

import asyncio
import contextlib
import resource
import socket
from collections.abc import Iterator

import grpc
import pytest

from stratamq.rpc.methods import METHODS
from stratamq.rpc.socket_calls import (
    SINGLE,
    STREAM,
    Begin,
    SocketCalls,
    WrittenStream,
    connected,
)

ENDS_S = 30.0
LARGER_THAN_A_SOCKET = bytes(4 << 20)


@pytest.fixture
def stopped(tmp_path) -> Iterator[str]:
    """The socket of a service that takes connections and reads nothing, as one after SIGSTOP."""
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        yield path


async def test_a_call_leaves_nothing_behind(stopped):
    calls = SocketCalls(lambda: stopped)
    begin = Begin(SINGLE, 20, METHODS["AppendData"].path, "", b"", LARGER_THAN_A_SOCKET)
    with pytest.raises(grpc.aio.AioRpcError) as late:
        await calls.ask(begin)
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    async with asyncio.timeout(ENDS_S):
        while calls._open:
            await asyncio.sleep(0.01)


async def test_a_stream_that_is_cancelled_ends_for_who_reads_and_who_writes(stopped):
    calls = SocketCalls(lambda: stopped)
    begin = Begin(STREAM, 0, METHODS["AppendStream"].path, "", b"", b"")
    stream = WrittenStream(calls.connect_stream, begin, lambda: None, (None, None))
    await stream.open()
    reading = asyncio.create_task(stream.read())
    writing = asyncio.create_task(stream.write(LARGER_THAN_A_SOCKET))
    await asyncio.sleep(0)
    stream.cancel()
    async with asyncio.timeout(ENDS_S):
        await asyncio.wait([reading, writing])
    assert reading.cancelled(), "as gRPC's"
    assert writing.exception() is None


async def test_a_process_without_a_descriptor_makes_no_connection(stopped):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as restoring:
        with socket.socket() as next_one:
            lowest = next_one.fileno()
        restoring.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
        assert await connected(stopped, asyncio.Protocol) is None
