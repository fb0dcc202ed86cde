"""One port for RocketMQ 5's clients with TLS and for those in clear."""

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import NamedTuple

import grpc
import pytest
from stratamq_gateway.messaging.shared_port import ALPN, MAX_UNSENT_BYTES, SharedPort

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client import Topic, connect
from stratamq.rpc.address import join_address
from stratamq.rpc.credentials import TlsFiles
from stratamq.service.caller import NO_HOST, Caller
from stratamq.service.sockets import listen
from stratamq.service.tls import ServerTls
from tests.gateway.messaging import Client, code, message
from tests.gateway.test_messaging import served
from tests.security.conftest import made

DEADLINE_S = 60
HELLO = b"\x16\x03\x01 hello"
PREFACE = b"PRI * HTTP/2.0"
SEVERAL_BUFFERS = 64 * MAX_UNSENT_BYTES
FROM = "127.0.0.5"
PARTS = ("ca.pem", "broker.pem", "broker.key")


class Inner:
    """What stands for gRPC: who has come, by port, and their connections."""

    def __init__(self) -> None:
        self.connections: asyncio.Queue = asyncio.Queue()

    async def __call__(self, reader, writer) -> None:
        await self.connections.put((reader, writer))


class Shared(NamedTuple):
    port: SharedPort
    where: tuple[str, int]
    encrypted: asyncio.Queue
    clear: asyncio.Queue


def address_of(server: asyncio.Server) -> str:
    return join_address(*server.sockets[0].getsockname())


@asynccontextmanager
async def shared(pki=None):
    """`pki`: whose TLS ends here for browsers."""
    encrypted, clear = Inner(), Inner()
    listener = listen("127.0.0.1:0", "the test")
    where = listener.getsockname()
    async with (
        asyncio.timeout(DEADLINE_S),
        await asyncio.start_server(encrypted, "127.0.0.1", 0) as first,
        await asyncio.start_server(clear, "127.0.0.1", 0) as second,
    ):
        contexts = None
        if pki is not None:
            files = TlsFiles(*(pki.directory / f"{name}" for name in PARTS))
            contexts = ServerTls(files).contexts(require_client_certificates=False, alpn=ALPN)
        port = SharedPort(address_of(first), address_of(second), contexts)
        serving = asyncio.create_task(port.serve(listener))
        yield Shared(port, where, encrypted.connections, clear.connections)
        serving.cancel()
        port.close()


async def opened(where, data: bytes):
    reader, writer = await asyncio.open_connection(*where, local_addr=(FROM, 0))
    writer.write(data)
    return reader, writer


def port_of(writer: asyncio.StreamWriter) -> int:
    return writer.get_extra_info("peername")[1]


@pytest.mark.anyio
@pytest.mark.parametrize("hello", [HELLO, PREFACE])
async def test_the_first_byte_decides_and_the_callers_address_is_known(hello):
    async with shared() as one:
        reader, writer = await opened(one.where, hello)
        inner_reader, inner_writer = await (one.encrypted if hello is HELLO else one.clear).get()
        assert await inner_reader.readexactly(len(hello)) == hello
        own_port = writer.get_extra_info("sockname")[1]
        caller = one.port.caller(port_of(inner_writer))
        assert caller == Caller(FROM, own_port, hello is HELLO)
        inner_writer.write(b"answer")
        assert await reader.readexactly(6) == b"answer"
        writer.close()
        assert await inner_reader.read() == b"", "its end is passed on"
        nobody = one.port.caller(port_of(inner_writer))
        assert nobody == Caller(NO_HOST) and not nobody.is_private, "whoever has the port now"
        inner_writer.close()


@pytest.mark.anyio
async def test_each_connection_keeps_its_caller_whatever_ports_others_come_from():
    """A machine gives connections to different servers the same port, once many have come."""
    async with shared() as one:
        kept, inside = [], []
        for _ in range(100):
            kept.append(await opened(one.where, HELLO))
            inside.append((await one.encrypted.get())[1])
        for _ in range(2_500):
            _, clear = await opened(one.where, PREFACE)
            _, inner = await one.clear.get()
            assert not one.port.caller(port_of(inner)).encrypted
            clear.close()
            inner.close()
        callers = [one.port.caller(port_of(inner)) for inner in inside]
        ports = [writer.get_extra_info("sockname")[1] for _, writer in kept]
        assert callers == [Caller(FROM, port, True) for port in ports]
        for _, writer in kept:
            writer.close()


@pytest.mark.anyio
async def test_what_was_given_goes_out_before_the_end_and_a_slow_reader_is_waited_for():
    async with shared() as one:
        reader, writer = await opened(one.where, PREFACE)
        _, inner_writer = await one.clear.get()
        inner_writer.write(bytes(SEVERAL_BUFFERS))
        sent = asyncio.create_task(inner_writer.drain())
        done, _ = await asyncio.wait([sent], timeout=0.2)
        assert not done, "its sender waits: nobody has read"
        inner_writer.close()
        assert len(await reader.read(-1)) == SEVERAL_BUFFERS
        await sent
        writer.close()


@pytest.mark.anyio
async def test_one_that_says_nothing_is_closed_and_keeps_nobody_waiting(monkeypatch):
    monkeypatch.setattr("stratamq_gateway.messaging.shared_port.HANDSHAKE_S", 0.2)
    async with shared() as one:
        silent_reader, silent = await opened(one.where, b"")
        _, writer = await opened(one.where, PREFACE)
        await one.clear.get()
        assert await silent_reader.read() == b""
        silent.close()
        writer.close()


def test_clients_with_tls_and_in_clear_have_one_port(tmp_path):
    pki = made(tmp_path / "pki")
    with served(tmp_path, *pki.settings()) as (broker, address):
        with connect(broker.root) as client:
            client.admin.create_topic(Topic("normal", 1, 1))
        credentials = grpc.ssl_channel_credentials((pki.directory / "ca.pem").read_bytes())
        with (
            grpc.secure_channel(address, credentials) as encrypted,
            grpc.insecure_channel(address) as clear,
        ):
            body = bytes(range(256)) * (8 << 10)
            for channel in (encrypted, clear):
                assert code(Client(channel).send(message("normal", body))) == "OK"
            found = Client(clear).receive("normal", "shop")
            found += Client(encrypted).receive("normal", "shop", 5)
            assert [one.body for one in found] == [body, body]


def test_where_certificates_are_required_nobody_is_served_in_clear(tmp_path):
    pki = made(tmp_path / "pki")
    required = "tls.require_client_certificates=true"
    with served(tmp_path, *pki.settings(required)) as (_, address):
        with grpc.insecure_channel(address) as clear, pytest.raises(grpc.RpcError) as failure:
            Client(clear).call("QueryRoute", pb.QueryRouteRequest(), 10)
        assert failure.value.code() is not grpc.StatusCode.OK
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), DEADLINE_S) as connection:
            connection.sendall(PREFACE)
            connection.settimeout(DEADLINE_S)
            assert not connection.recv(1).startswith(b"\x00"), "no frame of HTTP/2"
