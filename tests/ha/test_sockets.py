"""What a socket gives when the event loop is late, as on a busy machine."""

import asyncio
import socket
import threading

from stratamq_ha.sockets import receive

TIMEOUT_S = 0.01


async def test_bytes_that_come_while_the_time_runs_out_are_not_lost():
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        receiving = asyncio.ensure_future(receive(near, 100, TIMEOUT_S))
        await asyncio.sleep(0)
        far.sendall(b"acknowledged")
        threading.Event().wait(2 * TIMEOUT_S)  # the loop sees both at once
        found = await receiving or await receive(near, 100, TIMEOUT_S)
    assert found == b"acknowledged"


async def test_when_nothing_comes_the_time_runs_out_and_an_end_is_seen():
    near, far = socket.socketpair()
    with near:
        near.setblocking(False)
        found = [await receive(near, 100, TIMEOUT_S)]
        far.close()
        result = [*found, await receive(near, 100, TIMEOUT_S)]
    assert result == [None, b""]


async def test_a_peer_that_sends_without_a_pause_leaves_the_loop_to_others_as_well():
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        far.sendall(b"acknowledged")
        others = asyncio.Event()
        asyncio.get_running_loop().call_soon(others.set)
        await receive(near, 100, TIMEOUT_S)
        found = others.is_set()
    assert found


async def test_a_receive_that_is_cancelled_with_bytes_there_takes_none():
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        far.sendall(b"acknowledged")
        for steps in range(3):
            receiving = asyncio.ensure_future(receive(near, 100, TIMEOUT_S))
            for _ in range(steps):
                await asyncio.sleep(0)
            if not receiving.cancel():
                break
            await asyncio.wait([receiving])
        found = receiving.result()
    assert found == b"acknowledged"
