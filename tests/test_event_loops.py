"""The event loops of the tests: tests/support/loops.py."""

import asyncio
import socket

import grpc.aio
import pytest


def test_the_end_of_a_call_that_a_closed_loop_left_is_nobodys_error():
    errors = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        left = asyncio.new_event_loop()

        async def begin():
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{silent.getsockname()[1]}")
            call = channel.unary_unary("/nobody/answers")(b"")
            await asyncio.wait([asyncio.ensure_future(call.code())], timeout=0.05)
            return channel, call

        kept = left.run_until_complete(begin())

        async def go_on():
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: errors.append(context))
            async with grpc.aio.insecure_channel(f"127.0.0.1:{silent.getsockname()[1]}") as channel:
                left.close()
                silent.close()
                with pytest.raises(grpc.aio.AioRpcError):
                    await channel.unary_unary("/nobody/answers")(b"", timeout=2)

        asyncio.run(go_on())
    assert kept
    assert errors == []


def test_a_closed_loop_still_refuses_what_others_than_grpc_tell_it():
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon_threadsafe(print)
