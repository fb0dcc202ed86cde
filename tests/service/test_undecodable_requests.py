"""Bytes that are no request are the caller's fault, whatever the kind of the call."""

import grpc
import pytest
from grpc_health.v1 import health_pb2

from stratamq.errors import InvalidRequestError
from stratamq.rpc.status import from_rpc_error
from stratamq.service.server import Server

SERVICE = "test.Echo"
KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
GOOD = health_pb2.HealthCheckRequest(service="me").SerializeToString()
BAD = b"\x0a\x05ab"


async def unary(request, context):
    return request.service.encode()


async def count(requests, context):
    names = [request.service async for request in requests]
    return ",".join(names).encode()


async def stream(request, context):
    yield request.service.encode()


async def echo(requests, context):
    async for request in requests:
        yield request.service.encode()


BEHAVIOURS = dict(zip(KINDS, (unary, stream, count, echo), strict=True))


@pytest.fixture(scope="module")
def address(run):
    handlers = {
        kind: getattr(grpc, f"{kind}_rpc_method_handler")(
            BEHAVIOURS[kind], health_pb2.HealthCheckRequest.FromString
        )
        for kind in KINDS
    }

    async def start() -> Server:
        server = Server("test", stop_grace_ms=0)
        server.add_generic(grpc.method_handlers_generic_handler(SERVICE, handlers))
        await server.start("127.0.0.1:0")
        return server

    server = run(start())
    yield server.address
    run(server.stop())


def call(address: str, kind: str, *requests: bytes) -> list[bytes]:
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        method = getattr(channel, kind)(f"/{SERVICE}/{kind}")
        response = method(iter(requests) if kind.startswith("stream") else requests[0])
        return list(response) if kind.endswith("stream") else [response]


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_that_can_be_read_reaches_its_handler(address, kind):
    assert call(address, kind, GOOD) == [b"me"]


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_that_are_no_request_are_an_invalid_request(address, kind):
    with pytest.raises(grpc.RpcError) as caught:
        call(address, kind, BAD)
    error = from_rpc_error(caught.value)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert type(error) is InvalidRequestError
    assert error.message == f"these 4 bytes are no request of {kind}"


def test_a_stream_works_up_to_the_request_that_cannot_be_read(address):
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        responses = channel.stream_stream(f"/{SERVICE}/stream_stream")(iter([GOOD, BAD, GOOD]))
        assert next(responses) == b"me"
        with pytest.raises(grpc.RpcError) as caught:
            next(responses)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
