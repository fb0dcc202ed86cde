"""Connections to the console's own port: those that make no progress end, and no host has all."""

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from stratamq_console import serving
from stratamq_console.serving import serve_pages

DEADLINE_S = 60
SHORT_S = 0.2
HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n"
PIECE = bytes(64 << 10)


async def pages(scope, receive, send):
    """`/` answers at once, `/long` without end, `/held` begins to, any other path after the form
    has come."""
    request = Request(scope, receive)
    if request.url.path == "/long":

        async def pieces():
            while True:
                yield PIECE
                await asyncio.sleep(0)

        await StreamingResponse(pieces())(scope, receive, send)
    elif request.url.path == "/held":

        async def begun():
            yield PIECE[:1]
            await asyncio.Event().wait()

        await StreamingResponse(begun())(scope, receive, send)
    elif request.url.path == "/":
        await PlainTextResponse("ok")(scope, receive, send)
    else:
        await request.body()
        await PlainTextResponse("whole")(scope, receive, send)


@asynccontextmanager
async def served():
    listening = socket.create_server(("127.0.0.1", 0))
    task = asyncio.ensure_future(serve_pages(pages, listening, None))
    async with asyncio.timeout(DEADLINE_S):
        yield listening.getsockname()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HT", HEAD, b"POST /form HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc"],
    ids=["silent", "a part of a line", "a part of a head", "a part of a form"],
)
async def test_a_request_that_does_not_come_whole_ends(monkeypatch, sent):
    monkeypatch.setattr(serving, "REQUEST_S", SHORT_S)
    async with served() as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(sent)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()


async def test_a_part_of_a_second_request_ends_as_one_of_a_first(monkeypatch):
    monkeypatch.setattr(serving, "REQUEST_S", SHORT_S)
    async with served() as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(HEAD + b"\r\n")
        await reader.readuntil(b"ok")
        writer.write(HEAD)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()


async def test_a_browser_that_reads_nothing_ends_and_one_that_reads_goes_on(monkeypatch):
    monkeypatch.setattr(serving, "READ_S", SHORT_S)
    monkeypatch.setattr(serving, "REQUEST_S", SHORT_S)
    async with served() as address:
        reads, writer = await asyncio.open_connection(*address, limit=len(PIECE))
        writer.write(HEAD.replace(b"/ ", b"/long ") + b"\r\n")
        idle, other = await asyncio.open_connection(*address, limit=len(PIECE))
        other.write(HEAD.replace(b"/ ", b"/long ") + b"\r\n")
        until = asyncio.get_running_loop().time() + 4 * SHORT_S
        while asyncio.get_running_loop().time() < until:
            assert await reads.read(len(PIECE)), "it reads"
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            while True:
                await idle.readexactly(len(PIECE))
        writer.close()
        other.close()


async def test_one_other_machine_has_not_all_connections(monkeypatch):
    monkeypatch.setattr(serving, "MAX_OF_A_HOST", 2)
    async with served() as address:
        near = [await asyncio.open_connection(*address) for _ in range(3)]
        for reader, writer in near:
            writer.write(HEAD + b"\r\n")
            assert await reader.readuntil(b"ok"), "this machine is its users"
        monkeypatch.setattr(serving, "is_loopback", lambda host: False)
        reader, writer = await asyncio.open_connection(*address)
        writer.write(HEAD + b"\r\n")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        for _, one in near:
            one.close()


async def test_a_full_console_drops_the_connection_that_has_waited_longest(monkeypatch):
    monkeypatch.setattr(serving, "MAX_CONCURRENT", 3)
    async with served() as address:
        first, second = [await asyncio.open_connection(*address) for _ in range(2)]
        reader, writer = await asyncio.open_connection(*address)
        writer.write(HEAD + b"\r\n")
        assert (await reader.readline()).split()[1] == b"200"
        assert await first[0].read() == b""
        second[1].write(HEAD + b"\r\n")
        assert (await second[0].readline()).split()[1] == b"200", "the younger one is kept"
        for _, one in (first, second, (reader, writer)):
            one.close()


async def test_a_full_console_drops_a_browser_that_does_not_read(monkeypatch):
    monkeypatch.setattr(serving, "MAX_CONCURRENT", 2)
    monkeypatch.setattr(serving, "READ_S", 10 * DEADLINE_S)
    async with served() as address:
        unread, other = await asyncio.open_connection(*address, limit=len(PIECE))
        other.write(HEAD.replace(b"/ ", b"/long ") + b"\r\n")
        assert (await unread.readline()).split()[1] == b"200"
        answer = b"503"
        while answer == b"503":  # until what the sockets hold is full
            reader, writer = await asyncio.open_connection(*address)
            writer.write(HEAD + b"\r\n")
            answer = (await reader.readline()).split()[1]
            writer.close()
        assert answer == b"200"
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            while True:
                await unread.readexactly(len(PIECE))
        other.close()


async def test_a_full_console_drops_nothing_that_is_being_answered(monkeypatch):
    monkeypatch.setattr(serving, "MAX_CONCURRENT", 3)
    async with served() as address:
        busy = [await asyncio.open_connection(*address) for _ in range(2)]
        for reader, writer in busy:
            writer.write(HEAD.replace(b"/ ", b"/held ") + b"\r\n")
            assert (await reader.readline()).split()[1] == b"200"
        reader, writer = await asyncio.open_connection(*address)
        writer.write(HEAD + b"\r\n")
        assert (await reader.readline()).split()[1] == b"503"
        for other, _ in busy:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(SHORT_S):
                    await other.read(1 << 20) and await other.read()
        for _, one in (*busy, (reader, writer)):
            one.close()
