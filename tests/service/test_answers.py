"""Answers that a client does not take: what was done is answered, or was not done."""

import asyncio

import grpc
import pytest

from stratamq.rpc.methods import METHODS
from stratamq.service.client_limits import LimitsConfig
from stratamq.service.server import Server

ANSWER = bytes(4 << 20)
MOST = 8 << 20


@pytest.mark.parametrize("name", ["Append", "Pull"])
async def test_a_call_is_refused_before_it_is_done_or_answered(name):
    """A producer that is refused sends again: what it was refused must not be stored."""
    done: list[int] = []

    async def behaviour(request: bytes, context) -> bytes:
        done.append(1)
        return ANSWER

    service, method = METHODS[name].path.strip("/").split("/")
    server = Server("test", stop_grace_ms=100, limits=LimitsConfig(bytes_in_flight=MOST))
    handler = grpc.unary_unary_rpc_method_handler(behaviour)
    server.add_generic(grpc.method_handlers_generic_handler(service, {method: handler}))
    await server.start("127.0.0.1:0")
    options = [("grpc.http2.lookahead_bytes", 1 << 16), ("grpc.http2.bdp_probe", 0)]
    options.append(("grpc.max_receive_message_length", -1))
    async with grpc.aio.insecure_channel(server.address, options=options) as channel:
        calls = [channel.unary_unary(METHODS[name].path)(b"", timeout=60) for _ in range(20)]
        codes = [(await call.code()).name for call in calls]
    await server.stop()
    answered, refused = codes.count("OK"), codes.count("RESOURCE_EXHAUSTED")
    assert answered + refused == 20 and answered >= 1
    if name == "Append":
        assert len(done) == answered


async def test_what_holds_an_answer_lets_go_of_it_when_its_call_ends():
    async def behaviour(request: bytes, context) -> bytes:
        return ANSWER

    others = asyncio.all_tasks()
    server = Server("test", stop_grace_ms=100, limits=LimitsConfig(bytes_in_flight=MOST))
    handler = grpc.unary_unary_rpc_method_handler(behaviour)
    server.add_generic(grpc.method_handlers_generic_handler("test.Large", {"get": handler}))
    await server.start("127.0.0.1:0")
    options = [("grpc.max_receive_message_length", len(ANSWER) // 2)]
    async with grpc.aio.insecure_channel(server.address, options=options) as channel:
        call = channel.unary_unary("/test.Large/get")
        for _ in range(10):
            with pytest.raises(grpc.aio.AioRpcError):
                await call(b"", timeout=60)
        doomed = call(b"", timeout=60)
        await asyncio.sleep(0)
        doomed.cancel()
    await server.stop()
    # Its end comes after the stop when the stop is what cancelled it.
    calls = asyncio.all_tasks() - others
    if calls:
        await asyncio.wait(calls)
    [client] = server.limits._clients.values()
    assert client.in_flight + client.calls == 0
